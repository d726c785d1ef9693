"""Slices before what computes: only what is kept is computed."""

from __future__ import annotations

from ..calculations import (
    all_rows,
    broadcast_slice,
    channels_slice,
    first,
    operand_slice,
    output_shape,
    rows_slice,
    samples_slice,
    units_slice,
    unreduced,
    whole_along,
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
    W,
    X,
    batch_matmul,
    broadcast_to,
    conv,
    dense,
    f,
    g,
    matmul,
    reduce,
    softmax,
    strided_slice,
    take,
    where,
)
from ..matching import Match
from ..pattern import Operation, Term, Variable
from ..rule import Probe, Property, rule

_GROUPED = ("nn.conv1d", dict(strides=(1,), padding=(1, 1), dilation=(1,), groups=2, kernel_size=(3,)))
_CUT = dict(S=(1, 0), T=(5, 6), N=(1, 2))


def _cut(operand: Term, by: object) -> Operation:
    """The slice of an operand that a function gives for begin, end and strides of the slice of the result."""
    assert callable(by)
    begin, end, strides = (by(v, what) for v, what in ((S, "begin"), (T, "end"), (N, "strides")))
    return strided_slice(operand, begin=begin, end=end, strides=strides)


def _broadcast(variable: Variable) -> Operation:
    return _cut(variable, lambda values, what: broadcast_slice(values, variable, what))


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceBeforeUnary:
    """An element-wise operator on what is kept."""

    lhs = strided_slice(f(A), begin=S, end=T, strides=N)
    rhs = f(strided_slice(A, begin=S, end=T, strides=N))
    fires = [dict(A=(8, 6), **_CUT)]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceBeforeBinary:
    """An operator of two operands on what is kept of both, broadcast ones included."""

    lhs = strided_slice(g(A, B), begin=S, end=T, strides=N)
    rhs = g(_broadcast(A), _broadcast(B))
    fires = [
        dict(A=(8, 6), B=(8, 6), **_CUT),
        dict(A=(8, 6), B=(6,), **_CUT),
        dict(A=(1, 6), B=(8, 1), S=(1, 0), T=(3, 2), N=(1, 1)),
    ]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceBeforeChoice:
    """A choice of what is kept."""

    lhs = strided_slice(where(M, A, B), begin=S, end=T, strides=N)
    rhs = where(_broadcast(M), _broadcast(A), _broadcast(B))
    fires = [dict(M=Probe((8, 1), "bool"), A=(8, 6), B=(6,), **_CUT)]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceBeforeReduction:
    """Only what is kept is reduced."""

    lhs = strided_slice(reduce(A, axes=P, keepdims=K), begin=S, end=T, strides=N)
    rhs = reduce(_cut(A, lambda values, what: unreduced(values, A, P, K, what)), axes=P, keepdims=K)
    fires = [
        dict(A=(8, 6, 3), P=(2,), K=False, **_CUT),
        dict(A=(8, 6, 3), P=(1,), K=True, S=(1, 0, 0), T=(5, 1, 2), N=(1, 1, 1)),
    ]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceBeforeSoftmax:
    """Softmax of the rows that are kept, whole."""

    lhs = strided_slice(softmax(A, axis=K), begin=S, end=T, strides=N)
    rhs = softmax(_cut(A, lambda values, what: whole_along(values, A, K, what)), axis=K)
    fires = [dict(A=(8, 6), K=1, S=(1, 0), T=(5, 6), N=(2, 1))]
    refuses = [(dict(A=(8, 6), K=0, S=(1, 0), T=(5, 6), N=(2, 1)), "cuts")]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceBeforeBroadcast:
    """A small tensor is cut before it is repeated."""

    lhs = strided_slice(broadcast_to(A, shape=P), begin=S, end=T, strides=N)
    rhs = broadcast_to(_broadcast(A), shape=output_shape())
    fires = [dict(A=(1, 6), P=(8, 6), **_CUT), dict(A=(6,), P=(8, 6), **_CUT)]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceIndicesBeforeTake:
    """Fewer rows are taken."""

    lhs = strided_slice(take(A, I, axis=0), begin=S, end=T, strides=N)
    rhs = take(A, _cut(I, lambda values, what: first(values, I, what)), axis=0)
    fires = [dict(A=(9, 6), I=Probe((8,), "int64", below=9), S=(1, 0), T=(4, 6), N=(1, 1))]
    refuses = [(dict(A=(9, 6), I=Probe((8,), "int64", below=9), S=(1, 0), T=(4, 5), N=(1, 1)), "cuts")]


