"""Functions and operators in either order: homomorphisms, odd, even and monotone functions."""

from __future__ import annotations

import numpy as np

from ..language import A, B, C, K, P, absolute, c, exp, log, maximum, negative, power, relu, rsqrt, sqrt
from ..matching import Match
from ..pattern import OperatorVariable
from ..rule import Enables, Probe, Property, rule

_BIG = (8, 16)
_TWO = [dict(A=_BIG, B=_BIG)]
extremum = OperatorVariable("extremum", frozenset({"maximum", "minimum"}))
extreme = OperatorVariable("reduce", frozenset({"max", "min"}))
rising = OperatorVariable(
    "f",
    frozenset(
        [
            "exp",
            "log",
            "log2",
            "log10",
            "sqrt",
            "tanh",
            "sigmoid",
            "erf",
            "atan",
            "sinh",
            "nn.relu",
            "floor",
            "ceil",
            "round",
            "trunc",
        ]
    ),
)
even = OperatorVariable("f", frozenset({"abs", "cos", "cosh"}))
odd = OperatorVariable("f", frozenset({"sin", "tan", "tanh", "sinh", "asin", "atan", "erf"}))


@rule(Property.COMMUTATIVE, numerics="finite_only")
class MultiplyExponentials:
    """One exponential of a sum for a product of two; either alone may overflow."""

    lhs, rhs = exp(A) * exp(B), exp(A + B)
    fires = _TWO


@rule(Property.COMMUTATIVE, numerics="finite_only")
class DivideExponentials:
    """One exponential of a difference for a quotient of two."""

    lhs, rhs = exp(A) / exp(B), exp(A - B)
    fires = _TWO


@rule(Property.COMMUTATIVE, numerics="finite_only")
class AddLogarithms:
    """One logarithm of a product for a sum of two; the product may overflow."""

    lhs, rhs = log(A) + log(B), log(A * B)
    fires = _TWO
    defined = (A, B)


@rule(Property.COMMUTATIVE, numerics="finite_only")
class SubtractLogarithms:
    """One logarithm of a quotient for a difference of two."""

    lhs, rhs = log(A) - log(B), log(A / B)
    fires = _TWO
    defined = (A, B)


@rule(Property.COMMUTATIVE, numerics="finite_only")
class MultiplyRoots:
    """One square root of a product for two roots; the product may overflow."""

    lhs, rhs = sqrt(A) * sqrt(B), sqrt(A * B)
    fires = _TWO
    defined = (A, B)


@rule(Property.COMMUTATIVE, numerics="finite_only")
class DivideRoots:
    """One square root of a quotient for two roots."""

    lhs, rhs = sqrt(A) / sqrt(B), sqrt(A / B)
    fires = _TWO
    defined = (A, B)


@rule(Property.COMMUTATIVE, numerics="finite_only")
class MultiplyReciprocalRoots:
    """One reciprocal square root of a product for two."""

    lhs, rhs = rsqrt(A) * rsqrt(B), rsqrt(A * B)
    fires = _TWO
    defined = (A, B)


@rule(Property.COMMUTATIVE, numerics="exact")
class MultiplyAbsoluteValues:
    """One absolute value of a product for two; rounding does not see signs."""

    lhs, rhs = absolute(A) * absolute(B), absolute(A * B)
    fires = _TWO
    integers = False


@rule(Property.COMMUTATIVE, numerics="exact")
class DivideAbsoluteValues:
    """One absolute value of a quotient for two."""

    lhs, rhs = absolute(A) / absolute(B), absolute(A / B)
    fires = _TWO
    integers = False


@rule(Property.COMMUTATIVE, numerics="finite_only")
class MultiplyPowers:
    """One power of a product for two with the same exponent."""

    lhs, rhs = power(A, C) * power(B, C), power(A * B, C)
    fires = [dict(A=_BIG, B=_BIG, C=())]
    defined = (A, B)


@rule(Property.COMMUTATIVE, numerics="finite_only")
class AddExponents:
    """One power of a sum of exponents for two powers of the same base."""

    lhs, rhs = power(A, B) * power(A, C), power(A, B + C)
    fires = [dict(A=_BIG, B=_BIG, C=_BIG)]
    defined = (A,)


