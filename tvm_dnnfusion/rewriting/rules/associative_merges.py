"""Two operators that are one: reductions over several axes, nested concatenations, products of matrices."""

from __future__ import annotations

from ..calculations import clip_high, clip_low, merged_axes, same_keepdims
from ..language import (
    A,
    B,
    C,
    K,
    N,
    P,
    Q,
    S,
    T,
    V,
    W,
    X,
    batch_matmul,
    clip,
    concatenate,
    dense,
    matmul,
    relu,
)
from ..matching import Match
from ..pattern import OperatorVariable
from ..rule import Probe, Property, rule

summing = OperatorVariable("reduce", frozenset({"sum", "prod", "mean"}))
selecting = OperatorVariable("reduce", frozenset({"max", "min", "all", "any"}))
_NESTED = [
    dict(A=(4, 3, 5, 2), P=(1,), K=False, Q=(0, 2), N=False),
    dict(A=(4, 3, 5), P=(2,), K=True, Q=(0, 2), N=True),
]
_MIXED = [(dict(A=(4, 3, 5), reduce="sum", P=(2,), K=True, Q=(0,), N=False), "keeps its axes")]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MergeSums:
    """One sum, product or mean over all axes for two over some; all parts of a mean are of one size."""

    lhs = summing(summing(A, axes=P, keepdims=K), axes=Q, keepdims=N)
    rhs = summing(A, axes=merged_axes(P, K, Q, A), keepdims=same_keepdims(K, N))
    fires = _NESTED
    refuses = _MIXED


@rule(Property.ASSOCIATIVE, numerics="finite_only")
class MergeSelections:
    """One maximum, minimum, all or any over all axes for two over some; NaN in other places stays or goes."""

    lhs = selecting(selecting(A, axes=P, keepdims=K), axes=Q, keepdims=N)
    rhs = selecting(A, axes=merged_axes(P, K, Q, A), keepdims=same_keepdims(K, N))
    fires = _NESTED
    refuses = [({**probe, "reduce": "max"}, reason) for probe, reason in _MIXED]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="exact")
class FlattenLeadingConcatenation:
    """One concatenation for two along the same axis."""

    lhs = concatenate(concatenate(A, B, axis=K), C, axis=K)
    rhs = concatenate(A, B, C, axis=K)
    fires = [dict(A=(4, 3), B=(4, 2), C=(4, 5), K=1)]


@rule(Property.ASSOCIATIVE, numerics="exact")
class FlattenTrailingConcatenation:
    """One concatenation for two along the same axis, the inner one last."""

    lhs = concatenate(A, concatenate(B, C, axis=K), axis=K)
    rhs = concatenate(A, B, C, axis=K)
    fires = [dict(A=(2, 4), B=(3, 4), C=(5, 4), K=0)]


@rule(Property.ASSOCIATIVE, numerics="exact")
class MergeClips:
    """One clip to both ranges for two."""

    lhs = clip(clip(A, a_min=P, a_max=Q), a_min=S, a_max=T)
    rhs = clip(A, a_min=clip_low(P, S, T), a_max=clip_high(P, Q, S, T))
    fires = [dict(A=(8, 16), P=-1.0, Q=0.75, S=0.0, T=6.0)]
    refuses = [(dict(A=(8, 16), P=-1.0, Q=0.75, S=3.0, T=2.0), "wrong order")]


@rule(Property.ASSOCIATIVE, numerics="finite_only")
class ClipInsteadOfReluAndClip:
    """A clip from 0 upwards needs no relu before it; beside NaN it does."""

    lhs, rhs = clip(relu(A), a_min=P, a_max=Q), clip(A, a_min=P, a_max=Q)
    fires = [dict(A=(8, 16), P=0.0, Q=6.0)]
    refuses = [(dict(A=(8, 16), P=-1.0, Q=6.0), "negative")]
    integers = True

    @staticmethod
    def why_not(m: Match) -> str | None:
        low, high = m.attribute(P), m.attribute(Q)
        return None if 0 <= low <= high else f"the range from {low} to {high} has negative numbers"


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MergeDenseLayers:
    """One dense layer for two in a row, if that is less work; weights are multiplied once and for all."""

    lhs, rhs = dense(dense(X, W), V), dense(X, matmul(V, W, transpose_a=False, transpose_b=False))
    fires = [dict(X=(32, 8), W=Probe((16, 8), constant=True), V=Probe((4, 16), constant=True))]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SplitDenseWeights:
    """Few rows go through two factors of the weights one after the other."""

    lhs, rhs = dense(X, matmul(V, W, transpose_a=False, transpose_b=False)), dense(dense(X, W), V)
    fires = [dict(X=(2, 32), W=(4, 32), V=(32, 4))]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplyRightMatricesFirst:
    """(A B) C as A (B C), if that is less work."""

    lhs = matmul(matmul(A, B, transpose_a=False, transpose_b=False), C, transpose_a=False, transpose_b=False)
    rhs = matmul(A, matmul(B, C, transpose_a=False, transpose_b=False), transpose_a=False, transpose_b=False)
    fires = [dict(A=(32, 8), B=(8, 16), C=(16, 4))]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplyLeftMatricesFirst:
    """A (B C) as (A B) C, if that is less work."""

    lhs = matmul(A, matmul(B, C, transpose_a=False, transpose_b=False), transpose_a=False, transpose_b=False)
    rhs = matmul(matmul(A, B, transpose_a=False, transpose_b=False), C, transpose_a=False, transpose_b=False)
    fires = [dict(A=(2, 32), B=(32, 4), C=(4, 32))]
    integers = True


_PLAIN = dict(transpose_a=False, transpose_b=False)


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplyRightBatchesFirst:
    """(A B) C as A (B C) for batches of matrices: linear attention."""

    lhs, rhs = (
        batch_matmul(batch_matmul(A, B, **_PLAIN), C, **_PLAIN),
        batch_matmul(A, batch_matmul(B, C, **_PLAIN), **_PLAIN),
    )
    fires = [dict(A=(3, 32, 8), B=(3, 8, 32), C=(3, 32, 8))]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplyLeftBatchesFirst:
    """A (B C) as (A B) C for batches of matrices."""

    lhs, rhs = (
        batch_matmul(A, batch_matmul(B, C, **_PLAIN), **_PLAIN),
        batch_matmul(batch_matmul(A, B, **_PLAIN), C, **_PLAIN),
    )
    fires = [dict(A=(3, 8, 32), B=(3, 32, 8), C=(3, 8, 32))]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplyTransposedKeysFirst:
    """(A B^T) C as A (B^T C), attention without softmax: linear in the number of rows."""

    lhs = batch_matmul(batch_matmul(A, B, transpose_a=False, transpose_b=True), C, **_PLAIN)
    rhs = batch_matmul(A, batch_matmul(B, C, transpose_a=True, transpose_b=False), **_PLAIN)
    fires = [dict(A=(3, 32, 8), B=(3, 32, 8), C=(3, 32, 8))]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplyTransposedValuesFirst:
    """(A B^T) C^T as A (C B)^T: the same with both right factors transposed."""

    lhs = batch_matmul(
        batch_matmul(A, B, transpose_a=False, transpose_b=True), C, transpose_a=False, transpose_b=True
    )
    rhs = batch_matmul(A, batch_matmul(C, B, **_PLAIN), transpose_a=False, transpose_b=True)
    fires = [dict(A=(3, 32, 8), B=(3, 32, 8), C=(3, 8, 32))]
    integers = True
