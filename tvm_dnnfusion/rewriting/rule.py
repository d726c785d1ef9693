"""What a rule is, and the registry of all of them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import RegistrationError
from .matching import Match
from .operators import COMMUTATIVE, COMMUTATIVE_IF_FINITE, ELEMENTWISE
from .pattern import AttributeVariable, Calculation, Literal, Operation, Term, Variable, commuted, subterms


class Property(enum.Enum):
    """The mathematical property that an equation rests on; the paper's three, and what enables them."""

    ASSOCIATIVE = "associative"
    DISTRIBUTIVE = "distributive"
    COMMUTATIVE = "commutative"
    IDENTITY = "identity"


class Licence(enum.IntEnum):
    """What an equation may change of a floating-point result, the least first.

    ``EXACT``: nothing, infinities, NaN and the sign of zero included. ``REASSOCIATES``: the rounding, but
    finite values stay finite and others stay what they are. ``FINITE_ONLY``: it holds where no input, result
    or intermediate value is infinite or NaN.
    """

    EXACT = 0
    REASSOCIATES = 1
    FINITE_ONLY = 2

    @property
    def text(self) -> str:
        """As it is written in declarations and tables."""
        return self.name.lower()


# The weakest licence that each value of the option ``numerics`` allows.
NUMERICS = {"strict": Licence.EXACT, "relaxed": Licence.REASSOCIATES, "fast": Licence.FINITE_ONLY}


@dataclass(frozen=True)
class Probe:
    """An operand on which a rule is tried: shape, dtype, and what its values must be.

    Attributes
    ----------
    constant
        Whether it is a constant of the graph.
    value
        All its elements; random ones by default.
    below
        Integers are drawn from 0 to this, exclusively.
    low
        Floats are drawn from this upwards, special ones too.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    constant: bool = False
    value: float | None = None
    below: int = 0
    low: float | None = None


@dataclass(frozen=True)
class Enables:
    """What a rule that saves nothing itself makes possible: ``term`` gets cheaper with it, not without."""

    term: Term
    probe: dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """An equation that is used from left to right.

    Attributes
    ----------
    name
        Unique, ``VerbObject``.
    kind
        The property that it rests on.
    licence
        What it may change over floats.
    summary
        One line.
    lhs, rhs
        Both sides.
    fires
        Operands and attributes, by variable, on which it is proved.
    refuses
        Operands and attributes on which it must not fire, each with a part of the reason.
    integers
        Whether it holds for integers, modulo 2^n; by default if it is exact.
    floats
        Whether it is a rule for floats at all.
    nonnegative
        Variables that must not be negative for the equation to hold, which must show in the graph.
    defined
        Variables for whose negative values the left side is NaN, so that the equation holds wherever that
        is finite. Unless they show not to be negative the rule assumes finite values.
    enables
        For rules that save nothing themselves.
    source
        ``paper Table 4`` or ``derived``.
    why_not
        Reason not to use a match beyond what types and licences tell; None: none.
    """

    name: str
    kind: Property
    licence: Licence
    summary: str
    lhs: Operation
    rhs: Term
    fires: tuple[dict[str, Any], ...]
    refuses: tuple[tuple[dict[str, Any], str], ...] = ()
    integers: bool | None = None
    floats: bool = True
    nonnegative: tuple[Variable, ...] = ()
    defined: tuple[Variable, ...] = ()
    enables: Enables | None = None
    source: str = "derived"
    why_not: Callable[[Match], str | None] = field(default=lambda match: None)

    @cached_property
    def variants(self) -> tuple[Operation, ...]:
        """``lhs`` with the operands of commutative operators in every order."""
        finite = self.licence is Licence.FINITE_ONLY or not self.floats
        found = commuted(self.lhs, COMMUTATIVE_IF_FINITE if finite else COMMUTATIVE)
        return tuple(term for term in found if isinstance(term, Operation))

    @property
    def holds_for_integers(self) -> bool:
        """Whether it may be used on integers."""
        return self.licence is Licence.EXACT if self.integers is None else self.integers

    @cached_property
    def needs_sizes(self) -> bool:
        """Whether it saves only where operands are of different sizes: as many operators on both sides."""
        sides = [[p for p in subterms(side) if isinstance(p, Operation)] for side in (self.lhs, self.rhs)]
        plain = all(isinstance(p.operator, str) and p.operator in ELEMENTWISE for side in sides for p in side)
        literal = any(isinstance(p, Literal) for p in subterms(self.rhs))
        return plain and not literal and len(sides[0]) <= len(sides[1])

    @property
    def equation(self) -> str:
        """Both sides as text."""
        return f"{self.lhs} -> {self.rhs}"


RULES: dict[str, Rule] = {}


def rule(property: Property, numerics: str, registry: dict[str, Rule] = RULES) -> Callable[[Any], Any]:
    """Class decorator that declares a rule; see :class:`Rule` for what the class body may set.

    Parameters
    ----------
    property
        What the equation rests on.
    numerics
        ``exact``, ``reassociates`` or ``finite_only``.
    registry
        Where it goes.

    Raises
    ------
    RegistrationError
        A name that is taken, or a declaration that is incomplete.
    """

    def declare(body: Any) -> Any:
        registered = _rule_of(body, property, numerics)
        if registered.name in registry:
            raise RegistrationError(f"a rule {registered.name} exists already; choose another name")
        registry[registered.name] = registered
        return body

    return declare


_FIELDS = ("refuses", "integers", "floats", "nonnegative", "defined", "enables", "source", "why_not")


def _rule_of(body: Any, property: Property, numerics: str) -> Rule:
    name = body.__name__
    licences = {licence.text: licence for licence in Licence}
    if numerics not in licences:
        raise RegistrationError(f"rule {name}: numerics {numerics!r}; accepted are {', '.join(licences)}")
    for attribute in ("lhs", "rhs", "fires"):
        if not hasattr(body, attribute):
            raise RegistrationError(f"rule {name} declares no {attribute}")
    if not isinstance(body.lhs, Operation):
        raise RegistrationError(f"rule {name}: its left side is {body.lhs}; an operator is accepted")
    unbound = _names(body.rhs) - _names(body.lhs)
    if unbound:
        raise RegistrationError(f"rule {name}: {', '.join(sorted(unbound))} occur on the right side only")
    given = {f: getattr(body, f) for f in _FIELDS if hasattr(body, f)}
    if "why_not" in given:
        given["why_not"] = body.why_not
    for sequence in ("refuses", "nonnegative", "defined"):
        given[sequence] = tuple(given.get(sequence, ()))
    summary = (body.__doc__ or "").strip().splitlines()
    if not summary:
        raise RegistrationError(f"rule {name} has no docstring; its first line says what the rule gains")
    return Rule(
        name, property, licences[numerics], summary[0], body.lhs, body.rhs, tuple(body.fires), **given
    )


def _names(term: Term) -> set[str]:
    """Names of the variables, of tensors and of attributes, in a term."""
    found: set[str] = set()
    for part in subterms(term):
        if isinstance(part, Variable):
            found.add(part.name)
        elif isinstance(part, Operation):
            if not isinstance(part.operator, str):
                found.add(part.operator.name)
            found |= {n for value in part.attributes.values() for n in _attribute_names(value)}
    return found


def _attribute_names(value: Any) -> set[str]:
    if isinstance(value, AttributeVariable | Variable):
        return {value.name}
    if isinstance(value, Calculation):
        return {n for argument in value.arguments for n in _attribute_names(argument)}
    return set()
