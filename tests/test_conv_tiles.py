"""Tiles of convolutions: within the registers of each vector unit, with enough work in flight."""

from __future__ import annotations

import pytest
import tvm
from tvm_dnnfusion.schedules.conv_tiles import (
    ConvShape,
    VectorUnit,
    choose_conv_tile,
    choose_depthwise_rows,
    choose_depthwise_width,
    conv2d_blocks,
    vector_unit,
)

TARGET = tvm.target.Target("llvm -mcpu=znver1 -num-cores=2")


def conv_shape(out: int, out_blocks: int, block: int, in_channels: int = 64) -> ConvShape:
    return ConvShape(1, in_channels, out + 2, out + 2, out_blocks, block, out, out, 9)


@pytest.mark.parametrize("out", [1, 2, 5, 7, 13, 14, 19, 28, 56, 150])
@pytest.mark.parametrize("unit", [VectorUnit(8, 16, 2), VectorUnit(16, 32, 8), VectorUnit(4, 32, 4)])
def test_conv_tile_fits_registers_and_divides(out: int, unit: VectorUnit) -> None:
    for out_blocks in (1, 2, 3, 5, 8, 64):
        tile = choose_conv_tile(conv_shape(out, out_blocks, unit.lanes), unit)
        assert out_blocks % tile.blocks == 0 and out % tile.rows == 0
        assert tile.blocks * tile.width + tile.blocks + 1 <= unit.registers


def test_conv_tile_keeps_multipliers_busy() -> None:
    """With 16 registers two blocks of channels share each broadcast; with 32 there is room for more."""
    tile = choose_conv_tile(conv_shape(56, 8, 8), VectorUnit(8, 16, 2))
    assert tile.blocks * tile.width >= 8 and tile.blocks > 1
    wide = choose_conv_tile(conv_shape(56, 4, 16), VectorUnit(16, 32, 8))
    assert wide.blocks * wide.width > tile.blocks * tile.width


def test_conv_tile_goes_by_rows_when_the_input_is_the_larger_operand() -> None:
    unit = VectorUnit(8, 16, 2)
    assert choose_conv_tile(conv_shape(112, 8, 8), unit).rows_first
    assert not choose_conv_tile(conv_shape(7, 64, 8, in_channels=512), unit).rows_first


def test_conv2d_blocks_of_writer_and_reader_agree() -> None:
    assert conv2d_blocks(3, 64, 8) == (3, 8)
    assert conv2d_blocks(64, 255, 8)[0] == conv2d_blocks(24, 64, 8)[1] == 8
    assert conv2d_blocks(12, 20, 16) == (12, 10)


def test_depthwise_tile_reads_least() -> None:
    assert choose_depthwise_width(10, 3, 1, 1, 16) == 5  # two tiles of seven reads beat eight and four
    assert choose_depthwise_width(1, 3, 1, 1, 16) == 1
    assert choose_depthwise_rows(112, 114, 114 * 8) in (2, 4)
    assert choose_depthwise_rows(7, 11, 11 * 8) == 7


def test_vector_unit_of_targets() -> None:
    assert vector_unit(TARGET, "float32") == VectorUnit(8, 16, 2)
    arm = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -num-cores=4")
    assert vector_unit(arm, "float32") == VectorUnit(4, 32, 4)
    assert vector_unit(tvm.target.Target("llvm -mcpu=skylake-avx512"), "float32").registers == 32
