"""Matching the left side of an equation in a graph of terms, and building its right side."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..ecg import TensorInfo
from .operators import Array, Attributes
from .pattern import (
    AttributeVariable,
    Calculation,
    Each,
    Literal,
    Operation,
    OperatorVariable,
    Term,
    Variable,
    subterms,
)
from .terms import Form

# Per variable: a term's number, a tuple of them under Each, an attribute's value, or an operator.
Bindings = dict[str, Any]


class Graph(Protocol):
    """What matching needs of a graph of terms."""

    def forms_of(self, number: int) -> Sequence[Form]:
        """Known forms of a term."""

    def info(self, number: int) -> TensorInfo:
        """Shape and dtype of a term."""

    def is_constant(self, number: int) -> bool:
        """Whether a term depends on constants alone."""

    def uniform(self, number: int) -> float | None:
        """The common value of a constant's elements."""

    def value(self, number: int) -> Array:
        """The value of a constant term."""

    def add(self, operator: str, operands: tuple[int, ...], attributes: Attributes) -> int:
        """The term of an operator on terms."""

    def constant(self, value: Array) -> int:
        """A constant term."""


@dataclass(frozen=True)
class Match:
    """Where the left side of an equation was found, and for what its variables stand."""

    graph: Graph
    root: int
    bindings: Bindings
    pattern: Operation
    matched: Form | None = None

    @property
    def form(self) -> Form:
        """The form of the root that matched."""
        return self.matched or self.graph.forms_of(self.root)[0]

    def tensors(self) -> set[int]:
        """The terms for which variables stand."""
        found: set[int] = set()
        for name in tensor_names(self.pattern):
            bound = self.bindings[name]
            found.update(bound if isinstance(bound, tuple) else (bound,))
        return found

    def is_uniform(self) -> bool:
        """Whether all tensors are of one shape, and none is constant."""
        shape = self.output.shape
        return all(
            self.graph.info(n).shape == shape and not self.graph.is_constant(n) for n in self.tensors()
        )

    def info(self, variable: Variable) -> TensorInfo:
        """Shape and dtype of a tensor."""
        return self.graph.info(self.bindings[variable.name])

    def shape(self, variable: Variable) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.info(variable).shape

    def infos(self, variable: Variable) -> list[TensorInfo]:
        """Of all tensors that a variable under :class:`Each` stands for."""
        return [self.graph.info(number) for number in self.bindings[variable.name]]

    def is_constant(self, variable: Variable) -> bool:
        """Whether a tensor depends on constants alone."""
        return self.graph.is_constant(self.bindings[variable.name])

    def uniform(self, variable: Variable) -> float | None:
        """The common value of all elements of a constant."""
        return self.graph.uniform(self.bindings[variable.name])

    def value(self, variable: Variable) -> Array:
        """The value of a constant."""
        return self.graph.value(self.bindings[variable.name])

    def attribute(self, variable: AttributeVariable) -> Any:
        """The value of an attribute."""
        return self.bindings[variable.name]

    def operator(self, variable: OperatorVariable) -> str:
        """The name of the operator for which ``variable`` stands."""
        return self.bindings[variable.name][0]

    @property
    def output(self) -> TensorInfo:
        """Type of both sides."""
        return self.graph.info(self.root)


def find_matches(pattern: Operation, root: int, form: Form, graph: Graph) -> Iterator[Match]:
    """Every way in which ``form``, one of ``root``, is an instance of ``pattern``."""
    for bindings in _matches_form(pattern, form, graph, {}):
        yield Match(graph, root, bindings, pattern, form)


@functools.lru_cache(maxsize=8192)
def tensor_names(pattern: Operation) -> tuple[str, ...]:
    """Names of the variables for tensors in ``pattern``."""
    return tuple(dict.fromkeys(part.name for part in subterms(pattern) if isinstance(part, Variable)))


def _matches(term: Term, number: int, graph: Graph, bound: Bindings) -> Iterator[Bindings]:
    if isinstance(term, Variable):
        if not term.constant or graph.is_constant(number):
            yield from _bind(term.name, number, bound)
    elif isinstance(term, Literal):
        value = graph.uniform(number)
        if value == term.value and math.copysign(1, value) == math.copysign(1, term.value):
            yield bound
    else:
        assert isinstance(term, Operation)
        for form in graph.forms_of(number):
            yield from _matches_form(term, form, graph, bound)


def _bind(name: str, value: Any, bound: Bindings) -> Iterator[Bindings]:
    if name not in bound:
        yield {**bound, name: value}
    elif bound[name] == value:
        yield bound


