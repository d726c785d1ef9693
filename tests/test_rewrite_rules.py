"""Every rule is proved; no two are the same."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tvm_dnnfusion.rewriting import proof
from tvm_dnnfusion.rewriting.greedy import GreedySearch
from tvm_dnnfusion.rewriting.language import A, B, C
from tvm_dnnfusion.rewriting.probing import Case, operator_variables
from tvm_dnnfusion.rewriting.rule import Licence, Property, Rule
from tvm_dnnfusion.rewriting.rules import all_rules
from tvm_dnnfusion.rewriting.saturation import SaturationSearch
from tvm_dnnfusion.rewriting.terms import Cost

RULES = {rule.name: rule for rule in all_rules()}
EVERY_RULE = pytest.mark.parametrize("name", RULES)


@EVERY_RULE
def test_rule_fires_saves_and_is_right(name: str, rng: np.random.Generator) -> None:
    proof.prove_fires(RULES[name], rng)


@EVERY_RULE
def test_rule_keeps_special_values_as_licensed(name: str, rng: np.random.Generator) -> None:
    proof.prove_special_values(RULES[name], rng)


@EVERY_RULE
def test_rule_is_exact_for_integers_or_refuses_them(name: str, rng: np.random.Generator) -> None:
    proof.prove_integers(RULES[name], rng)


@EVERY_RULE
def test_rule_refuses_with_its_reason(name: str, rng: np.random.Generator) -> None:
    proof.prove_refusals(RULES[name], rng)


ENABLERS = [name for name, rule in RULES.items() if rule.enables is not None]


@pytest.mark.parametrize("name", ENABLERS)
def test_rule_enables_what_it_says(name: str, rng: np.random.Generator) -> None:
    enables = RULES[name].enables
    assert enables is not None
    others = [rule for rule in RULES.values() if rule.enables is None]

    def cost(rules: list[Rule]) -> tuple[Cost, Cost]:
        case = Case(enables.term, enables.probe, rng)
        found = SaturationSearch(rules, Licence.FINITE_ONLY).rewrite(case.graph, case.root)
        return case.graph.cost([case.root]), case.graph.cost([found.root])

    before, without = cost(others)
    _, with_it = cost([*others, RULES[name]])
    assert with_it < without <= before


def test_rules_are_as_many_as_the_paper_derives() -> None:
    counts = Counter(rule.kind for rule in RULES.values())
    assert counts[Property.ASSOCIATIVE] >= 45
    assert counts[Property.DISTRIBUTIVE] >= 38
    assert counts[Property.COMMUTATIVE] >= 66
    assert sum(rule.source == "paper Table 4" for rule in RULES.values()) == 10


def test_no_two_rules_are_the_same_up_to_commutation() -> None:
    seen: dict[str, str] = {}
    for rule in RULES.values():
        for variant in rule.variants:
            operators = [sorted(v.names) for v in operator_variables(rule.lhs).values()]
            form = f"{_canonical(f'{variant} -> {rule.rhs}')} {operators}"
            assert seen.setdefault(form, rule.name) == rule.name, f"{rule.name} is {seen[form]}"


def _canonical(equation: str) -> str:
    """Variables by the order in which they occur."""
    names: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        return names.setdefault(match.group(), f"v{len(names)}")

    return re.sub(r"\b[A-Zcd]\b", renamed, equation)


@pytest.mark.parametrize("search", [GreedySearch, SaturationSearch])
def test_search_ends_with_opposite_rules(
    search: type[GreedySearch | SaturationSearch], rng: np.random.Generator
) -> None:
    there = replace(RULES["SubtractSmallSummand"], name="There")
    back = replace(there, name="Back", lhs=there.rhs, rhs=there.lhs)
    case = Case(((A + B) - C) * (A + (B - C)), {"A": (8, 16), "B": (16,), "C": (16,)}, rng)
    found = search([there, back], Licence.REASSOCIATES).rewrite(case.graph, case.root)
    assert case.graph.cost([found.root]) < case.graph.cost([case.root])
