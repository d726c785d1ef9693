"""The rules as a table, for people and for tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .rule import Rule

_COLUMNS = ("name", "property", "equation", "licence", "source")


def rule_rows(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """One row per rule.

    ``name``, ``property``, ``equation``, ``licence`` (``exact``, ``reassociates`` or ``finite_only``),
    ``source`` (``paper Table 4`` or ``derived``), ``summary``; ``integers`` says whether it holds for
    integers, ``enabler`` whether it saves nothing itself, ``variants`` in how many orders of commutative
    operands it is matched.
    """
    return [
        {
            "name": rule.name,
            "property": rule.kind.value,
            "equation": rule.equation,
            "licence": rule.licence.text,
            "source": rule.source,
            "summary": rule.summary,
            "integers": rule.holds_for_integers,
            "enabler": rule.enables is not None,
            "variants": len(rule.variants),
        }
        for rule in rules
    ]


def markdown_table(rules: Iterable[Rule]) -> str:
    """A table in Markdown, as the README has it."""
    lines = [f"| {' | '.join(_COLUMNS)} |", f"| {' | '.join('---' for _ in _COLUMNS)} |"]
    for row in rule_rows(rules):
        cells = [f"`{row[c]}`" if c == "equation" else str(row[c]) for c in _COLUMNS]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)
