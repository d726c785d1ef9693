"""The language in which equations are written: operators on variables, attributes included, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


class Term:
    """One side of an equation, or a part of it; Python's arithmetic builds bigger ones."""

    def __add__(self, other: Term | float) -> Operation:
        return Operation("add", (self, as_term(other)))

    def __radd__(self, other: float) -> Operation:
        return Operation("add", (as_term(other), self))

    def __sub__(self, other: Term | float) -> Operation:
        return Operation("subtract", (self, as_term(other)))

    def __rsub__(self, other: float) -> Operation:
        return Operation("subtract", (as_term(other), self))

    def __mul__(self, other: Term | float) -> Operation:
        return Operation("multiply", (self, as_term(other)))

    def __rmul__(self, other: float) -> Operation:
        return Operation("multiply", (as_term(other), self))

    def __truediv__(self, other: Term | float) -> Operation:
        return Operation("divide", (self, as_term(other)))

    def __rtruediv__(self, other: float) -> Operation:
        return Operation("divide", (as_term(other), self))

    def __neg__(self) -> Operation:
        return Operation("negative", (self,))


@dataclass(frozen=True)
class Variable(Term):
    """Any tensor; only a constant one if ``constant``."""

    name: str
    constant: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Literal(Term):
    """A constant all elements of which are ``value``, in the dtype of its surroundings."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True)
class OperatorVariable:
    """Any operator of ``names``, attributes included; the same one wherever it occurs in an equation."""

    name: str
    names: frozenset[str]

    def __call__(self, *args: Term | Each, **attributes: Any) -> Operation:
        return Operation(self, args, attributes)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class AttributeVariable:
    """Any value of an attribute."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Calculation:
    """An attribute computed from others: ``function(match, *arguments)``.

    The function raises :class:`Inapplicable` where the equation does not hold.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.function.__name__}({', '.join(map(str, self.arguments))})"


class Inapplicable(Exception):
    """The equation does not hold for these shapes and attributes; the text says why."""


def calculation(function: Callable[..., Any]) -> Callable[..., Calculation]:
    """Make ``function(match, *values)`` usable in equations, where it is called without the match."""
    return lambda *arguments: Calculation(function, arguments)


@dataclass(frozen=True)
class Each:
    """All operands of an operator with any number of them, each of the form ``term``.

    Variables of ``shared`` stand for the same tensor in all of them, the others for one tensor each.
    """

    term: Term
    shared: tuple[Variable, ...] = ()

    def __str__(self) -> str:
        return f"{self.term}, ..."


@dataclass(frozen=True)
class Operation(Term):
    """An operator applied; attributes that are not named are not constrained on the left of an equation."""

    operator: str | OperatorVariable
    operands: tuple[Term | Each, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.operator, self.operands, tuple(sorted(self.attributes))))

    def __str__(self) -> str:
        operator = str(self.operator)
        if operator in _INFIX:
            left, right = (f"({o})" if _is_infix(o) else str(o) for o in self.operands)
            return f"{left} {_INFIX[operator]} {right}"
        inside = [*map(str, self.operands), *(f"{k}={v}" for k, v in self.attributes.items())]
        return f"{operator.removeprefix('nn.')}({', '.join(inside)})"


def _is_infix(term: Term | Each) -> bool:
    return isinstance(term, Operation) and term.operator in _INFIX


def as_term(value: Term | float) -> Term:
    """A number as a literal."""
    return value if isinstance(value, Term) else Literal(float(value))


def operator(name: str) -> Callable[..., Operation]:
    """A function that applies the operator ``name`` to terms, attributes as keywords."""

    def apply(*operands: Term | Each | float, **attributes: Any) -> Operation:
        terms = tuple(o if isinstance(o, Each) else as_term(o) for o in operands)
        return Operation(name, terms, attributes)

    return apply


def variables(names: str) -> Iterator[Variable]:
    """Variables of these names, separated by blanks."""
    return (Variable(name) for name in names.split())


def constants(names: str) -> Iterator[Variable]:
    """Variables that stand for constants only."""
    return (Variable(name, constant=True) for name in names.split())


def attributes(names: str) -> Iterator[AttributeVariable]:
    """Variables for attributes."""
    return (AttributeVariable(name) for name in names.split())


def subterms(term: Term | Each) -> Iterator[Term]:
    """``term`` and everything in it, from the root down."""
    if isinstance(term, Each):
        yield from subterms(term.term)
        return
    yield term
    if isinstance(term, Operation):
        for operand in term.operands:
            yield from subterms(operand)


def commuted(term: Term, commutative: frozenset[str]) -> list[Term]:
    """``term`` with the operands of commutative operators in every order; ``term`` itself first."""
    if not isinstance(term, Operation):
        return [term]
    choices: list[tuple[Term | Each, ...]] = [()]
    for operand in term.operands:
        if isinstance(operand, Each):
            forms: list[Term | Each] = [Each(t, operand.shared) for t in commuted(operand.term, commutative)]
        else:
            forms = list(commuted(operand, commutative))
        choices = [(*chosen, form) for chosen in choices for form in forms]
    found = [Operation(term.operator, chosen, term.attributes) for chosen in choices]
    if _commutes(term, commutative):
        found += [Operation(term.operator, chosen[::-1], term.attributes) for chosen in choices]
    return list(dict.fromkeys(found))


def _commutes(term: Operation, commutative: frozenset[str]) -> bool:
    names = {term.operator} if isinstance(term.operator, str) else term.operator.names
    return len(term.operands) == 2 and names <= commutative
