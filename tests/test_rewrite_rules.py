"""Every rule is proved; no two are the same."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_dnnfusion.rewriting import proof
from tvm_dnnfusion.rewriting.rules import all_rules

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
