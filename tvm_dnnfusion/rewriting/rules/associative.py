"""Regrouping operands, so that small ones and constants meet each other before they meet a large one."""

from __future__ import annotations

from ..language import A, B, C, D, absolute, c, d, exp, left_shift, power, right_shift, rsqrt, sqrt
from ..matching import Match
from ..operators import BITWISE, LOGICAL
from ..pattern import OperatorVariable
from ..rule import Probe, Property, rule

_BIG, _ROW = (8, 16), (16,)
_LAST_TWO = [
    dict(A=_BIG, B=_ROW, C=_ROW),
    dict(A=(3, 5, 7), B=Probe((7,), constant=True), C=Probe((), constant=True)),
]
_OUTER = [dict(A=_BIG, B=_ROW, C=_BIG), dict(A=(4, 6), B=(1, 6), C=(4, 6))]
_HALF = Probe(_BIG, "float16")
_NARROW = [(dict(A=_HALF, B=_HALF, C=_HALF), "range")]
_OVERFLOW = [
    (dict(A=_BIG, B=Probe((), constant=True, value=1e30), C=Probe((), constant=True, value=1e30)), "overflow")
]
_UNDERFLOW = [
    (
        dict(A=_BIG, B=Probe((), constant=True, value=1e-30), C=Probe((), constant=True, value=1e-30)),
        "underflow",
    )
]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class AddSmallOperandsFirst:
    """Two small summands are added to each other before they are added to a large one."""

    lhs, rhs = (A + B) + C, A + (B + C)
    fires = _LAST_TWO
    refuses = _NARROW
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SubtractSmallSummand:
    """A small summand and a small subtrahend meet first."""

    lhs, rhs = (A + B) - C, A + (B - C)
    fires = _LAST_TWO
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class AddToSmallSubtrahend:
    """A small subtrahend and a small summand meet first."""

    lhs, rhs = (A - B) + C, A - (B - C)
    fires = _LAST_TWO
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class AddToSmallMinuend:
    """A small minuend and a small summand meet first."""

    lhs, rhs = (A - B) + C, (A + C) - B
    fires = [dict(A=_ROW, B=_BIG, C=_ROW)]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class AddSmallSubtrahends:
    """Two small subtrahends are added to each other."""

    lhs, rhs = (A - B) - C, A - (B + C)
    fires = _LAST_TWO
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SubtractFromSmallMinuend:
    """A small minuend and the last, small subtrahend meet first."""

    lhs, rhs = (A - B) - C, (A - C) - B
    fires = [dict(A=_ROW, B=_BIG, C=_ROW)]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SplitSubtractedSum:
    """A small minuend meets the small part of a subtracted sum."""

    lhs, rhs = A - (B + C), (A - B) - C
    fires = [dict(A=_ROW, B=_ROW, C=_BIG)]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SplitSubtractedDifference:
    """A small minuend meets the small minuend of a subtracted difference."""

    lhs, rhs = A - (B - C), (A - B) + C
    fires = [dict(A=_ROW, B=_ROW, C=_BIG)]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class AddSubtractedSubtrahend:
    """A small minuend meets the small subtrahend of a subtracted difference."""

    lhs, rhs = A - (B - C), (A + C) - B
    fires = [dict(A=_ROW, B=_BIG, C=_ROW)]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplySmallFactorsFirst:
    """Two small factors are multiplied by each other before a large one."""

    lhs, rhs = (A * B) * C, A * (B * C)
    fires = _LAST_TWO
    refuses = [*_NARROW, *_OVERFLOW, *_UNDERFLOW]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class DivideSmallFactor:
    """A small factor is divided by a small divisor."""

    lhs, rhs = (A * B) / C, A * (B / C)
    fires = _LAST_TWO
    refuses = [
        (dict(A=_BIG, B=Probe((), constant=True, value=1), C=Probe((), constant=True, value=0)), "overflows")
    ]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class DivideSmallDivisor:
    """A small divisor is divided by a small factor."""

    lhs, rhs = (A / B) * C, A / (B / C)
    fires = _LAST_TWO


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplySmallDividend:
    """A small dividend meets a small factor."""

    lhs, rhs = (A / B) * C, (A * C) / B
    fires = [dict(A=_ROW, B=_BIG, C=_ROW)]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplySmallDivisors:
    """Two small divisors are multiplied by each other."""

    lhs, rhs = (A / B) / C, A / (B * C)
    fires = _LAST_TWO
    refuses = _OVERFLOW


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class DivideSmallDividend:
    """A small dividend meets the last, small divisor."""

    lhs, rhs = (A / B) / C, (A / C) / B
    fires = [dict(A=_ROW, B=_BIG, C=_ROW)]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SplitDividingProduct:
    """A small dividend meets the small factor of its divisor."""

    lhs, rhs = A / (B * C), (A / B) / C
    fires = [dict(A=_ROW, B=_ROW, C=_BIG)]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SplitDividingQuotient:
    """A small dividend meets the small dividend of its divisor."""

    lhs, rhs = A / (B / C), (A / B) * C
    fires = [dict(A=_ROW, B=_ROW, C=_BIG)]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplyByDividingDivisor:
    """A small dividend meets the small divisor of its divisor."""

    lhs, rhs = A / (B / C), (A * C) / B
    fires = [dict(A=_ROW, B=_BIG, C=_ROW)]


