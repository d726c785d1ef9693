"""Whether an axis may become vector lanes: no index arithmetic may turn into vectors of integers.

A lane that reaches an index through a division, a comparison or a cast, as reshapes, slices across
rows and padding make it, becomes a vector of integers. That is slow (gathers and scatters), and worse:
when such a vector occurs twice, TIR's common subexpression elimination binds it to a variable, for
which TVM's LLVM code generator writes debug information that LLVM rejects. So lanes are allowed only
where every index stays linear in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import tvm
from tvm import te, tir
from tvm.tir import stmt_functor

# How an expression depends on the lane; the larger wins where two meet.
_NOT, _LINEAR, _LOADED = range(3)

_CONSTANTS = (tir.IntImm, tir.FloatImm, tir.StringImm)


def is_linear_in_lanes(
    op: te.ComputeOp, inlined: Collection[te.Operation], axis: tir.IterVar, length: int
) -> bool:
    """True when all indices of a stage, inlined stages included, are linear in the lanes of one of its axes.

    Parameters
    ----------
    op
        A stage with a loop nest of its own.
    inlined
        The stages that are computed where they are read.
    axis
        An axis of ``op``, spatial or reduced, whose extent ``length`` divides.
    length
        Number of lanes.
    """
    lane, outer = tir.Var("lane", axis.var.dtype), tir.Var("outer", axis.var.dtype)
    analyzer = tvm.arith.Analyzer()
    for other in [*op.axis, *op.reduce_axis]:
        analyzer.bind(other.var, tvm.ir.Range.from_min_extent(other.dom.min, other.dom.extent))
    analyzer.bind(lane, tvm.ir.Range(0, length))
    analyzer.bind(outer, tvm.ir.Range(0, axis.dom.extent // length))
    bodies = _inlined_bodies(op, set(inlined), {axis.var: outer * length + lane}, analyzer)
    return all(_is_linear(body, lane) for body in bodies)


def _inlined_bodies(
    op: te.ComputeOp,
    inlined: set[te.Operation],
    values: dict[tir.Var, tir.PrimExpr],
    analyzer: tvm.arith.Analyzer,
) -> Iterator[tir.PrimExpr]:
    """Simplified bodies of ``op`` and of what is inlined into it, over the axes of ``op``."""
    stack = [(op, values)]
    entered: set[tuple[te.Operation, int]] = set()
    while stack:
        stage, values = stack.pop()
        for source in stage.body:
            loads: list[tir.ProducerLoad] = []
            for part in _parts(source):
                body = analyzer.simplify(stmt_functor.substitute(part, values))
                yield body
                loads += _loads(body)
            for load in loads:
                producer = load.producer.op
                key = producer, tvm.ir.structural_hash(load.indices, map_free_vars=False)
                if producer in inlined and key not in entered:
                    entered.add(key)
                    stack.append((producer, _values_of_axes(producer, load)))


def _values_of_axes(producer: te.ComputeOp, load: tir.ProducerLoad) -> dict[tir.Var, tir.PrimExpr]:
    """Indices of a load by the producer's axes, in their integer types: shapes may mix int32 and int64."""
    axes = [a.var for a in producer.axis]
    return {
        axis: index if index.dtype == axis.dtype else index.astype(axis.dtype)
        for axis, index in zip(axes, load.indices, strict=True)
    }


def _parts(body: tir.PrimExpr) -> list[tir.PrimExpr]:
    return [*body.source, body.condition] if isinstance(body, tir.Reduce) else [body]


def _loads(body: tir.PrimExpr) -> list[tir.ProducerLoad]:
    found: list[tir.ProducerLoad] = []
    stmt_functor.post_order_visit(
        body, lambda node: found.append(node) if isinstance(node, tir.ProducerLoad) else None
    )
    return found


def _is_linear(body: tir.PrimExpr, lane: tir.Var) -> bool:
    """False when a part that loads nothing depends on the lane otherwise than linearly."""
    kinds: dict[tvm.runtime.Object, int] = {}
    linear = True

    def visit(node: tvm.runtime.Object) -> None:
        nonlocal linear
        parts = [kinds.get(_key(p), _NOT) for p in _operands(node)]
        most = max(parts, default=_NOT)
        if isinstance(node, (tir.ProducerLoad, tir.Call)):
            most = _LOADED
        elif isinstance(node, tir.Var):
            most = _LINEAR if node.same_as(lane) else _NOT
        elif most == _LINEAR and not _keeps_linear(node, parts):
            linear = False
        kinds[_key(node)] = most

    stmt_functor.post_order_visit(body, visit)
    return linear


def _keeps_linear(node: tvm.runtime.Object, parts: list[int]) -> bool:
    if isinstance(node, tir.Mul):
        return _NOT in parts
    return isinstance(node, (tir.Add, tir.Sub))


def _operands(node: tvm.runtime.Object) -> list[tir.PrimExpr]:
    if isinstance(node, (tir.Var, *_CONSTANTS)):
        return []
    names = ("a", "b", "value", "condition", "true_value", "false_value")
    return [getattr(node, name) for name in names if hasattr(node, name)]


def _key(node: tvm.runtime.Object) -> int:
    return node.handle.value
