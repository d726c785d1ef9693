"""What ``bench`` can run: this package, stock TVM and other engines.

A peer is one entry of :py:data:`PEERS`: the package that brings it and a function that gets a workload
ready to run. Whatever it prepares must use the workload's threads and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import tvm

from tvm_dnnfusion.build import build, build_stock
from tvm_dnnfusion.errors import OptionError
from tvm_dnnfusion.runner import Runner, runner_of

OURS = "ours"


@dataclass(frozen=True)
class Workload:
    """A model with its inputs, and how to run it."""

    name: str
    mod: tvm.IRModule
    params: Mapping[str, tvm.nd.NDArray]
    inputs: Mapping[str, np.ndarray]
    target: tvm.target.Target
    threads: int
    # A file name or a serialised model, for the peers that read ONNX; None if the model is none.
    onnx_model: str | bytes | None = None


@dataclass(frozen=True)
class Peer:
    """An engine to compare with; ``module`` is what ``package`` on PyPI brings, empty if it is TVM itself."""

    prepare: Callable[[Workload], Runner]
    module: str = ""
    package: str = ""


class OnnxRuntimeRunner:
    """ONNX Runtime on its CPU provider, inputs bound once."""

    def __init__(self, workload: Workload) -> None:
        import onnxruntime

        if workload.onnx_model is None:
            raise OptionError(f"peer onnxruntime reads ONNX files only, and {workload.name} is none")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = workload.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            workload.onnx_model, options, providers=["CPUExecutionProvider"]
        )
        self._binding = self._session.io_binding()
        for output in self._session.get_outputs():
            self._binding.bind_output(output.name)

    def set_inputs(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Bind the inputs without a copy."""
        for name, array in arrays.items():
            self._binding.bind_cpu_input(name, np.ascontiguousarray(array))

    def run(self) -> None:
        """Run the session."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[np.ndarray]:
        """Copy the outputs of the last run."""
        return [np.asarray(output) for output in self._binding.copy_outputs_to_cpu()]


def _ours(workload: Workload) -> Runner:
    result = build(workload.mod, workload.target, params=dict(workload.params))
    return runner_of(result.lib, workload.target)


def _stock(workload: Workload) -> Runner:
    result = build_stock(workload.mod, workload.target, dict(workload.params))
    return runner_of(result.lib, workload.target)


PEERS: dict[str, Peer] = {
    "stock": Peer(_stock),
    "onnxruntime": Peer(OnnxRuntimeRunner, module="onnxruntime", package="onnxruntime"),
}


def find_peer(name: str) -> Peer:
    """Look a peer up.

    Raises
    ------
    OptionError
        There is no such peer, or its package is not installed.
    """
    if name not in PEERS:
        raise OptionError(f"there is no peer '{name}' to compare with; accepted: {', '.join(PEERS)}")
    peer = PEERS[name]
    if peer.module and find_spec(peer.module) is None:
        raise OptionError(f"peer {name} is not installed; run: pip install {peer.package}")
    return peer


def prepare(name: str, workload: Workload) -> Runner:
    """Compile the workload for this package (:py:data:`OURS`) or a peer, and set its inputs."""
    runner = _ours(workload) if name == OURS else find_peer(name).prepare(workload)
    runner.set_inputs(workload.inputs)
    return runner
