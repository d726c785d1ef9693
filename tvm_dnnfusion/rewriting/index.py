"""Rules by the operators that they start with, so that few are tried at each term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .matching import Graph, Match, find_matches
from .pattern import Each, Operation
from .rule import Rule
from .terms import Form

_Operators = frozenset[str]


@dataclass(frozen=True, eq=False)
class _Variant:
    rule: Rule
    pattern: Operation
    operands: tuple[_Operators | None, ...] | None  # per operand, those it may be; None for any number


class RuleIndex:
    """Finds the matches of a set of rules."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._by_root: dict[str, list[_Variant]] = {}
        self._candidates: dict[tuple[str, tuple[_Operators, ...]], list[_Variant]] = {}
        for rule in rules:
            for pattern in rule.variants:
                variant = _Variant(rule, pattern, _operand_operators(pattern))
                for name in _operators(pattern):
                    self._by_root.setdefault(name, []).append(variant)

    def matches(self, graph: Graph, number: int) -> Iterator[tuple[Rule, Match]]:
        """Every rule that matches a form of ``number``."""
        for form in tuple(graph.forms_of(number)):
            if form.operator not in self._by_root:
                continue
            for variant in self._possible(graph, form):
                for match in find_matches(variant.pattern, number, form, graph):
                    yield variant.rule, match

    def _possible(self, graph: Graph, form: Form) -> list[_Variant]:
        below = tuple(frozenset(f.operator for f in graph.forms_of(o)) for o in form.operands)
        key = (form.operator, below)
        if key not in self._candidates:
            self._candidates[key] = [v for v in self._by_root[form.operator] if _fits(v, below)]
        return self._candidates[key]


def _operators(term: Operation) -> _Operators:
    return frozenset({term.operator}) if isinstance(term.operator, str) else term.operator.names


def _operand_operators(pattern: Operation) -> tuple[_Operators | None, ...] | None:
    if any(isinstance(operand, Each) for operand in pattern.operands):
        return None
    return tuple(_operators(o) if isinstance(o, Operation) else None for o in pattern.operands)


def _fits(variant: _Variant, below: tuple[_Operators, ...]) -> bool:
    if variant.operands is None:
        each = variant.pattern.operands[0]
        term = each.term if isinstance(each, Each) else None
        return not isinstance(term, Operation) or all(_operators(term) & found for found in below)
    if len(variant.operands) != len(below):
        return False
    return all(
        wanted is None or wanted & found for wanted, found in zip(variant.operands, below, strict=True)
    )