def _matches_form(term: Operation, form: Form, graph: Graph, bound: Bindings) -> Iterator[Bindings]:
    operator = term.operator
    if isinstance(operator, str):
        if form.operator != operator:
            return
    elif form.operator not in operator.names:
        return
    else:
        rest = tuple(pair for pair in form.attributes if pair[0] not in term.attributes)
        found = next(_bind(operator.name, (form.operator, rest), bound), None)
        if found is None:
            return
        bound = found
    after = _match_attributes(term.attributes, form, bound)
    if after is None:
        return
    if len(term.operands) == 1 and isinstance(term.operands[0], Each):
        yield from _match_each(term.operands[0], form.operands, graph, after)
    elif len(term.operands) == len(form.operands):
        yield from _match_operands(term.operands, form.operands, graph, after)


def _match_operands(
    terms: Sequence[Term | Each], numbers: Sequence[int], graph: Graph, bound: Bindings
) -> Iterator[Bindings]:
    if not terms:
        yield bound
        return
    assert isinstance(terms[0], Term)
    for found in _matches(terms[0], numbers[0], graph, bound):
        yield from _match_operands(terms[1:], numbers[1:], graph, found)


def _match_each(each: Each, numbers: Sequence[int], graph: Graph, bound: Bindings) -> Iterator[Bindings]:
    """The first instance per operand; what is bound outside, shared variables and attributes must agree."""
    repeated = repeated_names(each)
    own: dict[str, list[int]] = {}
    for number in numbers:
        found = next(_matches(each.term, number, graph, bound), None)
        if found is None:
            return
        fresh = {name: value for name, value in found.items() if name not in bound}
        for name, value in fresh.items():
            if name in repeated:
                own.setdefault(name, []).append(value)
            else:
                bound = {**bound, name: value}
    yield {**bound, **{name: tuple(values) for name, values in own.items()}}


@functools.lru_cache(maxsize=4096)
def repeated_names(each: Each) -> frozenset[str]:
    """Variables that stand for another tensor in each operand."""
    found = {part.name for part in subterms(each.term) if isinstance(part, Variable)}
    return frozenset(found - {variable.name for variable in each.shared})


def _match_attributes(wanted: Attributes, form: Form, bound: Bindings) -> Bindings | None:
    if not wanted:
        return bound
    given = dict(form.attributes)
    for name, value in wanted.items():
        actual = form.attributes if name == "rest" else given.get(name)
        if isinstance(value, AttributeVariable):
            found = next(_bind(value.name, actual, bound), None)
            if found is None:
                return None
            bound = found
        elif actual != value:
            return None
    return bound


def build(term: Term, match: Match) -> int:
    """The term that ``term`` is under a match.

    Raises
    ------
    Inapplicable
        Types or attributes do not fit: the equation does not hold here.
    """
    return _built(term, match, match.output.dtype, None)


def _built(term: Term | Each, match: Match, dtype: str, position: int | None) -> int:
    if isinstance(term, Variable):
        value = match.bindings[term.name]
        return value[position] if isinstance(value, tuple) and position is not None else value
    if isinstance(term, Literal):
        return match.graph.constant(np.asarray(term.value, dtype))
    assert isinstance(term, Operation)
    operator, attributes = term.operator, dict[str, Any]()
    if not isinstance(operator, str):
        operator, given = match.bindings[operator.name]
        attributes = dict(given)
    for name, value in term.attributes.items():
        resolved = _resolved(value, match)
        attributes = {**attributes, **(dict(resolved) if name == "rest" else {name: resolved})}
    return match.graph.add(operator, _built_operands(term.operands, match, dtype, position), attributes)


def _built_operands(
    terms: Sequence[Term | Each], match: Match, dtype: str, position: int | None
) -> tuple[int, ...]:
    if len(terms) == 1 and isinstance(terms[0], Each):
        each = terms[0]
        return tuple(_built(each.term, match, dtype, i) for i in range(_count(each.term, match)))
    built: list[int | None] = [
        None if isinstance(t, Literal) else _built(t, match, dtype, position) for t in terms
    ]
    known = next((match.graph.info(n).dtype for n in reversed(built) if n is not None), dtype)
    return tuple(
        _built(term, match, known, position) if number is None else number
        for term, number in zip(terms, built, strict=True)
    )


def _count(term: Term, match: Match) -> int:
    """How many operands :class:`Each` stands for."""
    pending = [term]
    while pending:
        current = pending.pop()
        if isinstance(current, Variable) and isinstance(match.bindings[current.name], tuple):
            return len(match.bindings[current.name])
        if isinstance(current, Operation):
            pending.extend(o for o in current.operands if isinstance(o, Term))
    raise AssertionError(f"{term} repeats nothing")


def _resolved(value: Any, match: Match) -> Any:
    if isinstance(value, AttributeVariable):
        return match.bindings[value.name]
    if isinstance(value, Variable):
        return match.bindings[value.name]
    if isinstance(value, Calculation):
        return value.function(match, *(_resolved(argument, match) for argument in value.arguments))
    return value
