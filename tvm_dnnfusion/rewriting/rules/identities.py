"""Operators that cancel, merge or are stronger than needed: no property of their own, but room for others."""

from __future__ import annotations

from ..calculations import added_widths, composed, composed_begin, composed_end, multiplied, output_shape
from ..language import (
    A,
    B,
    C,
    I,
    K,
    M,
    N,
    P,
    Q,
    S,
    T,
    V,
    absolute,
    bitwise_not,
    broadcast_to,
    cast,
    concatenate,
    exp,
    log,
    logical_not,
    negative,
    pad,
    power,
    reshape,
    rsqrt,
    sqrt,
    strided_slice,
    take,
    transpose,
    where,
)
from ..matching import Match
from ..pattern import OperatorVariable
from ..rule import Enables, Probe, Property, rule

_BIG = (8, 16)


@rule(Property.IDENTITY, numerics="exact")
class MergeTransposes:
    """Two transpositions are one."""

    lhs, rhs = transpose(transpose(A, axes=P), axes=Q), transpose(A, axes=composed(P, Q))
    fires = [dict(A=(4, 3, 5), P=(2, 0, 1), Q=(0, 2, 1))]


@rule(Property.IDENTITY, numerics="exact")
class DropIdentityTranspose:
    """A transposition that leaves every axis where it is."""

    lhs, rhs = transpose(A, axes=P), A
    fires = [dict(A=(4, 3, 5), P=(0, 1, 2))]
    refuses = [(dict(A=(4, 4, 4), P=(0, 2, 1)), "moves")]

    @staticmethod
    def why_not(m: Match) -> str | None:
        axes = m.attribute(P)
        return None if axes == tuple(range(len(axes))) else f"the transposition {axes} moves axes"


@rule(Property.IDENTITY, numerics="exact")
class ReshapeInsteadOfTranspose:
    """A transposition that moves axes of extent 1 only is a reshape."""

    lhs, rhs = transpose(A, axes=P), reshape(A, shape=output_shape())
    fires = [dict(A=(4, 1, 5), P=(1, 0, 2))]
    refuses = [(dict(A=(4, 3, 5), P=(1, 0, 2)), "moves")]

    @staticmethod
    def why_not(m: Match) -> str | None:
        long = [axis for axis in m.attribute(P) if m.shape(A)[axis] != 1]
        return None if long == sorted(long) else f"the transposition {m.attribute(P)} moves axes"


@rule(Property.IDENTITY, numerics="exact")
class MergeReshapes:
    """Two reshapes are one."""

    lhs, rhs = reshape(reshape(A, shape=P), shape=Q), reshape(A, shape=Q)
    fires = [dict(A=(4, 6), P=(24,), Q=(2, 12))]


@rule(Property.IDENTITY, numerics="exact")
class DropIdentityReshape:
    """A reshape to the shape that is there."""

    lhs, rhs = reshape(A, shape=P), A
    fires = [dict(A=(4, 6), P=(4, 6))]
    refuses = [(dict(A=(4, 6), P=(24,)), "instead of")]


@rule(Property.IDENTITY, numerics="exact")
class MergeSlices:
    """Two slices are one."""

    lhs = strided_slice(strided_slice(A, begin=P, end=Q, strides=K), begin=S, end=T, strides=N)
    rhs = strided_slice(A, begin=composed_begin(P, K, S), end=composed_end(P, K, T), strides=multiplied(K, N))
    fires = [dict(A=(16, 9), P=(1, 2), Q=(14, 9), K=(2, 1), S=(1, 0), T=(6, 5), N=(2, 1))]


@rule(Property.IDENTITY, numerics="exact")
class DropWholeSlice:
    """A slice that keeps everything."""

    lhs, rhs = strided_slice(A, begin=S, end=T, strides=N), A
    fires = [dict(A=(4, 6), S=(0, 0), T=(4, 6), N=(1, 1))]
    refuses = [(dict(A=(4, 6), S=(0, 1), T=(4, 6), N=(1, 1)), "instead of")]


@rule(Property.IDENTITY, numerics="exact")
class MergePaddings:
    """Two paddings with one value are one."""

    lhs, rhs = pad(pad(A, C, pad_width=P), C, pad_width=Q), pad(A, C, pad_width=added_widths(P, Q))
    fires = [dict(A=(4, 6), C=(), P=((1, 0), (0, 2)), Q=((0, 3), (1, 1)))]


@rule(Property.IDENTITY, numerics="exact")
class MergeTakes:
    """Indices of indices."""

    lhs, rhs = take(take(A, I, axis=0), V, axis=0), take(A, take(I, V, axis=0), axis=0)
    fires = [dict(A=(9, 64), I=Probe((20,), "int32", below=9), V=Probe((5,), "int32", below=20))]


