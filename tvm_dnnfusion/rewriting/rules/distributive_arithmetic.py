"""Common factors, divisors and operands taken out of sums, comparisons, choices and bit patterns."""

from __future__ import annotations

from ..language import (
    A,
    B,
    C,
    M,
    W,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    f,
    g,
    left_shift,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    where,
)
from ..rule import Probe, Property, rule

_BIG = (8, 16)
_THREE = [dict(A=_BIG, B=_BIG, C=_BIG), dict(A=_BIG, B=_BIG, C=(16,))]
_SHIFTED = [dict(A=Probe(_BIG, "int32"), B=Probe(_BIG, "int32"), C=Probe((16,), "int32", value=3))]
_BITS = [dict(A=Probe(_BIG, "int32"), B=Probe(_BIG, "int32"), C=Probe(_BIG, "int32"))]
_TRUTHS = [dict(A=Probe(_BIG, "bool"), B=Probe(_BIG, "bool"), C=Probe(_BIG, "bool"))]
_MASKED = [
    dict(M=Probe(_BIG, "bool"), A=_BIG, B=_BIG, C=_BIG),
    dict(M=Probe((8, 1), "bool"), A=_BIG, B=_BIG, C=()),
]


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class FactorDifference:
    """A*C - B*C: one multiplication fewer."""

    lhs, rhs = A * C - B * C, (A - B) * C
    fires = _THREE
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class FactorCommonDivisor:
    """A/C + B/C: one division fewer."""

    lhs, rhs = A / C + B / C, (A + B) / C
    fires = _THREE
    refuses = [(dict(A=Probe(_BIG, "int32"), B=Probe(_BIG, "int32"), C=Probe(_BIG, "int32")), "integers")]


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class FactorDivisorOfDifference:
    """A/C - B/C: one division fewer."""

    lhs, rhs = A / C - B / C, (A - B) / C
    fires = _THREE


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class SubtractProductOfItself:
    """A - A*B: A is read once."""

    lhs, rhs = A - A * B, A * (1 - B)
    fires = [dict(A=_BIG, B=_BIG)]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class SubtractItselfFromProduct:
    """A*B - A: A is read once."""

    lhs, rhs = A * B - A, A * (B - 1)
    fires = [dict(A=_BIG, B=_BIG)]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class SquareOfSum:
    """The square of a binomial: two operations for six, only with the literal 2."""

    lhs, rhs = (A * A + 2 * (A * B)) + B * B, (A + B) * (A + B)
    fires = [dict(A=_BIG, B=_BIG)]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class SquareOfDifference:
    """The square of a difference: two operations for six."""

    lhs, rhs = (A * A - 2 * (A * B)) + B * B, (A - B) * (A - B)
    fires = [dict(A=_BIG, B=_BIG)]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class InterpolateOnce:
    """A*(1-W) + B*W: linear interpolation with one multiplication."""

    lhs, rhs = A * (1 - W) + B * W, A + (B - A) * W
    fires = [dict(A=_BIG, B=_BIG, W=(16,)), dict(A=_BIG, B=_BIG, W=(1,))]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class NegateSumOnce:
    """The negatives of two summands: one negation."""

    lhs, rhs = (-A) + (-B), -(A + B)
    fires = [dict(A=_BIG, B=_BIG)]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="exact")
class ShiftSumOfTwoOnce:
    """A common left shift of two summands."""

    lhs, rhs = left_shift(A, C) + left_shift(B, C), left_shift(A + B, C)
    fires = _SHIFTED
    floats = False


@rule(Property.DISTRIBUTIVE, numerics="exact")
class ShiftDifferenceOnce:
    """A common left shift of minuend and subtrahend."""

    lhs, rhs = left_shift(A, C) - left_shift(B, C), left_shift(A - B, C)
    fires = _SHIFTED
    floats = False


@rule(Property.DISTRIBUTIVE, numerics="exact")
class FactorCommonMask:
    """And distributes over or."""

    lhs, rhs = bitwise_or(bitwise_and(A, C), bitwise_and(B, C)), bitwise_and(bitwise_or(A, B), C)
    fires = _BITS
    floats = False


@rule(Property.DISTRIBUTIVE, numerics="exact")
class FactorCommonBits:
    """Or distributes over and."""

    lhs, rhs = bitwise_and(bitwise_or(A, C), bitwise_or(B, C)), bitwise_or(bitwise_and(A, B), C)
    fires = _BITS
    floats = False


@rule(Property.DISTRIBUTIVE, numerics="exact")
class FactorMaskOfDifferingBits:
    """And distributes over exclusive or."""

    lhs, rhs = bitwise_xor(bitwise_and(A, C), bitwise_and(B, C)), bitwise_and(bitwise_xor(A, B), C)
    fires = _BITS
    floats = False


@rule(Property.DISTRIBUTIVE, numerics="exact")
class InvertOrOnce:
    """De Morgan: the complements of two operands of and."""

    lhs, rhs = bitwise_and(bitwise_not(A), bitwise_not(B)), bitwise_not(bitwise_or(A, B))
    fires = _BITS
    floats = False


