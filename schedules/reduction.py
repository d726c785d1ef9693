"""Reductions at the root of a CPU kernel: accumulators in registers, vector lanes side by side."""

from __future__ import annotations

from tvm import te, tir

from .loop_nest import loops, parallelise, vector_split
from .stage_graph import Stage, extents


def reduction_lanes(stage: Stage, lanes: int) -> tuple[tir.IterVar, int] | None:
    """The axis of a reduction that becomes vector lanes, and how many; None for scalar code.

    It depends on the stage alone, not on what is inlined into it: the order in which numbers are added is
    then the same however the stage is grouped.
    """
    op = stage.op
    if op.num_outputs > 1 or 0 in extents([*op.axis, *op.reduce_axis]):
        return None
    contiguous = _contiguous_axis(stage)
    if contiguous == "data":
        axis = op.axis[-1]
    elif contiguous == "reduce" and _reassociates(op):
        axis = op.reduce_axis[-1]
    else:
        return None
    length = vector_split(extents([axis])[0], lanes)
    return (axis, length) if length > 1 else None


def schedule_reduction_stage(schedule: te.Schedule, stage: Stage, lanes: int, work: float) -> None:
    """Schedule a reduction.

    Along the innermost axis of what it reads, partial results are kept per vector lane (``rfactor``)
    and combined at the end; across it, a vector of outputs is accumulated in registers.
    """
    op = stage.op
    if 0 in extents([*op.axis, *op.reduce_axis]):
        return
    chosen = reduction_lanes(stage, lanes)
    if chosen is None:
        parallelise(schedule[op], loops(op.axis), work)
    elif chosen[0].iter_type == tir.IterVar.CommReduce:
        _along(schedule, stage, chosen[1], work)
    else:
        _across(schedule, stage, chosen[1], work)


def _contiguous_axis(stage: Stage) -> str:
    """Which kind of axis runs along the last index of the largest read: ``data``, ``reduce`` or neither."""
    data = {a.var for a in stage.op.axis}
    reduce = {a.var for a in stage.op.reduce_axis}
    kinds: set[str] = set()

    def visit(node: object) -> None:
        if isinstance(node, tir.ProducerLoad) and len(node.indices):
            last = node.indices[-1]
            kinds.add("data" if last in data else "reduce" if last in reduce else "neither")

    for body in stage.op.body:
        tir.stmt_functor.post_order_visit(body, visit)
    return kinds.pop() if len(kinds) == 1 else "neither"


def _reassociates(op: te.ComputeOp) -> bool:
    """True for one reducer over floats; lanes may then be combined in another order, as in NumPy."""
    body = op.body[0]
    return isinstance(body, tir.Reduce) and len(body.source) == 1 and "float" in body.source[0].dtype


def _across(schedule: te.Schedule, stage: Stage, length: int, work: float) -> None:
    target = stage.op.output(0)
    accumulator = schedule.cache_write(target, "local")
    te_stage = schedule[target]
    *outer, (last, extent) = loops(te_stage.op.axis)
    tile, lane = te_stage.split(last, factor=length)
    te_stage.vectorize(lane)
    parallelise(te_stage, [*outer, (tile, extent // length)], work)
    schedule[accumulator].compute_at(te_stage, te_stage.leaf_iter_vars[-2])
    inner = schedule[accumulator]
    inner.reorder(*inner.op.axis[:-1], *inner.op.reduce_axis, inner.op.axis[-1])
    inner.vectorize(inner.op.axis[-1])


def _along(schedule: te.Schedule, stage: Stage, length: int, work: float) -> None:
    op = stage.op
    _, lane = schedule[op].split(op.reduce_axis[-1], factor=length)
    partial = schedule.rfactor(op.output(0), lane, factor_axis=len(op.axis))
    te_stage = schedule[op]
    parallelise(te_stage, loops(te_stage.op.axis), work)
    inner = schedule[partial]
    if te_stage.op.axis:
        leaves = [v for v in te_stage.leaf_iter_vars if v.iter_type != tir.IterVar.CommReduce]
        inner.compute_at(te_stage, leaves[-1])
    inner.reorder(*inner.op.axis[:-1], *_reduce_leaves(inner), inner.op.axis[-1])
    inner.vectorize(inner.op.axis[-1])


def _reduce_leaves(te_stage: te.Stage) -> list[tir.IterVar]:
    return [v for v in te_stage.leaf_iter_vars if v.iter_type == tir.IterVar.CommReduce]
