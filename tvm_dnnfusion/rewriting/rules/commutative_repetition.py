"""Padding, gathering and broadcasting behind what computes: what is repeated is computed once."""

from __future__ import annotations

from ..calculations import (
    axis_after_reduction,
    axis_before_take,
    inside,
    only_padded,
    padded_convolution,
    repeats,
    softmax_axis,
    without_axes,
)
from ..language import (
    A,
    B,
    C,
    D,
    I,
    K,
    M,
    N,
    P,
    S,
    T,
    W,
    X,
    broadcast_to,
    conv,
    dense,
    f,
    g,
    matmul,
    mean,
    pad,
    reduce,
    softmax,
    strided_slice,
    take,
    total,
    where,
)
from ..matching import Match
from ..pattern import OperatorVariable
from ..rule import Probe, Property, rule

_CONVOLUTION = tuple(
    sorted(dict(strides=(1, 2), padding=(1,) * 4, dilation=(1, 1), groups=1, kernel_size=(3, 3)).items())
)
_WIDTH = ((1, 0), (2, 2))
_NUMBER = Probe((), constant=True)
_ROWS = Probe((24,), "int64", below=6)
_FEW = Probe((3,), "int64", below=24)
selecting = OperatorVariable("reduce", frozenset({"max", "min", "all", "any"}))


@rule(Property.COMMUTATIVE, numerics="exact")
class PadAfterUnary:
    """An element-wise operator on what is there; the padding value is computed once and for all."""

    lhs, rhs = f(pad(A, C, pad_width=P)), pad(f(A), f(C), pad_width=P)
    fires = [dict(A=(8, 6), C=_NUMBER, P=_WIDTH)]


@rule(Property.COMMUTATIVE, numerics="exact")
class PadAfterNumber:
    """An operator with one number on what is there."""

    lhs, rhs = g(pad(A, C, pad_width=P), D), pad(g(A, D), g(C, D), pad_width=P)
    fires = [dict(A=(8, 6), C=_NUMBER, D=_NUMBER, P=_WIDTH)]


@rule(Property.COMMUTATIVE, numerics="exact")
class PadAfterLeftNumber:
    """The same with the number on the left."""

    lhs, rhs = g(D, pad(A, C, pad_width=P)), pad(g(D, A), g(D, C), pad_width=P)
    fires = [dict(A=(8, 6), C=_NUMBER, D=_NUMBER, P=_WIDTH)]


@rule(Property.COMMUTATIVE, numerics="exact")
class PadResultOnce:
    """One padding of a result for one of each operand."""

    lhs, rhs = g(pad(A, C, pad_width=P), pad(B, D, pad_width=P)), pad(g(A, B), g(C, D), pad_width=P)
    fires = [dict(A=(8, 6), B=(8, 6), C=_NUMBER, D=_NUMBER, P=_WIDTH)]


@rule(Property.COMMUTATIVE, numerics="exact")
class PadAfterReduction:
    """What is padded after a reduction of other axes is smaller; a sum of zeros is zero."""

    lhs = reduce(pad(A, 0, pad_width=P), axes=S, keepdims=K)
    rhs = pad(reduce(A, axes=S, keepdims=K), 0, pad_width=without_axes(P, S, K))
    fires = [
        dict(A=(8, 6), P=((1, 2), (0, 0)), S=(1,), K=False, reduce=r) for r in ("sum", "mean", "max", "min")
    ]
    refuses = [(dict(A=(8, 6), P=((1, 2), (0, 1)), S=(1,), K=False, reduce="sum"), "padded")]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class SumWithoutPadding:
    """Zeros around do not change a sum."""

    lhs = total(pad(A, 0, pad_width=P), axes=S, keepdims=K)
    rhs = total(A, axes=only_padded(S, P), keepdims=K)
    fires = [dict(A=(8, 6), P=((0, 0), (1, 2)), S=(1,), K=False)]
    refuses = [(dict(A=(8, 6), P=((1, 0), (1, 2)), S=(1,), K=False), "padded")]
    integers = True


