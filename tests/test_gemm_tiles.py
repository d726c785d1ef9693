"""Register tiles by formula: they fit the registers, divide the columns, and suit the rows."""

from __future__ import annotations

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm_dnnfusion.schedules.gemm_tiles import (
    RegisterFile,
    Tile,
    choose_tile,
    column_vectors,
    pack_width,
    register_file,
    tile_cost,
)

AVX2 = "llvm -mcpu=znver1"
AVX512 = "llvm -mcpu=skylake-avx512"
NEON = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"


@pytest.mark.parametrize(
    ("target", "dtype", "expected"),
    [
        (AVX2, "float32", RegisterFile(16, 8, 32)),
        (AVX2, "float64", RegisterFile(16, 4, 32)),
        (AVX512, "float32", RegisterFile(32, 16, 64)),
        (NEON, "float32", RegisterFile(32, 4, 16)),
        ("llvm -mtriple=armv7a-linux-gnueabihf -mattr=+neon", "float32", RegisterFile(16, 4, 16)),
    ],
)
def test_register_file_of_target(target: str, dtype: str, expected: RegisterFile) -> None:
    assert register_file(tvm.target.Target(target), dtype) == expected


@given(
    rows=st.integers(1, 3000),
    vectors=st.sets(st.integers(1, 8), min_size=1),
    registers=st.sampled_from([RegisterFile(16, 8, 32), RegisterFile(32, 16, 64), RegisterFile(32, 4, 16)]),
    exact=st.booleans(),
)
def test_tile_fits_the_registers(rows: int, vectors: set[int], registers: RegisterFile, exact: bool) -> None:
    tile = choose_tile(rows, vectors, registers, exact)
    assert tile.vectors in vectors and 1 <= tile.rows <= rows
    assert tile.rows * tile.vectors < registers.count
    assert tile.rows * tile.vectors * registers.bytes < 1024  # or TVM puts the accumulators on the heap
    assert not exact or rows % tile.rows == 0


def test_tile_of_many_rows_keeps_the_units_busy() -> None:
    tile = choose_tile(128, range(1, 9), RegisterFile(16, 8, 32))
    assert tile == Tile(4, 3)
    # Twelve multiply-adds in flight and no more than their number of slots, loads hidden behind them.
    assert tile_cost(128, tile) < 1.05 * 128


def test_tile_of_one_row_has_several_accumulators() -> None:
    """One or two accumulators would wait for each other: a multiply-add takes four cycles or more."""
    assert choose_tile(1, range(1, 9), RegisterFile(16, 8, 32)).vectors >= 6


def test_widths_divide_columns_and_match_panels() -> None:
    assert column_vectors(48, 8) == [1, 2, 3, 6]
    assert column_vectors(48, 8, panel=24) == [1, 3, 6]
    assert column_vectors(48, 8, panel=16) == [1, 2, 6]
    assert column_vectors(13, 8) == []


@pytest.mark.parametrize(("n", "widths"), [(768, {16, 24}), (312, {24}), (1000, {8, 40}), (8, {8})])
def test_pack_width_divides_columns(n: int, widths: set[int]) -> None:
    for m in (1, 7, 128):
        width = pack_width(m, n, 64, "float32", tvm.target.Target(AVX2))
        assert width is not None and n % width == 0 and width % 8 == 0
    assert pack_width(128, n, 64, "float32", tvm.target.Target(AVX2)) in widths


@pytest.mark.parametrize(("n", "dtype"), [(13, "float32"), (0, "float32"), (64, "int8")])
def test_pack_width_refuses_what_vectors_do_not_divide(n: int, dtype: str) -> None:
    assert pack_width(16, n, 16, dtype, tvm.target.Target(AVX2)) is None