@rule(Property.IDENTITY, numerics="exact")
class MergeBroadcasts:
    """Two broadcasts are one."""

    lhs, rhs = broadcast_to(broadcast_to(A, shape=P), shape=Q), broadcast_to(A, shape=Q)
    fires = [dict(A=(1, 6), P=(4, 6), Q=(3, 4, 6))]


@rule(Property.IDENTITY, numerics="exact")
class DropIdentityBroadcast:
    """A broadcast to the shape that is there."""

    lhs, rhs = broadcast_to(A, shape=P), A
    fires = [dict(A=(4, 6), P=(4, 6))]
    refuses = [(dict(A=(1, 6), P=(4, 6)), "instead of")]


@rule(Property.IDENTITY, numerics="exact")
class DropIdentityCast:
    """A cast to the type that is there."""

    lhs, rhs = cast(A, dtype=P), A
    fires = [dict(A=(4, 6), P="float32")]
    refuses = [(dict(A=(4, 6), P="float64"), "instead of")]


_WIDER = {
    "int8": {"int16", "int32", "int64", "float32", "float64"},
    "int16": {"int32", "int64", "float32", "float64"},
    "int32": {"int64", "float64"},
    "uint8": {"uint16", "uint32", "uint64", "int16", "int32", "int64", "float32", "float64"},
    "uint16": {"uint32", "uint64", "int32", "int64", "float32", "float64"},
    "uint32": {"uint64", "int64", "float64"},
    "float16": {"float32", "float64"},
    "float32": {"float64"},
    "bool": {"int8", "uint8", "int16", "int32", "int64", "float32", "float64"},
}


@rule(Property.IDENTITY, numerics="exact")
class MergeCasts:
    """A cast by way of a type that holds every value of the first; a narrower one on the way would round."""

    lhs, rhs = cast(cast(A, dtype=P), dtype=Q), cast(A, dtype=Q)
    fires = [
        dict(A=Probe((4, 6), "int16"), P="int32", Q="float32"),
        dict(A=Probe((4, 6), "bool"), P="int32", Q="int64"),
    ]
    refuses = [
        (dict(A=Probe((4, 6), "int64"), P="bool", Q="int32"), "bool cannot hold"),
        (dict(A=Probe((4, 6), "int32"), P="uint32", Q="float32"), "uint32 cannot hold"),
        (dict(A=Probe((4, 6), "int32"), P="float32", Q="int32"), "float32 cannot hold"),
        (dict(A=Probe((4, 6), "int16"), P="float16", Q="float32"), "float16 cannot hold"),
        (dict(A=Probe((4, 6), "int64"), P="float64", Q="int64"), "float64 cannot hold"),
    ]

    @staticmethod
    def why_not(m: Match) -> str | None:
        source, middle = m.info(A).dtype, m.attribute(P)
        holds = middle in _WIDER.get(source, ())
        return None if holds else f"{middle} cannot hold every {source}"


@rule(Property.IDENTITY, numerics="exact")
class DropDoubleNegation:
    """Two changes of sign."""

    lhs, rhs = negative(negative(A)), A
    fires = [dict(A=_BIG)]


@rule(Property.IDENTITY, numerics="exact")
class AddNegative:
    """Adding a negative is subtracting."""

    lhs, rhs = A + (-B), A - B
    fires = [dict(A=_BIG, B=_BIG)]


@rule(Property.IDENTITY, numerics="exact")
class SubtractNegative:
    """Subtracting a negative is adding."""

    lhs, rhs = A - (-B), A + B
    fires = [dict(A=_BIG, B=_BIG)]


@rule(Property.IDENTITY, numerics="reassociates")
class NegateDifference:
    """The negative of a difference is the difference the other way round, the sign of zero aside."""

    lhs, rhs = -(A - B), B - A
    fires = [dict(A=_BIG, B=_BIG)]
    integers = True


@rule(Property.IDENTITY, numerics="exact")
class DropFactorOne:
    """A factor of one."""

    lhs, rhs = A * 1, A
    fires = [dict(A=_BIG)]


@rule(Property.IDENTITY, numerics="exact")
class DropDivisorOne:
    """A divisor of one."""

    lhs, rhs = A / 1, A
    fires = [dict(A=_BIG)]
    integers = False


@rule(Property.IDENTITY, numerics="exact")
class DropSubtractedZero:
    """Subtracting zero; adding it would change the sign of zero."""

    lhs, rhs = A - 0, A
    fires = [dict(A=_BIG)]


@rule(Property.IDENTITY, numerics="reassociates")
class DropAddedZero:
    """Adding zero, which makes a zero of a negative zero."""

    lhs, rhs = A + 0, A
    fires = [dict(A=_BIG)]
    integers = True


@rule(Property.IDENTITY, numerics="finite_only")
class SubtractFromItself:
    """A number less itself; infinity less itself is NaN."""

    lhs, rhs = (A + B) - A, B
    fires = [dict(A=(16,), B=_BIG)]
    refuses = [(dict(A=_BIG, B=(16,)), "instead of")]
    integers = True