@rule(Property.DISTRIBUTIVE, numerics="exact")
class InvertAndOnce:
    """De Morgan: the complements of two operands of or."""

    lhs, rhs = bitwise_or(bitwise_not(A), bitwise_not(B)), bitwise_not(bitwise_and(A, B))
    fires = _BITS
    floats = False


@rule(Property.DISTRIBUTIVE, numerics="exact")
class FactorCommonCondition:
    """And distributes over or of conditions."""

    lhs, rhs = logical_or(logical_and(A, C), logical_and(B, C)), logical_and(logical_or(A, B), C)
    fires = _TRUTHS


@rule(Property.DISTRIBUTIVE, numerics="exact")
class FactorCommonAlternative:
    """Or distributes over and of conditions."""

    lhs, rhs = logical_and(logical_or(A, C), logical_or(B, C)), logical_or(logical_and(A, B), C)
    fires = _TRUTHS


@rule(Property.DISTRIBUTIVE, numerics="exact")
class FactorConditionOfDifference:
    """And distributes over exclusive or of conditions."""

    lhs, rhs = logical_xor(logical_and(A, C), logical_and(B, C)), logical_and(logical_xor(A, B), C)
    fires = _TRUTHS


@rule(Property.DISTRIBUTIVE, numerics="exact")
class NegateAlternativeOnce:
    """De Morgan for conditions: neither of two."""

    lhs, rhs = logical_and(logical_not(A), logical_not(B)), logical_not(logical_or(A, B))
    fires = _TRUTHS


@rule(Property.DISTRIBUTIVE, numerics="exact")
class NegateConjunctionOnce:
    """De Morgan for conditions: not both of two."""

    lhs, rhs = logical_or(logical_not(A), logical_not(B)), logical_not(logical_and(A, B))
    fires = _TRUTHS


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class AddToMaximumOnce:
    """A common summand of what is compared; adding is monotone, rounding included."""

    lhs, rhs = maximum(A + C, B + C), maximum(A, B) + C
    fires = _THREE


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class AddToMinimumOnce:
    """A common summand of what is compared."""

    lhs, rhs = minimum(A + C, B + C), minimum(A, B) + C
    fires = _THREE


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class SubtractFromMaximumOnce:
    """A common subtrahend of what is compared."""

    lhs, rhs = maximum(A - C, B - C), maximum(A, B) - C
    fires = _THREE


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class SubtractFromMinimumOnce:
    """A common subtrahend of what is compared."""

    lhs, rhs = minimum(A - C, B - C), minimum(A, B) - C
    fires = _THREE


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class SubtractMinimumOnce:
    """The larger of two differences has the smaller subtrahend."""

    lhs, rhs = maximum(C - A, C - B), C - minimum(A, B)
    fires = _THREE


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class SubtractMaximumOnce:
    """The smaller of two differences has the larger subtrahend."""

    lhs, rhs = minimum(C - A, C - B), C - maximum(A, B)
    fires = _THREE


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class FactorCommonLimit:
    """Minimum distributes over maximum."""

    lhs, rhs = maximum(minimum(A, C), minimum(B, C)), minimum(maximum(A, B), C)
    fires = _THREE
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class FactorCommonFloor:
    """Maximum distributes over minimum."""

    lhs, rhs = minimum(maximum(A, C), maximum(B, C)), maximum(minimum(A, B), C)
    fires = _THREE
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class NegateMinimum:
    """The larger of two negatives is the negative of the smaller."""

    lhs, rhs = maximum(-A, -B), -minimum(A, B)
    fires = [dict(A=_BIG, B=_BIG)]


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class NegateMaximum:
    """The smaller of two negatives is the negative of the larger."""

    lhs, rhs = minimum(-A, -B), -maximum(A, B)
    fires = [dict(A=_BIG, B=_BIG)]


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class ScaleMaximumOnce:
    """A common factor of what is compared, unless it may be negative."""

    lhs, rhs = maximum(A * C, B * C), maximum(A, B) * C
    fires = _THREE
    nonnegative = (C,)


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class ScaleMinimumOnce:
    """A common factor of what is compared, unless it may be negative."""

    lhs, rhs = minimum(A * C, B * C), minimum(A, B) * C
    fires = _THREE
    nonnegative = (C,)


@rule(Property.DISTRIBUTIVE, numerics="exact")
class ChooseLeftOperand:
    """A choice between two results is one between left operands, if the right one is common."""

    lhs, rhs = where(M, g(A, C), g(B, C)), g(where(M, A, B), C)
    fires = _MASKED


@rule(Property.DISTRIBUTIVE, numerics="exact")
class ChooseRightOperand:
    """A choice between two results is one between right operands, if the left one is common."""

    lhs, rhs = where(M, g(C, A), g(C, B)), g(C, where(M, A, B))
    fires = _MASKED


@rule(Property.DISTRIBUTIVE, numerics="exact")
class ChooseBeforeUnary:
    """A choice between two results of one operator is one between its operands."""

    lhs, rhs = where(M, f(A), f(B)), f(where(M, A, B))
    fires = [dict(M=Probe(_BIG, "bool"), A=_BIG, B=_BIG)]
