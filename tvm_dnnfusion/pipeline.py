"""The one order of phases: canonicalise, rewrite, layout, plan and realise, seal."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

import tvm
from tvm import relay

from .block_operator import MAX_BLOCK_INPUTS
from .config import Options
from .fusion_legality import Limits
from .passes.alter_layout import AlterLayout
from .passes.canonicalize import Canonicalize
from .passes.fuse_by_mapping_type import FuseByMappingType, PlannedFunction
from .passes.rewrite_properties import RewriteProperties, RewritingLog
from .passes.seal_blocks import SealBlocks
from .profitability import Profitability, StaticProfitability
from .schedules.registry import anchors_for, has_fallback

logger = logging.getLogger("tvm_dnnfusion")

Phase = tuple[str, tvm.transform.Pass]


@dataclass
class Trace:
    """What one run of the pipeline did.

    Attributes
    ----------
    seconds
        Per phase.
    plans
        One per function.
    rewriting
        Rules that fired, and those that were refused.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    plans: list[PlannedFunction] = field(default_factory=list)
    rewriting: RewritingLog = field(default_factory=RewritingLog)

    def log_rewriting(self, log: RewritingLog) -> None:
        """Keep what the rewriting phase did."""
        self.rewriting = log


def limits_of(target: tvm.target.Target, options: Options) -> Limits:
    """Bounds of a group on ``target``: its ``max_function_args`` or 128, and the options'."""
    declared = int(target.attrs.get("max_function_args", 0)) or MAX_BLOCK_INPUTS
    arguments = min(options.max_arguments or declared, declared, MAX_BLOCK_INPUTS)
    return Limits(max_arguments=arguments, max_operators=options.max_operators)


def profitability_of(target: tvm.target.Target, options: Options) -> Profitability:
    """The model that decides yellow cells."""
    if options.profitability == "static" or options.database is None:
        return StaticProfitability()
    from .measure import measured_profitability  # building and timing are needed only here

    return measured_profitability(target, options.database)


def phases(target: tvm.target.Target, options: Options, trace: Trace) -> list[Phase]:
    """Named phases in order.

    Operators are grouped only for targets on which every group can be scheduled; for others stock FuseOps
    groups them when the module is built.
    """
    chosen: list[Phase] = [("canonicalise", Canonicalize())]
    if options.rewrite:
        rewrite = RewriteProperties(options.numerics, on_log=trace.log_rewriting)
        chosen.append(("rewrite", rewrite))
    if options.alter_layout:
        chosen.append(("layout", AlterLayout(target, typed=True)))
    if not has_fallback(target):
        logger.warning(
            "no block schedule covers target kind %s: operators are left to TVM's own FuseOps; "
            "register a fallback with @block_schedule(name, targets=[%r], priority=0)",
            target.kind.name,
            target.kind.name,
        )
        return chosen
    fuse = FuseByMappingType(
        limits=limits_of(target, options),
        profitability=profitability_of(target, options),
        join_bytes=options.join_bytes,
        alone=anchors_for(target),
        verify=options.verify,
        on_plan=trace.plans.append,
        typed=True,
        infer_types=False,
    )
    return [*chosen, ("plan", fuse), ("seal", SealBlocks())]


def run_pipeline(
    mod: tvm.IRModule, target: tvm.target.Target, options: Options
) -> tuple[tvm.IRModule, Trace]:
    """Run every phase on a module whose parameters are bound.

    Returns
    -------
    mod
        Groups, and operators that a schedule is written for, as block operators; types inferred.
    trace
        Seconds per phase and plans.
    """
    trace = Trace()
    types = _result_types(mod) if options.verify else {}
    _dump(mod, options.dump, 0, "input")
    for number, (name, phase) in enumerate(phases(target, options, trace), start=1):
        start = time.perf_counter()
        mod = phase(mod)
        trace.seconds[name] = time.perf_counter() - start
        _dump(mod, options.dump, number, name)
        if options.verify:
            _verify(mod, types, name)
    return mod, trace


def _result_types(mod: tvm.IRModule) -> dict[str, relay.Type]:
    typed = relay.transform.InferType()(mod)
    return {
        var.name_hint: f.checked_type.ret_type
        for var, f in typed.functions.items()
        if isinstance(f, relay.Function)
    }


def _verify(mod: tvm.IRModule, types: dict[str, relay.Type], phase: str) -> None:
    """Our own bugs stop here: every phase keeps result types and leaves no free variable."""
    for name, found in _result_types(mod).items():
        assert name not in types or tvm.ir.structural_equal(found, types[name]), (
            f"phase {phase} changed the type of @{name} from {types[name]} to {found}"
        )
    for var, function in mod.functions.items():
        if isinstance(function, relay.Function):
            free = relay.analysis.free_vars(function)
            assert not len(free), f"phase {phase} left free variables in @{var.name_hint}: {free}"


def _dump(mod: tvm.IRModule, folder: Path | None, number: int, name: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}-{name}.relay").write_text(mod.astext(show_meta_data=False), encoding="utf-8")