@rule(Property.IDENTITY, numerics="exact")
class SquareByMultiplying:
    """A square is a multiplication."""

    lhs, rhs = power(A, 2), A * A
    fires = [dict(A=_BIG)]
    integers = False


@rule(Property.IDENTITY, numerics="reassociates")
class MultiplyByReciprocal:
    """Dividing by constants is multiplying by their reciprocals, which the weights before can absorb."""

    lhs, rhs = A / C, A * (1 / C)
    fires = [dict(A=_BIG, C=Probe((), constant=True, value=3))]
    refuses = [(dict(A=_BIG, C=Probe((), constant=True, value=0)), "overflow")]
    enables = Enables(A * B + A / C, dict(A=_BIG, B=(16,), C=Probe((), constant=True, value=3)))

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if m.is_constant(C) else "the divisor is not constant"


@rule(Property.IDENTITY, numerics="finite_only")
class DropSquareRootOfSquare:
    """The root of a square is the absolute value; the square may overflow."""

    lhs, rhs = sqrt(A * A), absolute(A)
    fires = [dict(A=_BIG)]


@rule(Property.IDENTITY, numerics="finite_only")
class DropLogarithmOfExponential:
    """The logarithm of an exponential; the exponential may overflow."""

    lhs, rhs = log(exp(A)), A
    fires = [dict(A=_BIG)]


@rule(Property.IDENTITY, numerics="reassociates")
class ReciprocalRootAtOnce:
    """The reciprocal of a root."""

    lhs, rhs = 1 / sqrt(A), rsqrt(A)
    fires = [dict(A=_BIG)]
    defined = (A,)


_twice = OperatorVariable("f", frozenset({"abs", "nn.relu", "floor", "ceil", "round", "trunc", "sign"}))


@rule(Property.IDENTITY, numerics="exact")
class ApplyOnce:
    """An operator that changes nothing the second time."""

    lhs, rhs = _twice(_twice(A)), _twice(A)
    fires = [dict(A=_BIG)]


@rule(Property.IDENTITY, numerics="exact")
class DropDoubleComplement:
    """Two complements of bits."""

    lhs, rhs = bitwise_not(bitwise_not(A)), A
    fires = [dict(A=Probe(_BIG, "int32"))]
    floats = False


@rule(Property.IDENTITY, numerics="exact")
class DropDoubleNot:
    """Two negations of a condition."""

    lhs, rhs = logical_not(logical_not(A)), A
    fires = [dict(A=Probe(_BIG, "bool"))]


@rule(Property.IDENTITY, numerics="exact")
class ChooseTheSame:
    """A choice between equals."""

    lhs, rhs = where(M, A, A), A
    fires = [dict(M=Probe((8, 1), "bool"), A=_BIG)]
    refuses = [(dict(M=Probe(_BIG, "bool"), A=(8, 1)), "instead of")]


@rule(Property.IDENTITY, numerics="exact")
class ChooseByConditionItself:
    """A choice by the negated condition is one the other way round."""

    lhs, rhs = where(logical_not(M), A, B), where(M, B, A)
    fires = [dict(M=Probe(_BIG, "bool"), A=_BIG, B=_BIG)]


@rule(Property.IDENTITY, numerics="exact")
class JoinNeighbouringSlices:
    """Two slices of one tensor, one where the other ends."""

    lhs = concatenate(
        strided_slice(A, begin=P, end=Q, strides=K), strided_slice(A, begin=S, end=T, strides=K), axis=N
    )
    rhs = strided_slice(A, begin=P, end=T, strides=K)
    fires = [dict(A=(8, 16), P=(0, 2), Q=(8, 5), S=(0, 5), T=(8, 9), K=(1, 1), N=1)]
    refuses = [(dict(A=(8, 16), P=(0, 2), Q=(8, 5), S=(0, 6), T=(8, 9), K=(1, 1), N=1), "neighbours")]

    @staticmethod
    def why_not(m: Match) -> str | None:
        axis, begin, end = m.attribute(N), m.attribute(P), m.attribute(Q)
        start, stop = m.attribute(S), m.attribute(T)
        others = [a for a in range(len(begin)) if a != axis]
        joined = end[axis] == start[axis] and all(begin[a] == start[a] and end[a] == stop[a] for a in others)
        unit = all(step == 1 for step in m.attribute(K))
        return None if joined and unit else "the slices are no neighbours"


@rule(Property.IDENTITY, numerics="exact")
class SliceFirstPart:
    """A slice of a concatenation that lies in its first part."""

    lhs, rhs = (
        strided_slice(concatenate(A, B, axis=K), begin=S, end=T, strides=N),
        strided_slice(A, begin=S, end=T, strides=N),
    )
    fires = [dict(A=(8, 6), B=(8, 4), K=1, S=(0, 1), T=(8, 5), N=(1, 1))]
    refuses = [(dict(A=(8, 6), B=(8, 4), K=1, S=(0, 1), T=(8, 8), N=(1, 1)), "slice from")]
