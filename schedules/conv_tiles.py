"""Blocks and register tiles of convolutions on CPUs, from shapes and the vector unit alone.

One step of the inner loop loads a vector of weights per block of output channels, broadcasts one input
element per pixel, and multiplies and adds each pair into an accumulator register. The tile is the choice of
blocks times pixels that keeps everything in registers and the multipliers busy.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from .gemm_tiles import register_file

# Multiply-adds in flight that hide their latency: two pipes of four cycles (Skylake, Zen 3, Cortex-X).
_IN_FLIGHT = 8
# Cycles of a broadcast load, measured on Zen, where a multiply-add of a register and a vector load take one.
_BROADCAST = 1.25
# Cycles that a load costs where multiply-adds hide it: of two tiles as fast, the one that loads less. Weights
# count twice, for they are more than the first-level cache holds.
_LOAD_COST = 0.1
# Bytes of a core's second-level cache that one operand may fill; targets do not say how large it is.
CACHE_BYTES = 192 * 1024
# The same for the first-level cache.
_FIRST_LEVEL_BYTES = 24 * 1024
# Shares of the work per core that even out what they differ by.
_TASKS_PER_CORE = 4
# Code grows with the tile: larger ones gain nothing.
_MAX_WIDTH, _MAX_ACCUMULATORS = 14, 20
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class VectorUnit:
    """What a core computes with.

    Attributes
    ----------
    lanes
        Elements in one register.
    registers
        Vector registers.
    cores
        Threads that will share the work.
    """

    lanes: int
    registers: int
    cores: int


@dataclass(frozen=True)
class ConvShape:
    """Extents that decide the tile of a two-dimensional convolution; widths and heights in pixels.

    Attributes
    ----------
    batch, in_channels, in_height, in_width
        Of the padded input.
    out_blocks, block
        Blocks of output channels, and channels in one.
    out_height, out_width
        Of the result.
    taps
        Pixels of the kernel.
    """

    batch: int
    in_channels: int
    in_height: int
    in_width: int
    out_blocks: int
    block: int
    out_height: int
    out_width: int
    taps: int


@dataclass(frozen=True)
class ConvTile:
    """How the loops of a convolution are cut.

    Attributes
    ----------
    blocks, width
        Blocks of output channels and pixels of a row whose accumulators are in registers together.
    rows
        Rows that a thread computes before it turns to other channels (``rows_first``) or is done.
    rows_first
        Whether the loop over bands of rows is outside the one over channels: the input is then read once
        and the weights once per band; else the other way round.
    """

    blocks: int
    width: int
    rows: int
    rows_first: bool


def vector_unit(target: tvm.target.Target, dtype: str) -> VectorUnit:
    """The vector unit of a CPU target for elements of ``dtype``."""
    registers = register_file(target, dtype)
    cores = int(target.attrs.get("num-cores", 0)) or 4
    return VectorUnit(registers.lanes, registers.count, cores)


def divisors(extent: int) -> list[int]:
    """Divisors of ``extent``, ascending."""
    return [d for d in range(1, extent + 1) if extent % d == 0]


def conv2d_blocks(in_channels: int, out_channels: int, lanes: int) -> tuple[int, int]:
    """Channels per block on both sides of a convolution, ``NCHW{i}c`` and ``NCHW{o}c``.

    Each is the largest divisor of its extent that fits one register, whatever the other side is, so that
    the reader of a tensor and its writer agree.

    Parameters
    ----------
    in_channels, out_channels
        Extents; for a depthwise convolution both are the channels.
    lanes
        Elements in one register.
    """
    return largest_block(in_channels, lanes), largest_block(out_channels, lanes)


def largest_block(extent: int, limit: int) -> int:
    """The largest divisor of ``extent`` that is at most ``limit``."""
    return next(size for size in range(min(extent, limit), 0, -1) if extent % size == 0)


def fills_vectors(block: int, unit: VectorUnit) -> bool:
    """Whether a block is whole registers or half a one: LLVM splits others into pieces, TOPI's loops too."""
    return block % unit.lanes == 0 or 2 * block == unit.lanes


