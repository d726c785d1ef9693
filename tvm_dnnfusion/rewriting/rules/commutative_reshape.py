"""Reshapes and other operators in either order: a reshape costs nothing but keeps neighbours apart."""

from __future__ import annotations

from ..calculations import common_tail, output_shape, reduced_shape, slice_before_reshape, tail_operand
from ..language import (
    A,
    B,
    K,
    M,
    N,
    Q,
    S,
    T,
    W,
    c,
    d,
    dense,
    f,
    g,
    reduce,
    reshape,
    softmax,
    strided_slice,
    total,
    where,
)
from ..rule import Enables, Probe, Property, rule

_CUBE = (4, 6, 5)
_FLAT = (24, 5)


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeAfterUnary:
    """A reshape waits for an element-wise operator, so that what is behind it can reach what is before."""

    lhs, rhs = f(reshape(A, shape=S)), reshape(f(A), shape=S)
    fires = [dict(A=_CUBE, S=_FLAT)]
    enables = Enables(reshape(f(reshape(A, shape=_FLAT)), shape=_CUBE), dict(A=_CUBE, f="tanh"))


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeResultOnce:
    """One reshape of the result for one of each operand."""

    lhs, rhs = g(reshape(A, shape=S), reshape(B, shape=S)), reshape(g(A, B), shape=S)
    fires = [dict(A=_CUBE, B=_CUBE, S=_FLAT)]
    refuses = [(dict(A=_CUBE, B=(6, 4, 5), S=_FLAT, g="add"), "broadcast")]


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeAfterConstant:
    """A reshape waits for an operator with a constant along the axes that it leaves alone, such as a bias."""

    lhs = g(reshape(A, shape=S), c)
    rhs = reshape(g(A, reshape(c, shape=tail_operand(c, A, S))), shape=S)
    fires = [dict(A=_CUBE, S=_FLAT, c=(5,)), dict(A=_CUBE, S=_FLAT, c=()), dict(A=_CUBE, S=_FLAT, c=(1, 5))]
    refuses = [(dict(A=_CUBE, S=_FLAT, c=(24, 1), g="add"), "changes")]
    enables = Enables(g(reshape(g(A, c), shape=_FLAT), d), dict(A=_CUBE, c=(5,), d=(5,), g="add"))


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeAfterLeftConstant:
    """The same with the constant on the left."""

    lhs = g(c, reshape(A, shape=S))
    rhs = reshape(g(reshape(c, shape=tail_operand(c, A, S)), A), shape=S)
    fires = [dict(A=_CUBE, S=_FLAT, c=(5,))]
    enables = Enables(
        reshape(g(c, reshape(A, shape=_FLAT)), shape=_CUBE), dict(A=_CUBE, c=(5,), g="subtract")
    )


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeBeforeConstant:
    """A reshape goes ahead of an operator with a constant, which a dense layer behind it can then absorb."""

    lhs = reshape(g(A, c), shape=S)
    rhs = g(reshape(A, shape=S), reshape(c, shape=tail_operand(c, A, S)))
    fires = [dict(A=_CUBE, S=_FLAT, c=(5,)), dict(A=_CUBE, S=_FLAT, c=(1, 1, 5))]
    refuses = [(dict(A=_CUBE, S=_FLAT, c=(6, 5), g="add"), "changes")]
    enables = Enables(
        dense(reshape(A * c, shape=_FLAT), W), dict(A=_CUBE, c=(5,), W=Probe((3, 5), constant=True))
    )


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeBeforeUnary:
    """A reshape goes ahead of an element-wise operator, to meet another reshape."""

    lhs, rhs = reshape(f(A), shape=S), f(reshape(A, shape=S))
    fires = [dict(A=_CUBE, S=_FLAT)]
    enables = Enables(reshape(f(reshape(A, shape=_FLAT)), shape=_CUBE), dict(A=_CUBE, f="tanh"))


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeChoiceOnce:
    """One reshape of a choice for one of each operand."""

    lhs = where(reshape(M, shape=S), reshape(A, shape=S), reshape(B, shape=S))
    rhs = reshape(where(M, A, B), shape=S)
    fires = [dict(M=Probe(_CUBE, "bool"), A=_CUBE, B=_CUBE, S=_FLAT)]


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeAfterReduction:
    """A reshape waits for a reduction of axes that it leaves alone."""

    lhs = reduce(reshape(A, shape=S), axes=Q, keepdims=K)
    rhs = reshape(reduce(A, axes=common_tail(A, S, Q), keepdims=K), shape=reduced_shape(S, Q, K))
    fires = [dict(A=_CUBE, S=_FLAT, Q=(1,), K=True), dict(A=_CUBE, S=_FLAT, Q=(1,), K=False)]
    refuses = [(dict(A=_CUBE, S=_FLAT, Q=(0,), K=True, reduce="sum"), "changes")]
    enables = Enables(
        reshape(total(reshape(A, shape=_FLAT), axes=(1,), keepdims=True), shape=(4, 6, 1)), dict(A=_CUBE)
    )


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeAfterSoftmax:
    """A reshape waits for a softmax along an axis that it leaves alone."""

    lhs = softmax(reshape(A, shape=S), axis=K)
    rhs = reshape(softmax(A, axis=common_tail(A, S, K)), shape=S)
    fires = [dict(A=_CUBE, S=_FLAT, K=1)]
    refuses = [(dict(A=_CUBE, S=_FLAT, K=0), "changes")]
    enables = Enables(reshape(softmax(reshape(A, shape=_FLAT), axis=1), shape=_CUBE), dict(A=_CUBE))


@rule(Property.COMMUTATIVE, numerics="exact")
class ReshapeAfterSlice:
    """A reshape waits for a slice of axes that it leaves alone."""

    lhs = strided_slice(reshape(A, shape=S), begin=Q, end=T, strides=N)
    rhs = reshape(
        strided_slice(
            A,
            begin=slice_before_reshape(Q, A, S, "begin"),
            end=slice_before_reshape(T, A, S, "end"),
            strides=slice_before_reshape(N, A, S, "strides"),
        ),
        shape=output_shape(),
    )
    fires = [dict(A=_CUBE, S=_FLAT, Q=(0, 1), T=(24, 4), N=(1, 1))]
    refuses = [(dict(A=_CUBE, S=_FLAT, Q=(2, 0), T=(24, 5), N=(1, 1)), "cuts")]
    enables = Enables(
        reshape(
            strided_slice(reshape(A, shape=_FLAT), begin=(0, 1), end=(24, 4), strides=(1, 1)), shape=(4, 6, 3)
        ),
        dict(A=_CUBE),
    )
