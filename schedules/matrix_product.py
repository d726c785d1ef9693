"""Matrix products in TE: which operand is which, and along which axis their elements lie side by side."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te, tir

from .stage_graph import extents

PACKED, PLAIN, TRANSPOSED = "packed", "plain", "transposed"


@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """A stage ``C[..., i, j] = sum_k A[..., i, k] * B[..., k, j]``, whichever way the operands lie.

    Attributes
    ----------
    op
        The stage.
    right
        The right operand ``B``.
    batch, rows, columns, depth
        Extents: of all leading axes together, of ``i``, of ``j`` and of ``k``.
    layout
        Of the right operand: ``packed`` is ``[j / panel][k][j % panel]``, ``plain`` is ``[..., k, j]`` and
        ``transposed`` is ``[..., j, k]``.
    panel
        Columns in a panel; None unless packed.
    """

    op: te.ComputeOp
    right: te.Tensor
    batch: int
    rows: int
    columns: int
    depth: int
    layout: str
    panel: int | None


def match_product(op: te.Operation) -> MatrixProduct | None:
    """The matrix product that a stage computes; None if it is something else."""
    loads = _factors(op)
    if loads is None or len(op.axis) < 2:
        return None
    i, j = (axis.var for axis in op.axis[-2:])
    k = op.reduce_axis[0].var
    right = next((load for load in loads if not _uses(load, i)), None)
    left = next((load for load in loads if load is not right and not _uses(load, j)), None)
    if left is None or right is None or not _ends_in(left, (i, k), (k, i)):
        return None
    layout, panel = _layout(right, j, k)
    if not layout:
        return None
    *batch, rows, columns = extents(op.axis)
    (depth,) = extents(op.reduce_axis)
    leading = 1
    for extent in batch:
        leading *= extent
    return MatrixProduct(op, right.producer, leading, rows, columns, depth, layout, panel)


def _factors(op: te.Operation) -> list[tir.ProducerLoad] | None:
    """Both loads of a sum of products of one element type over one axis."""
    if not isinstance(op, te.ComputeOp) or op.num_outputs != 1 or len(op.reduce_axis) != 1:
        return None
    body = op.body[0]
    if not isinstance(body, tir.Reduce) or len(body.source) != 1:
        return None
    combiner, product = body.combiner.result[0], body.source[0]
    if not isinstance(combiner, tir.Add) or not isinstance(product, tir.Mul) or len(body.init):
        return None
    loads = [product.a, product.b]
    return loads if all(isinstance(load, tir.ProducerLoad) for load in loads) else None


def _uses(load: tir.ProducerLoad, var: tir.Var) -> bool:
    return any(var in tir.analysis.undefined_vars(index) for index in load.indices)


def _ends_in(load: tir.ProducerLoad, *pairs: tuple[tir.Var, tir.Var]) -> bool:
    last = list(load.indices)[-2:]
    return any(len(last) == 2 and all(a.same_as(b) for a, b in zip(last, p, strict=True)) for p in pairs)


def _layout(right: tir.ProducerLoad, j: tir.Var, k: tir.Var) -> tuple[str, int | None]:
    if _ends_in(right, (k, j)):
        return PLAIN, None
    if _ends_in(right, (j, k)):
        return TRANSPOSED, None
    if len(right.indices) == 3:
        outer, middle, inner = right.indices
        if isinstance(outer, tir.FloorDiv) and isinstance(inner, tir.FloorMod) and middle.same_as(k):
            panel = int(right.producer.shape[2])
            same = outer.a.same_as(j) and inner.a.same_as(j) and int(outer.b) == int(inner.b) == panel
            return (PACKED, panel) if same else ("", None)
    return "", None