@rule(Property.COMMUTATIVE, numerics="exact")
class SliceRowsBeforeTake:
    """Shorter rows are taken."""

    lhs = strided_slice(take(A, I, axis=0), begin=S, end=T, strides=N)
    rhs = take(_cut(A, lambda values, what: all_rows(values, A, I, what)), I, axis=0)
    fires = [dict(A=(3, 6), I=Probe((8,), "int64", below=3), S=(0, 1), T=(8, 4), N=(1, 1))]
    refuses = [(dict(A=(9, 6), I=Probe((8,), "int64", below=9), S=(1, 0), T=(4, 5), N=(1, 1)), "cuts")]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class SliceBeforeDense:
    """Only the rows and units that are kept are computed."""

    lhs = strided_slice(dense(X, W), begin=S, end=T, strides=N)
    rhs = dense(
        _cut(X, lambda values, what: rows_slice(values, X, what)),
        _cut(W, lambda values, what: units_slice(values, W, what)),
    )
    integers = True
    fires = [
        dict(X=(8, 4), W=(6, 4), **_CUT),
        dict(X=(8, 4), W=Probe((6, 4), constant=True), S=(0, 1), T=(8, 3), N=(1, 1)),
    ]


# The operands of a product of matrices of which a slice is wanted.
_CUT_MATRICES = (
    _cut(A, lambda values, what: operand_slice(values, A, P, 0, what)),
    _cut(B, lambda values, what: operand_slice(values, B, Q, 1, what)),
)


@rule(Property.COMMUTATIVE, numerics="reassociates")
class SliceBeforeProduct:
    """Only the rows and columns that are kept of a product of two matrices are computed."""

    lhs = strided_slice(matmul(A, B, transpose_a=P, transpose_b=Q), begin=S, end=T, strides=N)
    rhs = matmul(*_CUT_MATRICES, transpose_a=P, transpose_b=Q)
    integers = True
    fires = [
        dict(A=(8, 4), B=(4, 6), P=False, Q=False, **_CUT),
        dict(A=(4, 8), B=(6, 4), P=True, Q=True, **_CUT),
    ]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class SliceBeforeBatchedProduct:
    """Only the matrices, rows and columns that are kept are computed."""

    lhs = strided_slice(batch_matmul(A, B, transpose_a=P, transpose_b=Q), begin=S, end=T, strides=N)
    rhs = batch_matmul(*_CUT_MATRICES, transpose_a=P, transpose_b=Q)
    integers = True
    fires = [
        dict(A=(3, 8, 4), B=(3, 4, 6), P=False, Q=False, S=(1, 1, 0), T=(3, 5, 6), N=(1, 1, 2)),
        dict(A=(3, 8, 4), B=(1, 6, 4), P=False, Q=True, S=(1, 1, 0), T=(3, 5, 6), N=(1, 1, 2)),
    ]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class SliceBeforeConvolution:
    """Only the output channels that are kept are computed."""

    lhs = strided_slice(conv(X, W), begin=S, end=T, strides=N)
    rhs = conv(X, _cut(W, lambda values, what: channels_slice(values, W, what)))
    integers = True
    fires = [
        dict(
            conv=("nn.conv1d", dict(strides=(1,), padding=(1, 1), dilation=(1,), groups=1, kernel_size=(3,))),
            X=(2, 4, 9), W=(6, 4, 3), S=(0, 1, 0), T=(2, 4, 9), N=(1, 1, 1),
        )
    ]  # fmt: skip
    refuses = [
        (
            dict(
                conv=_GROUPED, X=(2, 4, 9), W=(6, 2, 3), S=(0, 1, 0), T=(2, 4, 9), N=(1, 1, 1),
            ),
            "grouped",
        )
    ]  # fmt: skip

    @staticmethod
    def why_not(m: Match) -> str | None:
        return "a grouped convolution" if dict(m.bindings["conv"][1])["groups"] != 1 else None


@rule(Property.COMMUTATIVE, numerics="reassociates")
class SliceBatchBeforeConvolution:
    """Only the samples that are kept are computed."""

    lhs = strided_slice(conv(X, W), begin=S, end=T, strides=N)
    rhs = conv(_cut(X, lambda values, what: samples_slice(values, X, what)), W)
    integers = True
    fires = [
        dict(
            conv=_GROUPED, X=(3, 4, 9), W=(6, 2, 3), S=(1, 0, 0), T=(3, 6, 9), N=(1, 1, 1),
        )
    ]  # fmt: skip
