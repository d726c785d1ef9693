"""Depthwise convolutions in blocked layouts: padding, reduction and tail in one pass over bands of rows.

The arithmetic is about as little as a copy's, so the padded input never leaves the cache: each thread pads
the rows that its band reads, and computes the tail on accumulators in registers.
"""

from __future__ import annotations

import math

import tvm
from tvm import te, tir

from tvm_dnnfusion.block_lowering import LoweredBlock, LoweredOperator

from .conv_tiles import choose_depthwise_rows, choose_depthwise_width, fills_vectors, vector_unit
from .default import schedule_stages
from .loop_nest import SERIAL_WORK
from .registry import block_schedule
from .stage_graph import extents, stage_graph, tensor_shape
from .tile_tail import TileTail, tile_tail
from .topi_anchor import find_anchor

OPERATOR = "nn.contrib_depthwise_conv2d_NCHWc"
_DTYPES = ("float32", "float64")
# Taps of a row that are unrolled; a wider kernel keeps its loop.
_MAX_UNROLLED_TAPS = 9


@block_schedule("depthwise_conv2d_nchwc", targets=("llvm", "cpu"), priority=30, anchors=(OPERATOR,))
def depthwise_conv2d_nchwc(block: LoweredBlock) -> te.Schedule | None:
    """``nn.contrib_depthwise_conv2d_NCHWc`` whose blocks of channels agree, with the tail at its tile."""
    anchor = find_anchor(block)
    if anchor is None or not _covers(anchor):
        return None
    stages = stage_graph(block.outputs)
    conv = anchor.outputs[0]
    if not fills_vectors(tensor_shape(conv)[4], vector_unit(block.target, conv.dtype)):
        return None
    tail = tile_tail(conv, stages, {t.op for t in block.outputs})
    if tail is None:
        return None
    schedule = te.create_schedule([t.op for t in block.outputs])
    tail.inline(schedule)
    pinned = set(tail.pinned)
    padded = conv.op.input_tensors[0]
    if padded in anchor.inputs:
        padded = None
    else:
        pinned.add(padded.op)
    _schedule_bands(schedule, anchor, tail, padded, block.target)
    schedule_stages(schedule, block.outputs, pinned, block.target)
    return schedule


def _covers(anchor: LoweredOperator) -> bool:
    conv = anchor.outputs[0]
    if anchor.name != OPERATOR or conv.op.tag != "depthwise_conv2d_NCHWc" or conv.dtype not in _DTYPES:
        return False
    data = conv.op.input_tensors[0]
    if not all(isinstance(d, (int, tir.IntImm)) for t in (data, conv) for d in t.shape):
        return False
    return 0 not in tensor_shape(conv) and tensor_shape(data)[4] == tensor_shape(conv)[4]


def _schedule_bands(
    schedule: te.Schedule,
    anchor: LoweredOperator,
    tail: TileTail,
    padded: te.Tensor | None,
    target: tvm.target.Target,
) -> None:
    """Bands of rows in parallel; in a band, the padded rows, then tiles of a row with their tail."""
    conv, stride = anchor.outputs[0], int(anchor.call.attrs.strides[1])
    data = tensor_shape(conv.op.input_tensors[0])
    _, _, height, out_width, lanes = tensor_shape(conv)
    taps_wide = extents(conv.op.reduce_axis)[1]
    unit = vector_unit(target, conv.dtype)
    vectors = -(-lanes // unit.lanes)
    width = choose_depthwise_width(out_width, taps_wide, stride, vectors, unit.registers)
    rows = choose_depthwise_rows(height, data[2], data[3] * lanes)

    if conv.op == tail.end.op:
        conv = schedule.cache_write(conv, "local")
    out = schedule[tail.end]
    batch, block, row, column, lane = out.op.axis
    band, row_inner = out.split(row, factor=rows)
    column_outer, column_inner = out.split(column, factor=width)
    out.reorder(batch, block, band, row_inner, column_outer, column_inner, lane)
    fused = out.fuse(batch, block, band)
    if math.prod(extents([*conv.op.axis, *conv.op.reduce_axis])) > SERIAL_WORK:
        out.parallel(fused)
    if tail.unrolls:
        out.unroll(column_inner)
    out.vectorize(lane)
    if padded is not None:
        schedule[padded].compute_at(out, fused)
        schedule[padded].vectorize(padded.op.axis[-1])
    schedule[conv].compute_at(out, column_outer)
    _schedule_taps(schedule[conv], taps_wide)


def _schedule_taps(stage: te.Stage, taps_wide: int) -> None:
    batch, block, row, column, lane = stage.op.axis
    tap_row, tap_column = stage.op.reduce_axis
    stage.reorder(batch, block, row, tap_row, tap_column, column, lane)
    stage.unroll(row)
    stage.unroll(column)
    if taps_wide <= _MAX_UNROLLED_TAPS:
        stage.unroll(tap_column)
    stage.vectorize(lane)
