"""All 25 cells of Table 3, typed in again from the paper row by row."""

from __future__ import annotations

import itertools

import pytest

from tvm_dnnfusion.fusion_table import FUSION_TABLE, IMPEDANCE, Colour, combine, fusion_cell
from tvm_dnnfusion.mapping_type import MappingType

COLUMNS = ("One-to-One", "One-to-Many", "Many-to-Many", "Reorganize", "Shuffle")
ROWS = {
    "One-to-One": ("G One-to-One", "G One-to-Many", "G Many-to-Many", "G Reorganize", "G Shuffle"),
    "One-to-Many": ("G One-to-Many", "Y One-to-Many", "R", "Y One-to-Many", "Y One-to-Many"),
    "Many-to-Many": ("G Many-to-Many", "Y Many-to-Many", "R", "Y Many-to-Many", "Y Many-to-Many"),
    "Reorganize": ("G Reorganize", "Y One-to-Many", "Y Many-to-Many", "G Reorganize", "G Reorganize"),
    "Shuffle": ("G Shuffle", "Y One-to-Many", "Y Many-to-Many", "G Reorganize", "G Shuffle"),
}
CELLS = [
    (row, column, cell) for row, cells in ROWS.items() for column, cell in zip(COLUMNS, cells, strict=True)
]
GROUPED = [t for t in MappingType if t is not MappingType.OPAQUE]


@pytest.mark.parametrize(("first", "second", "expected"), CELLS)
def test_fusion_table_cell(first: str, second: str, expected: str) -> None:
    cell = fusion_cell(MappingType(first), MappingType(second))
    colour, _, result = expected.partition(" ")
    assert cell.colour.name[0] == colour
    assert cell.result is (MappingType(result) if result else None)


def test_fusion_table_has_13_green_10_yellow_2_red() -> None:
    colours = [FUSION_TABLE[a][b].colour for a in GROUPED for b in GROUPED]
    counts = [colours.count(colour) for colour in (Colour.GREEN, Colour.YELLOW, Colour.RED)]
    assert counts == [13, 10, 2]


@pytest.mark.parametrize("other", list(MappingType))
def test_fusion_table_refuses_opaque(other: MappingType) -> None:
    assert fusion_cell(MappingType.OPAQUE, other) == (Colour.RED, None)
    assert fusion_cell(other, MappingType.OPAQUE) == (Colour.RED, None)


def test_combine_agrees_with_every_cell() -> None:
    for first, second in itertools.product(GROUPED, repeat=2):
        result = fusion_cell(first, second).result
        assert result is None or result is combine(first, second)


def test_combine_of_nothing_is_one_to_one() -> None:
    assert combine() is MappingType.ONE_TO_ONE


def test_impedance_never_turns_a_worse_cell_better() -> None:
    """A block's type only rises while it grows, and a red consumer must stay red meanwhile."""
    for low, high in itertools.combinations(IMPEDANCE, 2):
        for second in GROUPED:
            if fusion_cell(low, second).colour is Colour.RED:
                assert fusion_cell(high, second).colour is Colour.RED