@rule(Property.COMMUTATIVE, numerics="exact")
class MultiplyNegatives:
    """Two negative factors."""

    lhs, rhs = (-A) * (-B), A * B
    fires = _TWO


@rule(Property.COMMUTATIVE, numerics="exact")
class DivideNegatives:
    """Negative dividend and divisor."""

    lhs, rhs = (-A) / (-B), A / B
    fires = _TWO
    integers = False


@rule(Property.COMMUTATIVE, numerics="exact")
class EvenFunctionOfNegative:
    """An even function does not see the sign."""

    lhs, rhs = even(negative(A)), even(A)
    fires = [dict(A=_BIG)]


@rule(Property.COMMUTATIVE, numerics="reassociates")
class OddFunctionOfNegative:
    """The sign waits for an odd function, to meet another one."""

    lhs, rhs = odd(negative(A)), -odd(A)
    fires = [dict(A=_BIG)]
    enables = Enables(absolute(odd(negative(A))), dict(A=_BIG, f="tanh"))


@rule(Property.COMMUTATIVE, numerics="exact")
class MultiplyByNegative:
    """The sign waits for a multiplication, to meet another one."""

    lhs, rhs = A * (-B), -(A * B)
    fires = _TWO
    enables = Enables(absolute(A * (-B)), dict(A=_BIG, B=_BIG))


@rule(Property.COMMUTATIVE, numerics="exact")
class DivideByNegative:
    """The sign waits for a division, to meet another one."""

    lhs, rhs = A / (-B), -(A / B)
    fires = _TWO
    integers = False
    enables = Enables(absolute(A / (-B)), dict(A=_BIG, B=_BIG))


@rule(Property.COMMUTATIVE, numerics="exact")
class DivideNegativeDividend:
    """The sign of a dividend waits for the division."""

    lhs, rhs = (-A) / B, -(A / B)
    fires = _TWO
    integers = False
    enables = Enables(absolute((-A) / B), dict(A=_BIG, B=_BIG))


@rule(Property.COMMUTATIVE, numerics="finite_only")
class CompareBeforeRisingFunction:
    """A rising function of the larger or smaller operand, once; beside NaN the order of operands matters."""

    lhs, rhs = extremum(rising(A), rising(B)), rising(extremum(A, B))
    fires = [dict(A=Probe(_BIG, low=0.5), B=Probe(_BIG, low=0.5))]


@rule(Property.COMMUTATIVE, numerics="finite_only")
class SelectBeforeRisingFunction:
    """A rising function of the largest or smallest element instead of all."""

    lhs, rhs = extreme(rising(A), axes=P, keepdims=K), rising(extreme(A, axes=P, keepdims=K))
    fires = [dict(A=Probe(_BIG, low=0.5), P=(1,), K=False)]


@rule(Property.COMMUTATIVE, numerics="exact")
class ScaleBeforeRelu:
    """A positive factor goes ahead of a relu, to meet the weights of a linear operator before it."""

    lhs, rhs = relu(A) * c, relu(A * c)
    fires = [dict(A=_BIG, c=Probe((), value=2)), dict(A=_BIG, c=Probe((16,), value=0.5))]
    refuses = [
        (dict(A=_BIG, c=Probe((), value=-2)), "positive"),
        (dict(A=_BIG, c=Probe((), value=0)), "positive"),
    ]
    integers = False
    enables = Enables(relu(A * c) * c, dict(A=_BIG, c=Probe((), value=2)))

    @staticmethod
    def why_not(m: Match) -> str | None:
        values = m.value(c)
        positive = bool(np.all((values > 0) & np.isfinite(values)))
        return None if positive else "a factor that is not positive and finite"


@rule(Property.COMMUTATIVE, numerics="exact")
class MaximumOfItselfOnce:
    """What was compared already needs no second comparison, in this order of operands even beside NaN."""

    lhs, rhs = maximum(A, maximum(A, B)), maximum(A, B)
    fires = _TWO
