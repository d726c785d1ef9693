"""Loop nests of stages that stand at the root of a CPU kernel: parallel outside, vectors inside."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import tvm
from tvm import te, tir

from .stage_graph import Stage, extents, tensor_shape
from .vector_lane import is_linear_in_lanes

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


def _is_flat(op: te.ComputeOp, inlined: Collection[te.Operation]) -> bool:
    """True when one axis will do: every read, of inlined stages too, is at the stage's own indices or none.

    A tensor of another shape is read at other strides, so it is not flat even then.
    """
    shape = extents(op.axis)
    stack, entered = [op], {op}
    while stack:
        stage = stack.pop()
        axes = [a.var for a in stage.axis]
        for body in stage.body:
            loads, elsewhere = _loads_and_variables(body)
            if not elsewhere.isdisjoint(axes):
                return False
            for load in loads:
                indices = list(load.indices)
                if indices and not (_same(indices, axes) and tensor_shape(load.producer) == shape):
                    return False
                producer = load.producer.op
                if producer in inlined and producer not in entered:
                    entered.add(producer)
                    stack.append(producer)
    return True


def _same(indices: list[tir.PrimExpr], axes: list[tir.Var]) -> bool:
    return len(indices) == len(axes) and all(i.same_as(a) for i, a in zip(indices, axes, strict=True))


def _loads_and_variables(body: tir.PrimExpr) -> tuple[list[tir.ProducerLoad], set[tir.Var]]:
    """The loads of a body, and the variables that it uses outside their indices, in conditions and casts."""
    loads: list[tir.ProducerLoad] = []
    elsewhere: set[tir.Var] = set()

    def without_load(node: tir.PrimExpr) -> tir.PrimExpr | None:
        if isinstance(node, tir.ProducerLoad):
            loads.append(node)
            return tir.const(0, node.dtype)
        return None

    # The visitors know statements only.
    rest = tir.stmt_functor.ir_transform(tir.Evaluate(body), without_load, None, ["tir.ProducerLoad"])
    tir.stmt_functor.post_order_visit(
        rest, lambda node: elsewhere.add(node) if isinstance(node, tir.Var) else None
    )
    return loads, elsewhere


def schedule_injective_stage(
    schedule: te.Schedule, stage: Stage, inlined: Collection[te.Operation], lanes: int, work: float
) -> None:
    """An injective stage with a buffer: outer axes parallel, the innermost vectorised if indices allow it."""
    te_stage = schedule[stage.op]
    nest = loops(stage.op.axis)
    if not nest or any(extent == 0 for _, extent in nest):
        return
    if vector_split(nest[-1][1], lanes) == 1 and len(nest) > 1 and _is_flat(stage.op, inlined):
        nest = [(te_stage.fuse(*(axis for axis, _ in nest)), math.prod(extent for _, extent in nest))]
    axis, extent = nest[-1]
    length = vector_split(extent, lanes)
    flat = len(nest) < len(stage.op.axis)
    if length > 1 and not flat and not is_linear_in_lanes(stage.op, inlined, axis, length):
        length = 1
    if length == 1:
        parallelise(te_stage, nest[:-1] if len(nest) > 1 else nest, work)
        return
    outer, inner = te_stage.split(axis, factor=length)
    parallelise(te_stage, [*nest[:-1], (outer, extent // length)], work)
    te_stage.vectorize(inner)
