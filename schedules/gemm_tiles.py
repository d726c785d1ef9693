"""Register tiles of matrix products, from vector registers alone: a formula instead of a search.

A tile of ``rows`` x ``vectors`` accumulators stays in registers while it walks along the reduction. Each step
loads ``vectors`` registers of the right operand, broadcasts ``rows`` elements of the left one, and issues
``rows * vectors`` multiply-adds. The best tile keeps the multiply-add units busy: enough independent
accumulators to hide their latency, fewer loads than multiply-adds, and few rows left over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tvm
from tvm.target import codegen

from .loop_nest import vector_lanes

# Multiply-adds in flight that keep the units busy: 4 or 5 cycles of latency on 2 units (x86, Cortex-A7x).
_IN_FLIGHT = 8
# A load beside full multiply-add units is not free: it takes a slot of the front end.
_LOAD_COST = 1 / 16
_MAX_ROWS = 14
_MAX_VECTORS = 8
# TVM keeps smaller buffers on the stack (kMaxStackAlloca of tvm/runtime/device_api.h), where LLVM finds them.
_STACK_BYTES = 1024
_PACKED_DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class RegisterFile:
    """Vector registers of a CPU for one element type.

    Attributes
    ----------
    count
        Architectural vector registers.
    lanes
        Elements in one.
    bytes
        Size of one.
    """

    count: int
    lanes: int
    bytes: int


@dataclass(frozen=True)
class Tile:
    """Accumulators in registers: ``rows`` x ``vectors`` vector registers."""

    rows: int
    vectors: int


def register_file(target: tvm.target.Target, dtype: str) -> RegisterFile:
    """The vector registers of a CPU target: AVX-512 has 32, other x86 16, 64-bit ARM 32, 32-bit ARM 16."""
    lanes = vector_lanes(target, dtype)
    triple = str(target.attrs.get("mtriple", "")) or codegen.llvm_get_system_triple()
    wide = triple.startswith(("aarch64", "arm64")) or codegen.target_has_features("avx512f", target)
    return RegisterFile(32 if wide else 16, lanes, lanes * tvm.DataType(dtype).bits // 8)


def choose_tile(rows: int, vectors: Iterable[int], registers: RegisterFile, exact: bool = False) -> Tile:
    """The cheapest tile for a product of ``rows`` rows.

    Parameters
    ----------
    rows
        Rows of the result.
    vectors
        Widths to choose from, in vector registers; they must divide the result's columns.
    registers
        What the accumulators have to fit into.
    exact
        Only tiles that divide ``rows``.

    Raises
    ------
    ValueError
        No width is given that fits into the registers.
    """
    tiles = [
        Tile(r, v)
        for v in vectors
        for r in range(1, min(rows, _MAX_ROWS) + 1)
        if _fits(r, v, registers) and not (exact and rows % r)
    ]
    return min(tiles, key=lambda tile: (tile_cost(rows, tile), -tile.rows * tile.vectors))


def tile_cost(rows: int, tile: Tile) -> float:
    """Issue slots per step of the reduction and vector of columns, for all rows of the result."""
    full, rest = divmod(rows, tile.rows)
    return (full * _slots(tile.rows, tile.vectors) + _slots(rest, tile.vectors)) / tile.vectors


def _slots(rows: int, vectors: int) -> float:
    if rows == 0:
        return 0.0
    loads = rows + vectors
    return max(rows * vectors, loads, _IN_FLIGHT) + _LOAD_COST * loads


def _fits(rows: int, vectors: int, registers: RegisterFile) -> bool:
    """Accumulators, one row of the right operand and a broadcast; a single row multiplies out of memory."""
    right = vectors if rows > 1 else 1
    accumulators = rows * vectors
    return accumulators + right + 1 <= registers.count and accumulators * registers.bytes < _STACK_BYTES


def column_vectors(columns: int, lanes: int, panel: int | None = None) -> Sequence[int]:
    """Tile widths, in vector registers, that divide ``columns`` and fit a packed panel.

    Parameters
    ----------
    columns
        Columns of the result.
    lanes
        Elements of a vector register.
    panel
        Columns in a panel of packed weights: a width must divide it, or be a multiple of it.
    """
    found = []
    for vectors in range(1, _MAX_VECTORS + 1):
        width = vectors * lanes
        if columns % width == 0 and (panel is None or panel % width == 0 or width % panel == 0):
            found.append(vectors)
    return found


def pack_width(m: int, n: int, k: int, dtype: str, target: tvm.target.Target) -> int | None:
    """Columns per panel when weights are packed as ``[n / width][k][width]`` at compile time.

    Parameters
    ----------
    m, n, k
        Extents of the product: ``(m, k)`` times ``(k, n)``.
    dtype
        Of both operands and of the result.
    target
        A CPU.

    Returns
    -------
    A multiple of the vector width that divides ``n``; None where there is none.
    """
    if dtype not in _PACKED_DTYPES or min(m, n, k) < 1:
        return None
    registers = register_file(target, dtype)
    vectors = column_vectors(n, registers.lanes)
    return choose_tile(m, vectors, registers).vectors * registers.lanes if vectors else None
