"""Concatenations and other operators in either order."""

from __future__ import annotations

from ..calculations import (
    axis_not_reduced,
    channel_axis,
    first_axis,
    last_axis,
    other_axis,
    same_concatenation,
    sample_axis,
)
from ..language import (
    A,
    C,
    I,
    K,
    N,
    P,
    W,
    X,
    batch_matmul,
    concatenate,
    conv,
    dense,
    f,
    matmul,
    reduce,
    softmax,
    take,
)
from ..matching import Match
from ..operators import ARITHMETIC
from ..pattern import Each, OperatorVariable
from ..rule import Probe, Property, rule

arithmetic = OperatorVariable("g", frozenset(ARITHMETIC))
_PARTS = [(4, 3), (4, 2), (4, 5)]
_CONV = ("nn.conv1d", dict(strides=(2,), padding=(1, 1), dilation=(1,), groups=1, kernel_size=(3,)))
_PLAIN = dict(transpose_a=False, transpose_b=False)


@rule(Property.COMMUTATIVE, numerics="exact")
class ConcatenateBeforeUnary:
    """One element-wise operator for one of each part."""

    lhs, rhs = concatenate(Each(f(A)), axis=K), f(concatenate(Each(A), axis=K))
    fires = [dict(A=_PARTS, K=1)]


@rule(Property.COMMUTATIVE, numerics="exact")
class ConcatenateBeforeSharedRight:
    """One operator with an operand that all parts share, for one of each part."""

    lhs = concatenate(Each(arithmetic(A, C), shared=(C,)), axis=K)
    rhs = arithmetic(concatenate(Each(A), axis=same_concatenation(K, A, C)), C)
    fires = [dict(A=_PARTS, C=(), K=1), dict(A=_PARTS, C=(4, 1), K=1)]
    refuses = [(dict(A=[(4, 3), (4, 3)], C=(4, 3), K=1, g="add"), "varies")]


@rule(Property.COMMUTATIVE, numerics="exact")
class ConcatenateBeforeSharedLeft:
    """The same with the shared operand on the left."""

    lhs = concatenate(Each(arithmetic(C, A), shared=(C,)), axis=K)
    rhs = arithmetic(C, concatenate(Each(A), axis=same_concatenation(K, A, C)))
    fires = [dict(A=_PARTS, C=(4, 1), K=1)]


@rule(Property.COMMUTATIVE, numerics="exact")
class ReduceBeforeConcatenation:
    """Reduced parts are less to concatenate."""

    lhs = reduce(concatenate(Each(A), axis=K), axes=P, keepdims=N)
    rhs = concatenate(Each(reduce(A, axes=P, keepdims=N)), axis=axis_not_reduced(K, P, N))
    fires = [
        dict(A=[(4, 3, 16), (4, 2, 16)], K=1, P=(2,), N=False),
        dict(A=[(4, 3, 16), (4, 2, 16)], K=1, P=(0,), N=True),
    ]
    refuses = [(dict(A=[(4, 3), (4, 2)], K=1, P=(1,), N=False, reduce="sum"), "reduced axis")]


@rule(Property.COMMUTATIVE, numerics="exact")
class ConcatenateBeforeSoftmax:
    """One softmax for one of each part, unless along the same axis."""

    lhs, rhs = (
        concatenate(Each(softmax(A, axis=N)), axis=K),
        softmax(concatenate(Each(A), axis=other_axis(K, N)), axis=N),
    )
    fires = [dict(A=[(3, 4), (2, 4)], K=0, N=1)]
    refuses = [(dict(A=[(3, 4), (3, 2)], K=1, N=1), "same axis")]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class ConcatenateDenseWeights:
    """One dense layer with all weights for several that read the same data."""

    lhs = concatenate(Each(dense(X, W), shared=(X,)), axis=K)
    rhs = dense(X, concatenate(Each(W), axis=last_axis(K, 0)))
    integers = True
    fires = [dict(X=(16, 8), W=[Probe((5, 8), constant=True), Probe((3, 8), constant=True)], K=1)]
    refuses = [(dict(X=(16, 8), W=[(5, 8), (5, 8)], K=0), "last axis")]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class ConcatenateDenseData:
    """One dense layer of all rows for several with the same weights."""

    lhs = concatenate(Each(dense(X, W), shared=(W,)), axis=K)
    rhs = dense(concatenate(Each(X), axis=first_axis(K)), W)
    integers = True
    fires = [dict(X=[(3, 8), (2, 8)], W=(16, 8), K=0)]
    refuses = [(dict(X=[(3, 8), (3, 8)], W=(16, 8), K=1), "last axis")]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class ConcatenateMatrixColumns:
    """One product with all columns for several of the same left matrix."""

    lhs = concatenate(Each(matmul(X, W, **_PLAIN), shared=(X,)), axis=K)
    rhs = matmul(X, concatenate(Each(W), axis=last_axis(K, 1)), **_PLAIN)
    integers = True
    fires = [dict(X=(16, 8), W=[Probe((8, 5), constant=True), Probe((8, 3), constant=True)], K=1)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class ConcatenateBatchColumns:
    """One batched product with all columns for several of the same left matrices."""

    lhs = concatenate(Each(batch_matmul(X, W, **_PLAIN), shared=(X,)), axis=K)
    rhs = batch_matmul(X, concatenate(Each(W), axis=last_axis(K, 2)), **_PLAIN)
    integers = True
    fires = [dict(X=(2, 16, 8), W=[Probe((2, 8, 5), constant=True), Probe((2, 8, 3), constant=True)], K=2)]


def _one_group(m: Match) -> str | None:
    return "a grouped convolution" if dict(m.bindings["conv"][1])["groups"] != 1 else None


@rule(Property.COMMUTATIVE, numerics="reassociates")
class ConcatenateKernels:
    """One convolution with all kernels for several that read the same data, as in inception blocks."""

    lhs = concatenate(Each(conv(X, W), shared=(X,)), axis=K)
    rhs = conv(X, concatenate(Each(W), axis=channel_axis(K, 0)))
    integers = True
    fires = [
        dict(
            conv=_CONV, X=(1, 4, 9), W=[Probe((5, 4, 3), constant=True), Probe((3, 4, 3), constant=True)], K=1
        )
    ]
    why_not = staticmethod(_one_group)


@rule(Property.COMMUTATIVE, numerics="reassociates")
class ConcatenateSamples:
    """One convolution of all samples for several with the same kernels."""

    lhs = concatenate(Each(conv(X, W), shared=(W,)), axis=K)
    rhs = conv(concatenate(Each(X), axis=sample_axis(K)), W)
    integers = True
    fires = [dict(conv=_CONV, X=[(1, 4, 9), (2, 4, 9)], W=(8, 4, 3), K=0)]


@rule(Property.COMMUTATIVE, numerics="exact")
class ConcatenateIndices:
    """One gather of all indices for several from the same table."""

    lhs = concatenate(Each(take(A, I, axis=0), shared=(A,)), axis=0)
    rhs = take(A, concatenate(Each(I), axis=0), axis=0)
    fires = [dict(A=(6, 4), I=[Probe((5,), "int64", below=6), Probe((3,), "int64", below=6)])]
