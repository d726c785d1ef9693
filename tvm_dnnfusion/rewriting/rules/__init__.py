"""The rules, one module per property and family; importing this package registers them."""

from __future__ import annotations

from ..rule import RULES, Rule
from . import (  # noqa: F401
    associative,
    associative_merges,
    commutative_concatenation,
    commutative_functions,
    commutative_repetition,
    commutative_reshape,
    commutative_slice,
    commutative_transpose,
    distributive_arithmetic,
    distributive_linear,
    distributive_reductions,
    distributive_weights,
    identities,
    paper_table,
)


def all_rules() -> tuple[Rule, ...]:
    """Every registered rule, those of other files included, in the order of registration."""
    return tuple(RULES.values())
