"""Transpositions and other operators in either order, so that they meet, cancel, and fuse."""

from __future__ import annotations

from ..calculations import (
    aligned,
    flipped,
    inverse,
    mapped_axes,
    permuted,
    picked,
    remaining_order,
    reordered,
    transposed_reshape,
    vector_indices,
)
from ..language import (
    A,
    B,
    I,
    K,
    M,
    N,
    P,
    Q,
    S,
    T,
    V,
    W,
    X,
    batch_matmul,
    broadcast_to,
    c,
    concatenate,
    dense,
    f,
    g,
    matmul,
    pad,
    reshape,
    softmax,
    strided_slice,
    take,
    transpose,
    where,
)
from ..matching import Match
from ..pattern import Each, OperatorVariable
from ..rule import Enables, Probe, Property, rule

_CUBE, _TURN = (4, 3, 5), (2, 0, 1)
_ONE = [dict(A=_CUBE, P=_TURN)]
_SWAP = (0, 2, 1)
selecting = OperatorVariable("reduce", frozenset({"max", "min", "all", "any"}))
summing = OperatorVariable("reduce", frozenset({"sum", "prod", "mean"}))


@rule(Property.COMMUTATIVE, numerics="exact")
class TransposeAfterUnary:
    """A transposition waits for an element-wise operator, to meet another one behind it."""

    lhs, rhs = f(transpose(A, axes=P)), transpose(f(A), axes=P)
    fires = _ONE
    enables = Enables(transpose(f(transpose(A, axes=(2, 0, 1))), axes=(1, 2, 0)), dict(A=_CUBE, f="tanh"))


@rule(Property.COMMUTATIVE, numerics="exact")
class TransposeResultOnce:
    """One transposition behind an element-wise operator for one of each operand."""

    lhs, rhs = g(transpose(A, axes=P), transpose(B, axes=P)), transpose(g(A, B), axes=P)
    fires = [dict(A=_CUBE, B=_CUBE, P=_TURN), dict(A=_CUBE, B=(1, 3, 1), P=_TURN)]


@rule(Property.COMMUTATIVE, numerics="exact")
class TransposeAfterConstant:
    """A transposition waits for an operator with a constant, which is transposed once and for all."""

    lhs = g(transpose(A, axes=P), c)
    rhs = transpose(g(A, transpose(reshape(c, shape=aligned(c, P)), axes=inverse(P))), axes=P)
    fires = [
        dict(A=_CUBE, c=(3,), P=_TURN),
        dict(A=_CUBE, c=(), P=_TURN),
        dict(A=_CUBE, c=(1, 4, 1), P=_TURN),
    ]
    enables = Enables(
        transpose(g(transpose(A, axes=(2, 0, 1)), c), axes=(1, 2, 0)), dict(A=_CUBE, c=(3,), g="add")
    )


@rule(Property.COMMUTATIVE, numerics="exact")
class TransposeAfterLeftConstant:
    """The same with the constant on the left."""

    lhs = g(c, transpose(A, axes=P))
    rhs = transpose(g(transpose(reshape(c, shape=aligned(c, P)), axes=inverse(P)), A), axes=P)
    fires = [dict(A=_CUBE, c=(3,), P=_TURN)]
    enables = Enables(
        transpose(g(c, transpose(A, axes=(2, 0, 1))), axes=(1, 2, 0)), dict(A=_CUBE, c=(3,), g="subtract")
    )