_PAIRS = [
    dict(A=_BIG, B=_ROW, C=_BIG, D=_ROW),
    dict(A=_BIG, B=Probe((), constant=True), C=_BIG, D=Probe((), constant=True)),
]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class AddSmallOfTwoSums:
    """The small parts of two sums meet first."""

    lhs, rhs = (A + B) + (C + D), (A + C) + (B + D)
    fires = _PAIRS
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SubtractSmallOfTwoSums:
    """The small parts of a difference of sums meet first."""

    lhs, rhs = (A + B) - (C + D), (A - C) + (B - D)
    fires = _PAIRS
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MultiplySmallOfTwoProducts:
    """The small factors of two products meet first."""

    lhs, rhs = (A * B) * (C * D), (A * C) * (B * D)
    fires = _PAIRS
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class DivideSmallOfTwoProducts:
    """The small factors of a quotient of products meet first."""

    lhs, rhs = (A * B) / (C * D), (A / C) * (B / D)
    fires = _PAIRS


bitwise = OperatorVariable("bitwise", frozenset(BITWISE))
logical = OperatorVariable("logical", frozenset(LOGICAL))
extremum = OperatorVariable("extremum", frozenset({"maximum", "minimum"}))


@rule(Property.ASSOCIATIVE, numerics="exact")
class CombineSmallBitsFirst:
    """Small operands of and, or, xor of integers meet first."""

    lhs, rhs = bitwise(bitwise(A, B), C), bitwise(A, bitwise(B, C))
    fires = [dict(A=_BIG, B=_ROW, C=_ROW)]
    floats = False


@rule(Property.ASSOCIATIVE, numerics="exact")
class CombineSmallTruthsFirst:
    """Small operands of and, or, xor of booleans meet first."""

    lhs, rhs = logical(logical(A, B), C), logical(A, logical(B, C))
    fires = [dict(A=_BIG, B=_ROW, C=_ROW)]


@rule(Property.ASSOCIATIVE, numerics="finite_only")
class CompareSmallOperandsFirst:
    """Small operands of a maximum or a minimum meet first; beside NaN the order of operands matters."""

    lhs, rhs = extremum(extremum(A, B), C), extremum(A, extremum(B, C))
    fires = [dict(A=_BIG, B=_ROW, C=_ROW)]
    integers = True


def _fits(m: Match) -> str | None:
    first, second = m.uniform(c), m.uniform(d)
    if first is None or second is None or min(first, second) < 0:
        return "shift amounts that differ between elements or are negative"
    bits = int("".join(filter(str.isdigit, m.info(A).dtype)))
    amount = first + second
    return None if amount < bits else f"a shift by {amount:.0f} of {bits} bits is undefined"


_INT = Probe(_BIG, "int32")
_THREE = Probe((), "int32", constant=True, value=3)
_LONG = Probe((), "int32", constant=True, value=20)


@rule(Property.ASSOCIATIVE, numerics="exact")
class MergeLeftShifts:
    """One left shift for two."""

    lhs, rhs = left_shift(left_shift(A, c), d), left_shift(A, c + d)
    fires = [dict(A=_INT, c=_THREE, d=_THREE)]
    refuses = [(dict(A=_INT, c=_LONG, d=_LONG), "undefined")]
    floats = False
    why_not = staticmethod(_fits)


@rule(Property.ASSOCIATIVE, numerics="exact")
class MergeRightShifts:
    """One right shift for two."""

    lhs, rhs = right_shift(right_shift(A, c), d), right_shift(A, c + d)
    fires = [dict(A=_INT, c=_THREE, d=_THREE)]
    refuses = [(dict(A=_INT, c=_LONG, d=_LONG), "undefined")]
    floats = False
    why_not = staticmethod(_fits)


@rule(Property.ASSOCIATIVE, numerics="finite_only")
class MergePowers:
    """One power for two; a negative base would lose its sign."""

    lhs, rhs = power(power(A, c), d), power(A, c * d)
    fires = [dict(A=_BIG, c=Probe((), value=3), d=Probe((), value=0.5))]
    nonnegative = (A,)


@rule(Property.ASSOCIATIVE, numerics="finite_only")
class MergeExponentialFactors:
    """One exponential of a sum for two factors; either alone may overflow."""

    lhs, rhs = (A * exp(B)) * exp(C), A * exp(B + C)
    fires = [dict(A=_BIG, B=_BIG, C=_BIG)]


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MergeSharedReciprocalRoots:
    """Two factors 1/sqrt(B) are 1/B."""

    lhs, rhs = (A * rsqrt(B)) * (rsqrt(B) * C), (A * C) / B
    fires = [dict(A=_BIG, B=_BIG, C=_BIG)]
    defined = (B,)


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MergeRepeatedReciprocalRoot:
    """Dividing twice by sqrt(B) is dividing by B."""

    lhs, rhs = (A / sqrt(B)) / sqrt(B), A / B
    fires = [dict(A=_BIG, B=_BIG)]
    defined = (B,)


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MergeRepeatedRoot:
    """Multiplying twice by sqrt(B) is multiplying by B."""

    lhs, rhs = (A * sqrt(B)) * sqrt(B), A * B
    fires = [dict(A=_BIG, B=_BIG)]
    defined = (B,)


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SquareRepeatedAbsolute:
    """A square needs no absolute value."""

    lhs, rhs = (A * absolute(B)) * absolute(B), A * (B * B)
    fires = [dict(A=_BIG, B=_BIG)]
    integers = True


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class DivideAbsoluteFactors:
    """One absolute value of a quotient for dividend and divisor."""

    lhs, rhs = (A * absolute(B)) / absolute(C), A * absolute(B / C)
    fires = [dict(A=_BIG, B=_BIG, C=_BIG)]
