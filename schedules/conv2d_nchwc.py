"""Convolutions in blocked layouts, data NCHW{i}c and weights OIHW{i}i{o}o: a direct loop nest near peak.

Accumulators of a tile, some pixels of a row by some blocks of output channels, stay in registers over the
whole reduction; the group's tail is computed on them before they are stored. Padding is a copy in a stage
of its own, which takes what the group computes before the convolution with it.
"""

from __future__ import annotations

import tvm
from tvm import te

from tvm_dnnfusion.block_lowering import LoweredBlock, LoweredOperator

from .conv_tiles import ConvShape, ConvTile, choose_conv_tile, fills_vectors, vector_unit
from .default import schedule_stages
from .loop_nest import SERIAL_WORK
from .registry import block_schedule
from .stage_graph import extents, stage_graph, tensor_shape
from .tile_tail import TileTail, tile_tail
from .topi_anchor import find_anchor

OPERATOR = "nn.contrib_conv2d_NCHWc"
_DTYPES = ("float32", "float64")


@block_schedule("conv2d_nchwc", targets=("llvm", "cpu"), priority=30, anchors=(OPERATOR,))
def conv2d_nchwc(block: LoweredBlock) -> te.Schedule | None:
    """Direct convolution of ungrouped ``nn.contrib_conv2d_NCHWc`` with the tail at its tile."""
    anchor = find_anchor(block)
    if anchor is None or not _covers(anchor):
        return None
    stages = stage_graph(block.outputs)
    outputs = {t.op for t in block.outputs}
    conv = anchor.outputs[0]
    tail = tile_tail(conv, stages, outputs)
    if tail is None:
        return None
    schedule = te.create_schedule([t.op for t in block.outputs])
    tail.inline(schedule)
    shape = conv_shape(conv)
    unit = vector_unit(block.target, conv.dtype)
    if not fills_vectors(shape.block, unit):
        return None
    _schedule_tile(schedule, conv, tail, choose_conv_tile(shape, unit), shape)
    schedule_stages(schedule, block.outputs, tail.pinned, block.target)
    return schedule


def _covers(anchor: LoweredOperator) -> bool:
    """False for grouped and quantised convolutions, and extents that are not static."""
    conv = anchor.outputs[0]
    if anchor.name != OPERATOR or conv.op.tag != "conv2d_NCHWc" or conv.dtype not in _DTYPES:
        return False
    data, weight = conv.op.input_tensors
    if not all(isinstance(d, (int, tvm.tir.IntImm)) for t in (data, weight, conv) for d in t.shape):
        return False
    channels = tensor_shape(data)[1] * tensor_shape(data)[4]
    return 0 not in tensor_shape(conv) and extents(conv.op.reduce_axis)[0] == channels


def conv_shape(conv: te.Tensor) -> ConvShape:
    """Extents of TOPI's ``conv2d_NCHWc`` compute."""
    data, weight = (tensor_shape(t) for t in conv.op.input_tensors)
    batch, out_blocks, out_height, out_width, block = tensor_shape(conv)
    return ConvShape(
        batch=batch,
        in_channels=data[1] * data[4],
        in_height=data[2],
        in_width=data[3],
        out_blocks=out_blocks,
        block=block,
        out_height=out_height,
        out_width=out_width,
        taps=weight[2] * weight[3],
    )


def _schedule_tile(
    schedule: te.Schedule, conv: te.Tensor, tail: TileTail, tile: ConvTile, shape: ConvShape
) -> None:
    """The nest of the tail's last stage, and the reduction at its tile.

    Where the tile does not divide a row, one condition on the tile's loop guards the pixels that the last one
    lacks; LLVM's unswitching makes two loop nests of it.
    """
    if conv.op == tail.end.op:
        conv = schedule.cache_write(conv, "local")
    out = schedule[tail.end]
    batch, block, row, column, lane = out.op.axis
    block_outer, block_inner = out.split(block, factor=tile.blocks)
    band, row_inner = out.split(row, factor=tile.rows)
    column_outer, column_inner = out.split(column, factor=tile.width)
    outer = (band, block_outer) if tile.rows_first else (block_outer, band)
    out.reorder(batch, *outer, row_inner, column_outer, column_inner, block_inner, lane)
    fused = out.fuse(batch, *outer)
    work = shape.in_channels * shape.taps * shape.out_blocks * shape.out_height * shape.out_width
    if work * shape.batch > SERIAL_WORK:
        out.parallel(fused)
    if tail.unrolls:
        out.unroll(column_inner)
        out.unroll(block_inner)
    out.vectorize(lane)
    schedule[conv].compute_at(out, column_outer)
    _schedule_reduction(schedule[conv], int(tensor_shape(conv.op.input_tensors[0])[4]))


def _schedule_reduction(stage: te.Stage, in_block: int) -> None:
    """Input channels inside the kernel's pixels: what is broadcast is then contiguous."""
    batch, block, row, column, lane = stage.op.axis
    channel, kernel_row, kernel_column = stage.op.reduce_axis
    channel_outer, channel_inner = stage.split(channel, factor=in_block)
    stage.reorder(batch, channel_outer, kernel_row, kernel_column, channel_inner, row, column, block, lane)
    for axis in (row, column, block):
        stage.unroll(axis)
    stage.vectorize(lane)