@rule(Property.COMMUTATIVE, numerics="reassociates")
class PadInsideConvolution:
    """A convolution pads with zeros itself."""

    lhs = conv(pad(X, 0, pad_width=P), W, rest=S)
    rhs = conv(X, W, rest=padded_convolution(S, P))
    integers = True
    fires = [
        dict(
            conv="nn.conv2d", X=(1, 4, 7, 6), W=(6, 4, 3, 3), P=((0, 0), (0, 0), (1, 0), (2, 1)),
            S=_CONVOLUTION,
        )
    ]  # fmt: skip
    refuses = [({**fires[0], "P": ((0, 0), (1, 0), (0, 0), (0, 0)), "X": (1, 3, 7, 6)}, "channels")]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceWithoutPadding:
    """A slice of what was there before padding."""

    lhs = strided_slice(pad(A, C, pad_width=P), begin=S, end=T, strides=N)
    rhs = strided_slice(A, begin=inside(S, A, P), end=inside(T, A, P), strides=N)
    fires = [dict(A=(8, 6), C=(), P=_WIDTH, S=(2, 2), T=(7, 7), N=(1, 2))]
    refuses = [(dict(A=(8, 6), C=(), P=_WIDTH, S=(0, 2), T=(7, 7), N=(1, 2)), "keeps padding")]


@rule(Property.COMMUTATIVE, numerics="exact")
class TakeAfterUnary:
    """An element-wise operator on a table that is smaller than what is taken from it."""

    lhs, rhs = f(take(A, I, axis=K)), take(f(A), I, axis=K)
    fires = [dict(A=(6, 5), I=_ROWS, K=0)]


@rule(Property.COMMUTATIVE, numerics="exact")
class TakeBeforeUnary:
    """An element-wise operator on the few rows that are taken."""

    lhs, rhs = take(f(A), I, axis=K), f(take(A, I, axis=K))
    fires = [dict(A=(24, 5), I=_FEW, K=0)]


@rule(Property.COMMUTATIVE, numerics="exact")
class TakeResultOnce:
    """One gather of a result for one of each operand."""

    lhs, rhs = g(take(A, I, axis=K), take(B, I, axis=K)), take(g(A, B), I, axis=K)
    fires = [dict(A=(6, 5), B=(6, 5), I=_ROWS, K=0)]
    refuses = [(dict(A=(6, 5), B=(6, 1), I=_ROWS, K=0, g="add"), "broadcast")]

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if m.shape(A) == m.shape(B) else "broadcast: tables of different shapes"


@rule(Property.COMMUTATIVE, numerics="exact")
class TakeOperandsOfResult:
    """An operator of two tables on the few rows that are taken."""

    lhs, rhs = take(g(A, B), I, axis=K), g(take(A, I, axis=K), take(B, I, axis=K))
    fires = [dict(A=(24, 5), B=(24, 5), I=_FEW, K=0)]

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if m.shape(A) == m.shape(B) else "broadcast: tables of different shapes"


@rule(Property.COMMUTATIVE, numerics="exact")
class TakeAfterNumber:
    """An operator with one number on a table that is smaller than what is taken from it."""

    lhs, rhs = g(take(A, I, axis=K), C), take(g(A, C), I, axis=K)
    fires = [dict(A=(6, 5), I=_ROWS, K=0, C=())]

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if not m.shape(C) else "the operand is not one number"


@rule(Property.COMMUTATIVE, numerics="exact")
class TakeAfterReduction:
    """A reduced table is less to take from, if rows are taken more than once."""

    lhs = reduce(take(A, I, axis=K), axes=P, keepdims=N)
    rhs = take(
        reduce(A, axes=axis_before_take(P, K, I), keepdims=N), I, axis=axis_after_reduction(K, P, N, A, I)
    )
    fires = [dict(A=(6, 5), I=_ROWS, K=0, P=(1,), N=True), dict(A=(5, 6), I=_ROWS, K=1, P=(0,), N=False)]
    refuses = [(dict(A=(6, 5), I=_ROWS, K=0, P=(0,), N=True, reduce="sum"), "indices")]


