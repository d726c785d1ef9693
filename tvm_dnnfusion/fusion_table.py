"""Table 3 of DNNFusion (section 4.2): what fusing two mapping types gives, as data.

Rows are the first operator (the producer), columns the second (the consumer). Every cell has a
colour and, unless it is red, the mapping type of the result. Of the 25 cells 13 are green, 10
yellow and 2 red; the 23 others than red are the paper's code generation rules.
"""

from __future__ import annotations

import enum
from functools import reduce
from typing import NamedTuple

from .mapping_type import MappingType

_O2O = MappingType.ONE_TO_ONE
_REORG = MappingType.REORGANIZE
_SHUFFLE = MappingType.SHUFFLE
_O2M = MappingType.ONE_TO_MANY
_M2M = MappingType.MANY_TO_MANY


class Colour(enum.IntEnum):
    """Verdict of a cell, from best to worst, so that ``max`` is the stricter of two."""

    GREEN = 0
    """Legal and profitable without analysis (fuse_through)."""
    YELLOW = 1
    """Legal; a profitability model or a measurement decides (fuse_depend)."""
    RED = 2
    """Illegal or clearly unprofitable (fuse_break)."""


class Cell(NamedTuple):
    """One entry of Table 3; ``result`` is None exactly when the cell is red."""

    colour: Colour
    result: MappingType | None


def _green(result: MappingType) -> Cell:
    return Cell(Colour.GREEN, result)


def _yellow(result: MappingType) -> Cell:
    return Cell(Colour.YELLOW, result)


_RED = Cell(Colour.RED, None)

FUSION_TABLE: dict[MappingType, dict[MappingType, Cell]] = {
    _O2O: {
        _O2O: _green(_O2O),
        _O2M: _green(_O2M),
        _M2M: _green(_M2M),
        _REORG: _green(_REORG),
        _SHUFFLE: _green(_SHUFFLE),
    },
    _O2M: {
        _O2O: _green(_O2M),
        _O2M: _yellow(_O2M),
        _M2M: _RED,
        _REORG: _yellow(_O2M),
        _SHUFFLE: _yellow(_O2M),
    },
    _M2M: {
        _O2O: _green(_M2M),
        _O2M: _yellow(_M2M),
        _M2M: _RED,
        _REORG: _yellow(_M2M),
        _SHUFFLE: _yellow(_M2M),
    },
    _REORG: {
        _O2O: _green(_REORG),
        _O2M: _yellow(_O2M),
        _M2M: _yellow(_M2M),
        _REORG: _green(_REORG),
        _SHUFFLE: _green(_REORG),
    },
    _SHUFFLE: {
        _O2O: _green(_SHUFFLE),
        _O2M: _yellow(_O2M),
        _M2M: _yellow(_M2M),
        _REORG: _green(_REORG),
        _SHUFFLE: _green(_SHUFFLE),
    },
}
"""``FUSION_TABLE[first][second]``."""


def fusion_cell(first: MappingType, second: MappingType) -> Cell:
    """Cell of Table 3 for a producer typed ``first`` and a consumer typed ``second``.

    A pair with an opaque member is red: opaque operators are never grouped.
    """
    return FUSION_TABLE.get(first, {}).get(second, _RED)


IMPEDANCE = (_O2O, _SHUFFLE, _REORG, _O2M, _M2M)
"""Types by how much they decide the fused type (section 4.2, "transformation impedance").

Every green or yellow cell's result is the later of its two types in this order, which makes the
type of a block independent of the order in which its operators joined.
"""

_IMPEDANCE_RANK = {mapping_type: rank for rank, mapping_type in enumerate(IMPEDANCE)}


def impedance(mapping_type: MappingType) -> int:
    """Rank of ``mapping_type`` in :data:`IMPEDANCE`; an opaque type ranks above all."""
    return _IMPEDANCE_RANK.get(mapping_type, len(IMPEDANCE))


def combine(*types: MappingType) -> MappingType:
    """Type of a block made of parts of these types; One-to-One when there is none."""
    return reduce(lambda a, b: a if impedance(a) >= impedance(b) else b, types, _O2O)
