"""Latency of a group on this machine: built as a block of its own, run on random inputs."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from .block_body import decode_body
from .block_operator import MAX_BLOCK_INPUTS, make_block
from .ecg import ECG
from .ecg_body import body_of_nodes
from .errors import BlockError, MeasureError
from .latency_db import LatencyDatabase
from .profit_measured import MeasuredProfitability

_REPEATS = 5
_MIN_REPEAT_MS = 5


def random_input(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Values that are safe for any operator: floats in [0.1, 1), integers 0 or 1."""
    generator = np.random.default_rng(seed)
    if "float" in dtype:
        return generator.uniform(0.1, 1.0, shape).astype(dtype)
    return generator.integers(0, 2, shape).astype(dtype)


def block_module(text: str) -> tvm.IRModule:
    """A module whose ``main`` is one block."""
    params = decode_body(text).function.params
    args = [relay.var(f"x{i}", p.checked_type) for i, p in enumerate(params)]
    return relay.transform.InferType()(
        tvm.IRModule.from_expr(relay.Function(args, make_block(text, args, "measured")))
    )


def block_milliseconds(text: str, target: tvm.target.Target) -> float:
    """Median milliseconds of a block's kernel on this machine's CPU.

    Raises
    ------
    MeasureError
        The block cannot be built or run here.
    """
    try:
        mod = block_module(text)
        with tvm.transform.PassContext(opt_level=3):
            library = relay.build(mod, target)
        module = graph_executor.GraphModule(library["default"](tvm.cpu()))
        for i, param in enumerate(mod["main"].params):
            shape = tuple(int(d) for d in param.checked_type.shape)
            module.set_input(i, random_input(shape, param.checked_type.dtype, seed=i))
        timing = module.benchmark(tvm.cpu(), repeat=_REPEATS, number=1, min_repeat_ms=_MIN_REPEAT_MS)
    except (tvm.TVMError, BlockError, ValueError, RuntimeError) as error:
        last = str(error).strip().splitlines() or [type(error).__name__]
        raise MeasureError(f"a block could not be measured: {last[-1]}") from error
    return float(timing.median) * 1e3


def _is_native(target: tvm.target.Target) -> bool:
    """True when this machine's processor runs what is built for ``target``."""
    here = str(tvm.target.codegen.llvm_get_system_triple())
    triple = str(target.attrs.get("mtriple", here))
    return bool(target.kind.name == "llvm" and triple.split("-")[0] == here.split("-")[0])


def measured_profitability(target: tvm.target.Target, database: Path) -> MeasuredProfitability:
    """Profitability by measurement on this machine, remembered in ``database``.

    Raises
    ------
    MeasureError
        ``target`` is not this machine's CPU: other devices are measured over RPC.
    DatabaseError
        The file is not a database of latencies.
    """
    if not _is_native(target):
        raise MeasureError(
            f"blocks for {target} cannot be measured on this machine; accepted is its own llvm"
        )

    def measure(ecg: ECG, nodes: tuple[int, ...]) -> float:
        text, external = body_of_nodes(ecg, nodes)
        if not 1 <= len(external) <= MAX_BLOCK_INPUTS:
            raise MeasureError(f"a block of {len(external)} inputs; 1 to {MAX_BLOCK_INPUTS} are accepted")
        return block_milliseconds(text, target)

    return MeasuredProfitability(LatencyDatabase(database), measure, str(target), platform.node())