def choose_conv_tile(shape: ConvShape, unit: VectorUnit) -> ConvTile:
    """The tile with least estimated time for a dense convolution."""
    per_block = -(-shape.block // unit.lanes)
    candidates = [
        (blocks, width)
        for blocks in divisors(shape.out_blocks)
        for width in range(1, min(shape.out_width, _MAX_WIDTH) + 1)
        if blocks * per_block * width <= _accumulators(unit)
        and blocks * per_block * (width + 1) + 1 <= unit.registers
    ]
    blocks, width = min(
        candidates or [(1, 1)],
        key=lambda c: (_cycles_per_row(shape, unit, c[0], c[1], per_block), c[0] * c[1]),
    )
    rows = _band(shape, unit, shape.out_blocks // blocks)
    return ConvTile(blocks, width, rows, _reads_less_by_rows(shape, rows, blocks))


def _accumulators(unit: VectorUnit) -> int:
    """Registers that may hold sums: LLVM loads ahead into the others, and spills if they are too few."""
    return min(unit.registers * 3 // 4, _MAX_ACCUMULATORS)


def _cycles_per_row(shape: ConvShape, unit: VectorUnit, blocks: int, width: int, per_block: int) -> float:
    """Cycles for one row of all output channels per input element, as the slowest core sees them."""
    full, rest = divmod(shape.out_width, width)
    cycles = full * _step(blocks * per_block, width) + (_step(blocks * per_block, rest) if rest else 0)
    tasks = shape.batch * shape.out_height * (shape.out_blocks // blocks)
    idle = -(-tasks // unit.cores) * unit.cores / tasks
    return cycles * (shape.out_blocks // blocks) * idle


def _step(vectors: int, width: int) -> float:
    """Cycles of one step: multiply-adds, loads, or the latency of an accumulator, whichever is longest."""
    loads = vectors + _BROADCAST * width
    return max(vectors * width, loads, _IN_FLIGHT) + _LOAD_COST * (2 * vectors + width)


def _band(shape: ConvShape, unit: VectorUnit, panels: int) -> int:
    """Rows of output whose input stays in the cache while all output channels read it, all cores busy."""
    row = shape.in_channels * shape.in_width * _FLOAT_BYTES
    fitting = CACHE_BYTES // max(1, row) * shape.out_height // shape.in_height
    tasks = shape.batch * shape.out_height * panels
    most = max(1, min(fitting, tasks // (_TASKS_PER_CORE * unit.cores)))
    return max(d for d in divisors(shape.out_height) if d <= most)


def _reads_less_by_rows(shape: ConvShape, rows: int, blocks: int) -> bool:
    data = shape.in_channels * shape.in_height * shape.in_width * _FLOAT_BYTES
    weights = shape.in_channels * shape.taps * shape.out_blocks * shape.block * _FLOAT_BYTES
    bands, panels = shape.out_height // rows, shape.out_blocks // blocks
    by_rows = data + weights * (bands if weights > CACHE_BYTES else 1)
    by_channels = weights + data * (panels if data > CACHE_BYTES else 1)
    return by_rows < by_channels


def choose_depthwise_width(
    out_width: int, kernel_width: int, stride: int, vectors: int, registers: int
) -> int:
    """Pixels of a row that a depthwise convolution accumulates in registers together.

    Parameters
    ----------
    out_width, kernel_width, stride
        In pixels.
    vectors
        Registers per pixel.
    registers
        Vector registers.
    """
    most = max(1, min(out_width, (registers // 2) // vectors))

    def loads(width: int) -> tuple[int, bool, int]:
        full, rest = divmod(out_width, width)
        pixels = full * ((width - 1) * stride + kernel_width)
        pixels += (rest - 1) * stride + kernel_width if rest else 0
        return pixels, rest > 0, -width

    return min(range(1, most + 1), key=loads)


def choose_depthwise_rows(out_height: int, in_height: int, row_elements: int) -> int:
    """Rows of output in one band, such that the input rows that it reads stay in the first-level cache.

    Parameters
    ----------
    out_height, in_height
        Rows of the result and of the padded input.
    row_elements
        Elements of a padded row of one block of channels.
    """
    fitting = _FIRST_LEVEL_BYTES // (row_elements * _FLOAT_BYTES) * out_height // in_height
    return max(d for d in divisors(out_height) if d <= max(1, fitting))
