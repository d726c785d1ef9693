"""Blocks with a complex operator: its TOPI schedule, its tail at its tile, the rest at the root.

TOPI schedules take the tensor they end in as ``outs[0]`` and ignore further outputs. So the schedule
of the block's anchor (a convolution, a matmul, a pooling, a softmax) is built to end in the last
stage that keeps the anchor's shape, with the block's outputs as further ones; stages before and
after it are then scheduled like any others. Anchors keep their AutoTVM tasks and records.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from tvm import te
from tvm.relay.op.op import OpPattern
from tvm.topi import tag

from tvm_dnnfusion.block_lowering import LoweredBlock, LoweredOperator

from .default import schedule_stages
from .registry import block_schedule
from .stage_graph import Stage, extents, stage_graph, tensor_shape

_INLINE = 2  # AttachType::kInline of tvm/te/schedule.h
_ANCHOR_PATTERNS = (OpPattern.OUT_ELEMWISE_FUSABLE, OpPattern.OPAQUE)


def _is_anchor(operator: LoweredOperator) -> bool:
    if not all(isinstance(t.op, te.ComputeOp) for t in operator.outputs):
        return False
    pattern = operator.call.op.get_attr("TOpPattern")
    return pattern is None or pattern in _ANCHOR_PATTERNS


def find_anchor(block: LoweredBlock) -> LoweredOperator | None:
    """The complex operator of the block with most work, if there is one; it must have a single output."""
    anchors = [o for o in block.operators if _is_anchor(o) and len(o.outputs) == 1]
    return max(anchors, key=_work, default=None)


def _work(operator: LoweredOperator) -> int:
    """Most evaluations of a body among the operator's own stages."""
    return max(math.prod(extents([*op.axis, *op.reduce_axis])) for op in operator.stages() if _is_compute(op))


def _is_compute(op: te.Operation) -> bool:
    return isinstance(op, te.ComputeOp)


def tail_of(
    anchor: te.Tensor, stages: dict[te.Operation, Stage], outputs: Collection[te.Operation]
) -> list[te.Operation]:
    """Injective stages after the anchor that keep its shape and end in one value; in order, anchor left out.

    All of them but the last are read only by one another, so they can live at the anchor's tile.
    """
    shape = tensor_shape(anchor)
    region = {anchor.op: None}
    best: list[te.Operation] = []
    if anchor.op in outputs:
        return best
    for op, stage in stages.items():
        if op in region or not any(p in region for p in stage.reads):
            continue
        if not _keeps_shape(op, shape):
            continue
        region[op] = None
        if _closed(region, op, stages, outputs):
            best = list(region)[1:]
        if op in outputs:
            break
    return best


def _keeps_shape(op: te.Operation, shape: list[int]) -> bool:
    return (
        isinstance(op, te.ComputeOp)
        and op.num_outputs == 1
        and tag.is_injective(op.tag)
        and tensor_shape(op.output(0)) == shape
    )


def _closed(
    region: dict[te.Operation, None],
    last: te.Operation,
    stages: dict[te.Operation, Stage],
    outputs: Collection[te.Operation],
) -> bool:
    inside = [op for op in region if op is not last]
    return all(op not in outputs and all(c.op in region for c in stages[op].consumers) for op in inside)


def side_inputs(
    tail: list[te.Operation], anchor: te.Operation, stages: dict[te.Operation, Stage]
) -> set[te.Operation]:
    """Injective stages that the tail reads besides the anchor, directly or through one another."""
    inside = {anchor, *tail}
    found: set[te.Operation] = set()
    stack = [p for op in tail for p in stages[op].reads if p not in inside]
    while stack:
        op = stack.pop()
        if op in found or op not in stages or not tag.is_injective(op.tag):
            continue
        found.add(op)
        stack.extend(stages[op].reads)
    return found


@block_schedule("topi_anchor", targets=("llvm", "cpu"), priority=10)
def topi_anchor(block: LoweredBlock) -> te.Schedule | None:
    """The anchor's TOPI schedule with its tail; prologue and later stages at the root of the kernel."""
    anchor = find_anchor(block)
    if anchor is None or anchor.implementation is None:
        return None
    stages = stage_graph(block.outputs)
    outputs = {t.op for t in block.outputs}
    tail = tail_of(anchor.outputs[0], stages, outputs)
    side = side_inputs(tail, anchor.outputs[0].op, stages)
    if any(not read_only_by(op, {*tail, *side}, stages, outputs) for op in side):
        tail, side = [], set()
    end = tail[-1].output(0) if tail else anchor.outputs[0]
    outs = [end, *(t for t in block.outputs if t.op != end.op)]
    schedule = anchor.implementation.schedule(anchor.call.attrs, outs, block.target)
    pinned = {*anchor.stages(), *tail, *side}
    pinned |= _take_back(schedule, stages, pinned)
    schedule_stages(schedule, block.outputs, pinned, block.target)
    return schedule


def _take_back(
    schedule: te.Schedule, stages: dict[te.Operation, Stage], pinned: Collection[te.Operation]
) -> set[te.Operation]:
    """Undo TOPI's inlining of what the anchor reads; returns the stages before it that TOPI gave loops.

    TOPI takes an operand that is computed for its own padding: inlined into a pooling or a
    convolution, it would be evaluated once per window.
    """
    scheduled = set()
    for op in stages:
        if op in pinned or not isinstance(op, te.ComputeOp):
            continue
        if schedule[op].attach_type == _INLINE:
            schedule[op].compute_root()
        elif len(schedule[op].relations):
            scheduled.add(op)
    return scheduled


def read_only_by(
    op: te.Operation,
    inside: set[te.Operation],
    stages: dict[te.Operation, Stage],
    outputs: Collection[te.Operation],
) -> bool:
    """True when nothing but the stages ``inside`` reads ``op``."""
    return op not in outputs and all(c.op in inside for c in stages[op].consumers)
