"""What does not vary along a reduced axis, taken out of the reduction."""

from __future__ import annotations

from ..calculations import without_reduced
from ..language import A, C, K, P, highest, lowest, mean, reshape, total
from ..matching import Match
from ..pattern import OperatorVariable
from ..rule import Probe, Property, rule

additive = OperatorVariable("reduce", frozenset({"sum", "mean"}))
extreme = OperatorVariable("reduce", frozenset({"max", "min"}))
_OVER = [
    dict(A=(6, 8), C=(), P=(1,), K=False),
    dict(A=(6, 8), C=(6, 1), P=(1,), K=True),
    dict(A=(4, 5, 6), C=(5, 1), P=(0, 2), K=False),
]
_VARIES = [(dict(A=(6, 8), C=(8,), P=(1,), K=False, reduce="sum"), "varies")]
_MAX_VARIES = [({**probe, "reduce": "max"}, reason) for probe, reason in _VARIES]


def _not_wider(m: Match) -> str | None:
    rank = len(m.shape(A))
    fits = len(m.shape(C)) <= rank and all(
        n in (1, w) for n, w in zip(m.shape(C)[::-1], m.shape(A)[::-1], strict=False)
    )
    return None if fits else "broadcast: the operand is larger than what is reduced"


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleSumOnce:
    """A common factor of summands multiplies the sum or mean."""

    lhs = additive(A * C, axes=P, keepdims=K)
    rhs = additive(A, axes=P, keepdims=K) * reshape(C, shape=without_reduced(C, P, K))
    fires = _OVER
    refuses = _VARIES
    why_not = staticmethod(_not_wider)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideSumOnce:
    """A common divisor of summands divides the sum or mean."""

    lhs = additive(A / C, axes=P, keepdims=K)
    rhs = additive(A, axes=P, keepdims=K) / reshape(C, shape=without_reduced(C, P, K))
    fires = _OVER
    refuses = _VARIES
    why_not = staticmethod(_not_wider)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class NegateReducedSumOnce:
    """The sum or mean of negatives."""

    lhs, rhs = additive(-A, axes=P, keepdims=K), -additive(A, axes=P, keepdims=K)
    fires = [dict(A=(6, 8), P=(1,), K=False)]


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ShiftMeanOnce:
    """A common summand shifts the mean."""

    lhs = mean(A + C, axes=P, keepdims=K)
    rhs = mean(A, axes=P, keepdims=K) + reshape(C, shape=without_reduced(C, P, K))
    fires = _OVER
    why_not = staticmethod(_not_wider)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class LowerMeanOnce:
    """A common subtrahend lowers the mean."""

    lhs = mean(A - C, axes=P, keepdims=K)
    rhs = mean(A, axes=P, keepdims=K) - reshape(C, shape=without_reduced(C, P, K))
    fires = _OVER
    why_not = staticmethod(_not_wider)


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class ShiftExtremeOnce:
    """A common summand shifts the largest or smallest element."""

    lhs = extreme(A + C, axes=P, keepdims=K)
    rhs = extreme(A, axes=P, keepdims=K) + reshape(C, shape=without_reduced(C, P, K))
    fires = _OVER
    refuses = _MAX_VARIES
    why_not = staticmethod(_not_wider)


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class LowerExtremeOnce:
    """A common subtrahend lowers the largest or smallest element."""

    lhs = extreme(A - C, axes=P, keepdims=K)
    rhs = extreme(A, axes=P, keepdims=K) - reshape(C, shape=without_reduced(C, P, K))
    fires = _OVER
    refuses = _MAX_VARIES
    why_not = staticmethod(_not_wider)


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class ScaleExtremeOnce:
    """A common factor, unless it may be negative, multiplies the largest or smallest element."""

    lhs = extreme(A * C, axes=P, keepdims=K)
    rhs = extreme(A, axes=P, keepdims=K) * reshape(C, shape=without_reduced(C, P, K))
    fires = _OVER
    refuses = [(dict(A=(6, 8), C=(), P=(1,), K=False, reduce="max"), "negative")]
    nonnegative = (C,)
    why_not = staticmethod(_not_wider)


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class NegateLowest:
    """The largest of negatives is the negative of the smallest."""

    lhs, rhs = highest(-A, axes=P, keepdims=K), -lowest(A, axes=P, keepdims=K)
    fires = [dict(A=(6, 8), P=(1,), K=False)]


@rule(Property.DISTRIBUTIVE, numerics="finite_only")
class NegateHighest:
    """The smallest of negatives is the negative of the largest."""

    lhs, rhs = lowest(-A, axes=P, keepdims=K), -highest(A, axes=P, keepdims=K)
    fires = [dict(A=(6, 8), P=(1,), K=False)]


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class SumScaledRowsOnce:
    """The sum of integers or floats times one number."""

    lhs, rhs = total(A * C, axes=P, keepdims=K), total(A, axes=P, keepdims=K) * C
    fires = [dict(A=Probe((6, 8), "int32"), C=Probe((), "int32"), P=(1,), K=False)]
    integers = True
    floats = False

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if m.info(C).size == 1 and not m.shape(C) else "the factor is not one number"
