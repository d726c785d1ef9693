"""Optimise and build in one call, ours and stock, for people who want no flow of their own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import autotvm, relay

from .config import Options
from .errors import BuildError, OptionError
from .kernels import KernelCount, count_kernels
from .passes.dnnfusion import DNNFusion, bind_params
from .pipeline import Trace

EXECUTORS = ("auto", "graph", "vm")
Params = Mapping[str, "tvm.nd.NDArray | np.ndarray"]


@dataclass(frozen=True)
class BuildResult:
    """A built model.

    Attributes
    ----------
    lib
        ``GraphExecutorFactoryModule`` or, for the VM, ``Executable``.
    executor
        ``"graph"`` or ``"vm"``.
    target
        What it was built for.
    mod
        The module that was built; for ours, with sealed blocks.
    count
        Its kernels and intermediate bytes.
    seconds
        Per phase, ``build`` included.
    trace
        Plans; empty for stock.
    """

    lib: Any
    executor: str
    target: tvm.target.Target
    mod: tvm.IRModule
    count: KernelCount
    seconds: dict[str, float]
    trace: Trace = field(default_factory=Trace)

    def kernel_blocks(self) -> dict[str, tuple[str, ...]]:
        """Kernel name in the built library -> the operators of its block; empty for the VM."""
        if self.executor != "graph":
            return {}
        by_label = dict(zip(self.count.labels, self.count.operators, strict=True))
        found = {}
        for node in json.loads(self.lib.get_graph_json())["nodes"]:
            attrs = node.get("attrs", {})
            if attrs.get("hash") in by_label:
                found[attrs["func_name"]] = by_label[attrs["hash"]]
        return found


def is_dynamic(mod: tvm.IRModule) -> bool:
    """True when only the VM can run the module: a shape is not static, or it has control flow or closures."""
    mod = relay.transform.InferType()(mod)
    dynamic = [len(mod.functions) > 1]

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, (relay.If, relay.Let, relay.expr.RefCreate, relay.adt.Match)):
            dynamic.append(True)
        elif isinstance(expr, (relay.Call, relay.Var)):
            dynamic.append(bool(relay.ty.is_dynamic(expr.checked_type)))

    relay.analysis.post_order_visit(mod["main"], visit)
    return any(dynamic)


def build(
    mod: tvm.IRModule,
    target: str | tvm.target.Target,
    params: Params | None = None,
    options: Options | None = None,
    executor: str = "auto",
) -> BuildResult:
    """Run :class:`~tvm_dnnfusion.passes.DNNFusion` on a module and build it.

    Parameters
    ----------
    executor
        ``"graph"``, ``"vm"``, or ``"auto"``: the VM for modules that need it.

    Raises
    ------
    OptionError
        An unknown executor.
    TargetError
        An unknown target.
    BuildError
        TVM fails on the model or the target.
    """
    chosen = _executor(executor, mod)
    fusion = DNNFusion(target, params, options)
    optimised = fusion(mod)
    return _built(optimised, fusion.target, chosen, dict(fusion.trace.seconds), fusion.trace)


def build_stock(
    mod: tvm.IRModule, target: str | tvm.target.Target, params: Params | None = None, executor: str = "auto"
) -> BuildResult:
    """Build with stock ``relay.build`` at optimisation level 3; as :func:`build` otherwise."""
    return _built(
        bind_params(mod, params or {}), tvm.target.Target(target), _executor(executor, mod), {}, Trace()
    )


def _executor(executor: str, mod: tvm.IRModule) -> str:
    if executor not in EXECUTORS:
        raise OptionError(f"executor is {executor!r}; accepted are {', '.join(EXECUTORS)}")
    return executor if executor != "auto" else "vm" if is_dynamic(mod) else "graph"


def optimise_stock(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """``relay.optimize`` at level 3, in the caller's pass configuration: what ``relay.build`` lowers."""
    with _quiet(), tvm.transform.PassContext(opt_level=3, config=_inherited()):
        return relay.optimize(mod, target)[0]


@tvm.instrument.pass_instrument
class _KernelRecorder:
    """Counts the kernels of the module that a running build is about to lower."""

    def __init__(self) -> None:
        self.count: KernelCount | None = None

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Take the module behind the last pass that both executors run on fused operators.

        The VM runs it again on what it adds for allocation: these are not the model's kernels.
        """
        if info.name == "LabelOps" and self.count is None:
            self.count = count_kernels(mod)


def _built(
    mod: tvm.IRModule, target: tvm.target.Target, executor: str, seconds: dict[str, float], trace: Trace
) -> BuildResult:
    recorder = _KernelRecorder()
    instruments = [*(tvm.transform.PassContext.current().instruments or ()), recorder]
    compile_ = relay.vm.compile if executor == "vm" else relay.build
    config = _inherited()
    if executor == "vm":
        # Dynamic kernels bind floats that occur twice (bilinear weights) by let; TVM describes the variable
        # to the debugger in a way that LLVM from version 19 on rejects. LLVM finds these values itself.
        config.setdefault("tir.disable_cse_tir", True)
    start = time.perf_counter()
    with _quiet(), tvm.transform.PassContext(opt_level=3, config=config, instruments=instruments):
        try:
            lib = compile_(mod, target)
        except Exception as error:  # TVM raises its own errors and whatever its Python parts raise
            raise BuildError(f"TVM cannot build the model for {target}: {_last_line(error)}") from error
    seconds["build"] = time.perf_counter() - start
    assert recorder.count is not None, "no build goes without LabelOps"
    return BuildResult(lib, executor, target, mod, recorder.count, seconds, trace)


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1].strip()}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """AutoTVM offline, and without its warning for every operator that has no record."""
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # or records are downloaded, which fails offline for ARM
    silent, autotvm.GLOBAL_SCOPE.silent = autotvm.GLOBAL_SCOPE.silent, True
    try:
        yield
    finally:
        autotvm.GLOBAL_SCOPE.silent = silent


def _inherited() -> dict[str, Any]:
    """The caller's pass configuration, such as ``relay.backend.use_auto_scheduler``."""
    return dict(tvm.transform.PassContext.current().config.items())
