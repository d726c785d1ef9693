"""Table 4 of the paper, all ten rules, with its two misprints and its wrong row corrected."""

from __future__ import annotations

from ..language import A, B, C, K, P, absolute, c, exp, left_shift, product, sqrt, total
from ..matching import Match
from ..operators import COMMUTATIVE
from ..pattern import OperatorVariable
from ..rule import Enables, Probe, Property, rule

PAPER = "paper Table 4"
_ROWS = (8, 16)
swap = OperatorVariable("swap", COMMUTATIVE)


@rule(Property.ASSOCIATIVE, numerics="finite_only")
class SquareReciprocal:
    """A is read once. Published as 1/A^2 * B, which is wrong: B must divide."""

    lhs, rhs = (1 / A) * (1 / (A * B)), (1 / A) * (1 / A) * (1 / B)
    fires = [dict(A=_ROWS, B=_ROWS)]
    refuses = [(dict(A=Probe(_ROWS, "int32"), B=Probe(_ROWS, "int32")), "integers")]
    source = PAPER


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MergeSharedRoots:
    """Two factors sqrt(B) are B, unless B is negative."""

    lhs, rhs = (A * sqrt(B)) * (sqrt(B) * C), A * B * C
    fires = [dict(A=_ROWS, B=_ROWS, C=_ROWS)]
    defined = (B,)
    source = PAPER


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class MergeAbsoluteFactors:
    """One absolute value of a product for two of its factors."""

    lhs, rhs = absolute(A) * B * absolute(C), absolute(A * C) * B
    fires = [dict(A=_ROWS, B=_ROWS, C=_ROWS)]
    source = PAPER


@rule(Property.ASSOCIATIVE, numerics="reassociates")
class SquareSharedSum:
    """Two factors that are the same sum are squared while they are small."""

    lhs = (A * total(B, axes=P, keepdims=K)) * (total(B, axes=P, keepdims=K) * C)
    rhs = A * (total(B, axes=P, keepdims=K) * total(B, axes=P, keepdims=K)) * C
    fires = [dict(A=_ROWS, B=_ROWS, C=_ROWS, P=(1,), K=True)]
    integers = True
    source = PAPER


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class FactorCommonFactor:
    """One multiplication fewer. Published as (A+B)*C for A*C + A*B, a misprint."""

    lhs, rhs = A * C + A * B, A * (B + C)
    fires = [dict(A=_ROWS, B=_ROWS, C=_ROWS), dict(A=_ROWS, B=_ROWS, C=(1, 16))]
    integers = True
    source = PAPER


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class FactorTermFromProduct:
    """A is read once."""

    lhs, rhs = A + A * B, A * (B + 1)
    fires = [dict(A=_ROWS, B=_ROWS)]
    refuses = [(dict(A=Probe(_ROWS, "float16"), B=Probe(_ROWS, "float16")), "range")]
    integers = True
    source = PAPER


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class FactorSharedSum:
    """The square of a sum less a multiple of it: two operations fewer."""

    lhs, rhs = (A + B) * (A + B) - (A + B) * C, (A + B) * (A + B - C)
    fires = [dict(A=_ROWS, B=_ROWS, C=_ROWS)]
    integers = True
    source = PAPER


@rule(Property.COMMUTATIVE, numerics="exact")
class SwapOperands:
    """Commutative operators do not care; it lets other rules match."""

    lhs, rhs = swap(A, B), swap(B, A)
    fires = [dict(A=_ROWS, B=_ROWS)]
    enables = Enables(exp(A * B) - B * A, dict(A=_ROWS, B=_ROWS))
    source = PAPER


@rule(Property.COMMUTATIVE, numerics="exact")
class ShiftSumOnce:
    """A left shift by one amount is a multiplication, and commutes with the sum even modulo 2^n."""

    lhs = total(left_shift(A, c), axes=P, keepdims=K)
    rhs = left_shift(total(A, axes=P, keepdims=K), c)
    fires = [dict(A=Probe(_ROWS, "int32"), c=Probe((), "int32", constant=True, value=3), P=(1,), K=False)]
    refuses = [
        (dict(A=Probe(_ROWS, "int32"), c=Probe((16,), "int32", constant=True), P=(1,), K=False), "amount")
    ]
    floats = False
    source = PAPER

    @staticmethod
    def why_not(m: Match) -> str | None:
        return None if m.uniform(c) is not None else "the shift amount differs between elements"


@rule(Property.COMMUTATIVE, numerics="finite_only")
class ExponentialOfSum:
    """One exponential per sum instead of one per element; where a factor overflows, this does not."""

    lhs, rhs = product(exp(A), axes=P, keepdims=K), exp(total(A, axes=P, keepdims=K))
    fires = [dict(A=_ROWS, P=(1,), K=False), dict(A=(4, 3, 5), P=(0, 2), K=True)]
    source = PAPER
