"""The schedule that claims whatever no other does: correct for any block of static shapes."""

from __future__ import annotations

from collections.abc import Collection

import tvm
from tvm import te

from tvm_dnnfusion.block_lowering import LoweredBlock

from .inlining import choose_inlined
from .loop_nest import schedule_injective_stage, vector_lanes
from .reduction import reduction_lanes, schedule_reduction_stage
from .registry import block_schedule
from .stage_graph import Stage, stage_graph
from .vector_lane import is_linear_in_lanes


def schedule_stages(
    schedule: te.Schedule,
    outputs: Collection[te.Tensor],
    pinned: Collection[te.Operation],
    target: tvm.target.Target,
) -> None:
    """Schedule every stage that is not ``pinned``: inline it, or give it a loop nest at the root.

    Parameters
    ----------
    schedule
        Over all of ``outputs``.
    outputs
        Tensors that the kernel returns.
    pinned
        Operations that are scheduled already; what they read keeps its buffer.
    target
        A CPU.
    """
    stages = stage_graph(outputs)
    lanes = {op: vector_lanes(target, op.output(0).dtype) for op in stages}
    inlined = choose_inlined(stages, pinned, {t.op for t in outputs})
    gone = _keep_lanes_linear(stages, inlined, pinned, lanes)
    work = _work(stages, gone)
    for op in (op for op in inlined if op in gone):
        schedule[op].compute_inline()
    for op, stage in stages.items():
        if op in pinned or op in gone or not stage.is_compute:
            continue
        if stage.is_reduction:
            schedule_reduction_stage(schedule, stage, lanes[op], work[op])
        else:
            schedule_injective_stage(schedule, stage, gone, lanes[op], work[op])


def _keep_lanes_linear(
    stages: dict[te.Operation, Stage],
    inlined: Collection[te.Operation],
    pinned: Collection[te.Operation],
    lanes: dict[te.Operation, int],
) -> set[te.Operation]:
    """What of ``inlined`` stays so: what would cost a reduction its vector lanes gets a buffer."""
    gone = set(inlined)
    for op, stage in stages.items():
        if op in pinned or not stage.is_reduction:
            continue
        chosen = reduction_lanes(stage, lanes[op])
        if chosen is not None and not is_linear_in_lanes(op, gone, *chosen):
            gone.difference_update(stage.reads)
    return gone


def _work(stages: dict[te.Operation, Stage], gone: Collection[te.Operation]) -> dict[te.Operation, float]:
    """Arithmetic and reads of each stage with a buffer, in additions, what is inlined into it included."""
    cost: dict[te.Operation, float] = {}
    for op, stage in stages.items():
        cost[op] = 1.0 + stage.cost + sum(cost[p] * n for p, n in stage.reads.items() if p in gone)
    return {op: cost[op] * stage.evaluations for op, stage in stages.items()}


@block_schedule("default", targets=("llvm", "cpu"), priority=0)
def default_schedule(block: LoweredBlock) -> te.Schedule:
    """Every stage inlined or at the root, parallel and vectorised; no stage is recomputed without bound."""
    schedule = te.create_schedule([t.op for t in block.outputs])
    schedule_stages(schedule, block.outputs, (), block.target)
    return schedule