@rule(Property.COMMUTATIVE, numerics="exact")
class TransposeChoiceOnce:
    """One transposition behind a choice for one of each operand."""

    lhs = where(transpose(M, axes=P), transpose(A, axes=P), transpose(B, axes=P))
    rhs = transpose(where(M, A, B), axes=P)
    fires = [dict(M=Probe(_CUBE, "bool"), A=_CUBE, B=_CUBE, P=_TURN)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class ReduceBeforeTranspose:
    """A sum, product or mean is smaller to transpose than its operand; the order of additions changes."""

    lhs = summing(transpose(A, axes=P), axes=Q, keepdims=K)
    rhs = transpose(summing(A, axes=mapped_axes(Q, P), keepdims=K), axes=remaining_order(P, Q, K))
    fires = [dict(A=_CUBE, P=_TURN, Q=(1,), K=False), dict(A=_CUBE, P=_TURN, Q=(0, 2), K=True)]


@rule(Property.COMMUTATIVE, numerics="finite_only")
class SelectBeforeTranspose:
    """The same for maximum, minimum, all and any, where the order matters beside NaN only."""

    lhs = selecting(transpose(A, axes=P), axes=Q, keepdims=K)
    rhs = transpose(selecting(A, axes=mapped_axes(Q, P), keepdims=K), axes=remaining_order(P, Q, K))
    fires = [dict(A=_CUBE, P=_TURN, Q=(1,), K=False)]
    integers = True


@rule(Property.COMMUTATIVE, numerics="exact")
class TransposeAfterSoftmax:
    """A transposition waits for a softmax along the same elements."""

    lhs, rhs = softmax(transpose(A, axes=P), axis=K), transpose(softmax(A, axis=picked(P, K)), axes=P)
    fires = [dict(A=_CUBE, P=_TURN, K=0)]
    enables = Enables(transpose(softmax(transpose(A, axes=(2, 0, 1)), axis=1), axes=(1, 2, 0)), dict(A=_CUBE))


@rule(Property.COMMUTATIVE, numerics="exact")
class TransposeConcatenationOnce:
    """One transposition of a concatenation for one of each part."""

    lhs = concatenate(Each(transpose(A, axes=P)), axis=K)
    rhs = transpose(concatenate(Each(A), axis=picked(P, K)), axes=P)
    fires = [dict(A=[(4, 3, 5), (4, 3, 2), (4, 3, 1)], P=_TURN, K=0)]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceBeforeTranspose:
    """Only what is kept is transposed."""

    lhs = strided_slice(transpose(A, axes=P), begin=S, end=T, strides=N)
    rhs = transpose(
        strided_slice(A, begin=permuted(S, P), end=permuted(T, P), strides=permuted(N, P)), axes=P
    )
    fires = [dict(A=(8, 6, 4), P=_TURN, S=(0, 1, 2), T=(4, 7, 6), N=(1, 2, 1))]


@rule(Property.COMMUTATIVE, numerics="exact")
class PadAfterTranspose:
    """What is padded is larger than what was transposed."""

    lhs, rhs = (
        transpose(pad(A, V, pad_width=S), axes=P),
        pad(transpose(A, axes=P), V, pad_width=reordered(S, P)),
    )
    fires = [dict(A=_CUBE, V=(), P=_TURN, S=((1, 0), (0, 2), (1, 1)))]


@rule(Property.COMMUTATIVE, numerics="exact")
class TakeBeforeTranspose:
    """Only what is taken is transposed."""

    lhs = take(transpose(A, axes=P), I, axis=K)
    rhs = transpose(take(A, I, axis=picked(P, K)), axes=vector_indices(P, I))
    fires = [dict(A=(8, 6, 4), P=_TURN, K=1, I=Probe((3,), "int64", below=8))]
    refuses = [(dict(A=(8, 6, 4), P=_TURN, K=1, I=Probe((2, 2), "int64", below=8)), "vector")]


@rule(Property.COMMUTATIVE, numerics="exact")
class BroadcastAfterTranspose:
    """A small tensor is transposed before it is repeated."""

    lhs = transpose(broadcast_to(A, shape=S), axes=P)
    rhs = broadcast_to(transpose(reshape(A, shape=aligned(A, P)), axes=P), shape=reordered(S, P))
    fires = [dict(A=(3, 1), S=(4, 3, 5), P=_TURN)]


@rule(Property.COMMUTATIVE, numerics="exact")
class TransposeBeforeReshape:
    """A transposition of whole groups of axes, before a reshape merges them."""

    lhs = transpose(reshape(A, shape=S), axes=P)
    rhs = reshape(transpose(A, axes=transposed_reshape(A, S, P)), shape=reordered(S, P))
    fires = [dict(A=(1, 12, 6, 8), S=(12, 6, 8), P=_SWAP), dict(A=(2, 3, 4, 5), S=(6, 20), P=(1, 0))]
    refuses = [(dict(A=(6, 20), S=(2, 3, 20), P=_TURN), "splits")]
    enables = Enables(
        transpose(reshape(transpose(A, axes=(0, 2, 3, 1)), shape=(12, 6, 8)), axes=_SWAP),
        dict(A=(1, 8, 12, 6)),
    )


@rule(Property.COMMUTATIVE, numerics="reassociates")
class AbsorbLeftTranspose:
    """A product of matrices reads its left operand transposed."""

    lhs = batch_matmul(transpose(A, axes=(0, 2, 1)), B, transpose_a=N, transpose_b=T)
    rhs = batch_matmul(A, B, transpose_a=flipped(N), transpose_b=T)
    integers = True
    fires = [dict(A=(2, 8, 6), B=(2, 8, 5), N=False, T=False)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class AbsorbRightTranspose:
    """A product of matrices reads its right operand transposed."""

    lhs = batch_matmul(A, transpose(B, axes=(0, 2, 1)), transpose_a=N, transpose_b=T)
    rhs = batch_matmul(A, B, transpose_a=N, transpose_b=flipped(T))
    integers = True
    fires = [dict(A=(2, 6, 8), B=(2, 8, 5), N=False, T=True)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class AbsorbLeftMatrixTranspose:
    """A product of two matrices reads its left operand transposed."""

    lhs = matmul(transpose(A, axes=(1, 0)), B, transpose_a=N, transpose_b=T)
    rhs = matmul(A, B, transpose_a=flipped(N), transpose_b=T)
    integers = True
    fires = [dict(A=(8, 6), B=(8, 5), N=False, T=False)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class AbsorbRightMatrixTranspose:
    """A product of two matrices reads its right operand transposed."""

    lhs = matmul(A, transpose(B, axes=(1, 0)), transpose_a=N, transpose_b=T)
    rhs = matmul(A, B, transpose_a=N, transpose_b=flipped(T))
    integers = True
    fires = [dict(A=(6, 8), B=(5, 8), N=False, T=False)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class AbsorbDenseTranspose:
    """A dense layer with transposed weights is a product of matrices."""

    lhs, rhs = dense(X, transpose(W, axes=(1, 0))), matmul(X, W, transpose_a=False, transpose_b=False)
    integers = True
    fires = [dict(X=(6, 8), W=(8, 5))]

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if len(m.shape(X)) == 2 else "data that are no matrix"


@rule(Property.COMMUTATIVE, numerics="reassociates")
class TransposeProductByOperands:
    """The transposed products of matrices are those of the transposed operands in the other order."""

    lhs = transpose(batch_matmul(A, B, transpose_a=N, transpose_b=T), axes=(0, 2, 1))
    rhs = batch_matmul(B, A, transpose_a=flipped(T), transpose_b=flipped(N))
    integers = True
    fires = [dict(A=(2, 6, 8), B=(2, 8, 5), N=False, T=False)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class TransposeMatrixByOperands:
    """The transposed product of two matrices is that of the transposed operands in the other order."""

    lhs = transpose(matmul(A, B, transpose_a=N, transpose_b=T), axes=(1, 0))
    rhs = matmul(B, A, transpose_a=flipped(T), transpose_b=flipped(N))
    integers = True
    fires = [dict(A=(6, 8), B=(8, 5), N=False, T=False)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class TransposeDenseByOperands:
    """The transposed result of a dense layer is that of its weights on its data."""

    lhs, rhs = transpose(dense(X, W), axes=(1, 0)), dense(W, X)
    integers = True
    fires = [dict(X=(6, 8), W=(5, 8))]
