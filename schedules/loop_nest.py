"""Loop nests of stages that stand at the root of a CPU kernel: parallel outside, vectors inside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import tvm
from tvm import te, tir

from .stage_graph import Stage, extents

# Work, in additions, below which waking the thread pool costs more than it saves.
SERIAL_WORK = 16_000.0
# Parallel iterations beyond which further outer loops only add scheduling cost.
MAX_PARALLEL = 512


def vector_lanes(target: tvm.target.Target, dtype: str) -> int:
    """Elements of ``dtype`` in one vector register of the CPU target."""
    has = tvm.target.codegen.target_has_features
    bits = 512 if has("avx512f", target) else 256 if has("avx", target) else 128
    return max(1, bits // tvm.DataType(dtype).bits)


def vector_split(extent: int, lanes: int) -> int:
    """Largest useful vector length that divides ``extent``: up to two registers, 1 when there is none."""
    for length in (2 * lanes, lanes, lanes // 2):
        if length > 1 and extent % length == 0:
            return length
    return 1


Loop = tuple[tir.IterVar, int]  # a split or fused axis does not know its extent


def loops(axes: Iterable[tir.IterVar]) -> list[Loop]:
    """Root axes with their static extents."""
    axes = list(axes)
    return list(zip(axes, extents(axes), strict=True))


def parallelise(stage: te.Stage, nest: Sequence[Loop], work: float) -> tir.IterVar | None:
    """Fuse the leading loops of ``nest`` into one and run it in parallel if the stage's ``work`` is worth it.

    Returns
    -------
    The fused loop; None when there is no loop.
    """
    taken, count = [], 1
    for axis, extent in nest:
        if count >= MAX_PARALLEL:
            break
        taken.append(axis)
        count *= extent
    if not taken:
        return None
    fused = stage.fuse(*taken) if len(taken) > 1 else taken[0]
    if work > SERIAL_WORK and count > 1:
        stage.parallel(fused)
    return fused


def _is_flat(stage: Stage) -> bool:
    """True when every read is at the stage's own indices or at constants: all axes may become one."""
    axes = [a.var for a in stage.op.axis]
    flat = True

    def visit(node: tvm.runtime.Object) -> None:
        nonlocal flat
        if isinstance(node, tir.ProducerLoad):
            indices = list(node.indices)
            same = len(indices) == len(axes) and all(i.same_as(a) for i, a in zip(indices, axes, strict=True))
            flat = flat and (same or not indices)

    for body in stage.op.body:
        tir.stmt_functor.post_order_visit(body, visit)
    return flat


def schedule_injective_stage(schedule: te.Schedule, stage: Stage, lanes: int, work: float) -> None:
    """An injective stage with a buffer: outer axes parallel, the innermost vectorised."""
    te_stage = schedule[stage.op]
    nest = loops(stage.op.axis)
    if not nest or any(extent == 0 for _, extent in nest):
        return
    if vector_split(nest[-1][1], lanes) == 1 and len(nest) > 1 and _is_flat(stage):
        nest = [(te_stage.fuse(*(axis for axis, _ in nest)), math.prod(extent for _, extent in nest))]
    axis, extent = nest[-1]
    length = vector_split(extent, lanes)
    if length == 1:
        parallelise(te_stage, nest[:-1] if len(nest) > 1 else nest, work)
        return
    outer, inner = te_stage.split(axis, factor=length)
    parallelise(te_stage, [*nest[:-1], (outer, extent // length)], work)
    te_stage.vectorize(inner)