@rule(Property.COMMUTATIVE, numerics="exact")
class TakeAfterSoftmax:
    """Softmax of the rows of a table that is smaller than what is taken from it."""

    lhs, rhs = softmax(take(A, I, axis=K), axis=N), take(softmax(A, axis=softmax_axis(N, K, I)), I, axis=K)
    fires = [dict(A=(6, 5), I=_ROWS, K=0, N=1)]
    refuses = [(dict(A=(6, 5), I=_ROWS, K=0, N=0), "indices")]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class TakeAfterDense:
    """A dense layer of a table that is smaller than what is taken from it: embeddings."""

    lhs, rhs = dense(take(X, I, axis=0), W), take(dense(X, W), I, axis=0)
    integers = True
    fires = [dict(X=(6, 5), I=_ROWS, W=(4, 5))]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class TakeBeforeDense:
    """A dense layer of the few rows that are taken."""

    lhs, rhs = take(dense(X, W), I, axis=0), dense(take(X, I, axis=0), W)
    integers = True
    fires = [dict(X=(24, 5), I=_FEW, W=(4, 5))]

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if len(m.shape(X)) == 2 else "data that are no matrix"


@rule(Property.COMMUTATIVE, numerics="reassociates")
class TakeRowsBeforeProduct:
    """A product of two matrices of the few rows that are taken."""

    lhs = take(matmul(X, W, transpose_a=False, transpose_b=T), I, axis=0)
    rhs = matmul(take(X, I, axis=0), W, transpose_a=False, transpose_b=T)
    integers = True
    fires = [dict(X=(24, 5), I=_FEW, W=(4, 5), T=True)]

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if len(m.shape(I)) == 1 else "indices that are not a vector"


@rule(Property.COMMUTATIVE, numerics="exact")
class BroadcastAfterUnary:
    """An element-wise operator before its operand is repeated."""

    lhs, rhs = f(broadcast_to(A, shape=S)), broadcast_to(f(A), shape=S)
    fires = [dict(A=(8, 1), S=(8, 6)), dict(A=(6,), S=(8, 6))]


@rule(Property.COMMUTATIVE, numerics="exact")
class BroadcastResultOnce:
    """An operator of two operands before both are repeated."""

    lhs, rhs = g(broadcast_to(A, shape=S), broadcast_to(B, shape=S)), broadcast_to(g(A, B), shape=S)
    fires = [dict(A=(8, 1, 1), B=(1, 6, 1), S=(8, 6, 4))]


@rule(Property.COMMUTATIVE, numerics="exact")
class BroadcastInsideOperator:
    """An element-wise operator repeats its operand itself."""

    lhs, rhs = g(broadcast_to(A, shape=S), B), g(A, B)
    fires = [dict(A=(6,), B=(8, 6), S=(8, 6))]


@rule(Property.COMMUTATIVE, numerics="exact")
class BroadcastInsideOperatorRight:
    """An element-wise operator repeats its right operand itself."""

    lhs, rhs = g(B, broadcast_to(A, shape=S)), g(B, A)
    fires = [dict(A=(6,), B=(8, 6), S=(8, 6))]


@rule(Property.COMMUTATIVE, numerics="exact")
class BroadcastChoiceOnce:
    """A choice before its operands are repeated."""

    lhs = where(broadcast_to(M, shape=S), broadcast_to(A, shape=S), broadcast_to(B, shape=S))
    rhs = broadcast_to(where(M, A, B), shape=S)
    fires = [dict(M=Probe((8, 1), "bool"), A=(8, 1), B=(1, 1), S=(8, 6))]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class MeanWithoutRepetition:
    """The mean of equal elements is one of them."""

    lhs = mean(broadcast_to(A, shape=S), axes=P, keepdims=K)
    rhs = mean(A, axes=repeats(A, S, P), keepdims=K)
    fires = [dict(A=(8, 1), S=(8, 6), P=(1,), K=False)]
    refuses = [(dict(A=(8, 1), S=(8, 6), P=(0, 1), K=False), "only repeated")]


@rule(Property.COMMUTATIVE, numerics="exact")
class SelectWithoutRepetition:
    """The largest, smallest, all or any of equal elements is one of them."""

    lhs = selecting(broadcast_to(A, shape=S), axes=P, keepdims=K)
    rhs = selecting(A, axes=repeats(A, S, P), keepdims=K)
    fires = [dict(A=(8, 1), S=(8, 6), P=(1,), K=False)]
