"""Blocks around matrix products: accumulators in registers, the tail at their tile, panels in parallel.

The loop nest is that of a BLAS: a panel of the right operand's columns stays in the cache while tiles of rows
pass along it, and each tile's accumulators stay in registers for the whole reduction. Weights come packed in
panels; an operand that is computed at run time is packed here, panel by panel, when enough rows use it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import tvm
from tvm import autotvm, te, tir

from tvm_dnnfusion.block_lowering import LoweredBlock, LoweredOperator

from .default import schedule_stages
from .gemm_tiles import Tile, choose_tile, column_vectors, register_file
from .inlining import choose_inlined
from .loop_nest import vector_split
from .matrix_product import PACKED, TRANSPOSED, MatrixProduct, match_product
from .registry import block_schedule
from .stage_graph import Stage, stage_graph
from .topi_anchor import read_only_by, side_inputs, tail_of
from .vector_lane import is_linear_in_lanes

ANCHORS = ("nn.contrib_dense_pack", "nn.dense", "nn.matmul", "nn.batch_matmul")
_DTYPES = ("float32", "float64")
# Panels from which on rows need not be divided among threads.
_ENOUGH_PANELS = 4
# Rows from which on copying a panel costs less than reading it where it lies.
_PACKED_ROWS = 16
# Multiply-adds, some microseconds of them, up to which waking other threads costs more than they save: a
# recurrent network's steps, one row each, are a chain of such products.
_SERIAL_STEPS = 1 << 17


@dataclass(frozen=True, eq=False)
class _Plan:
    """How one product of a block is scheduled: its tile, and the stages that live there."""

    product: MatrixProduct
    tile: Tile
    lanes: int
    tail: list[te.Operation]
    side: set[te.Operation]
    by_panel: bool


def is_tuned(operator: LoweredOperator) -> bool:
    """True when an AutoTVM record in force names the operator: TOPI's template then knows better."""
    workload = autotvm.task.get_workload(operator.outputs)
    if workload is None:
        return False
    target = tvm.target.Target.current(allow_none=False)
    return not autotvm.task.DispatchContext.current.query(target, workload).is_fallback


@block_schedule("gemm", targets=("llvm", "cpu"), priority=60, anchors=ANCHORS)
def gemm(block: LoweredBlock) -> te.Schedule | None:
    """Each matrix product that vectors divide in register tiles with its tail; other stages at the root."""
    products = _products(block)
    if any(is_tuned(operator) for operator in block.operators if operator.name in ANCHORS):
        return None
    stages = stage_graph(block.outputs)
    outputs = {t.op for t in block.outputs}
    inlined = choose_inlined(stages, {p.op for p in products}, outputs)
    plans: list[_Plan] = []
    taken: set[te.Operation] = {p.op for p in products}
    for product in products:
        plan = _plan(product, stages, outputs, inlined, taken, block.target)
        if plan is not None:
            plans.append(plan)
            taken.update(plan.tail, plan.side)
    if not plans:
        return None
    taken.difference_update({p.op for p in products} - {plan.product.op for plan in plans})
    schedule = te.create_schedule([t.op for t in block.outputs])
    for op in inlined:
        if any(op in plan.side or op in plan.tail[:-1] for plan in plans):
            schedule[op].compute_inline()
    for plan in plans:
        _schedule_product(schedule, plan, inlined)
    schedule_stages(schedule, block.outputs, taken, block.target)
    return schedule


def _products(block: LoweredBlock) -> list[MatrixProduct]:
    """The products of the block's matrix operators, in order."""
    tensors = [o.outputs[0] for o in block.operators if o.name in ANCHORS]
    found = [match_product(t.op) for t in tensors if t.dtype in _DTYPES]
    return [p for p in found if p is not None and 0 not in (p.batch, p.rows, p.columns, p.depth)]


def _plan(
    product: MatrixProduct,
    stages: dict[te.Operation, Stage],
    outputs: Collection[te.Operation],
    inlined: Collection[te.Operation],
    taken: Collection[te.Operation],
    target: tvm.target.Target,
) -> _Plan | None:
    registers = register_file(target, product.op.output(0).dtype)
    widths = column_vectors(product.columns, registers.lanes, product.panel)
    if not widths or (product.layout == TRANSPOSED and product.rows < _PACKED_ROWS):
        return None
    tile = choose_tile(product.rows, widths, registers)
    panels = product.batch * product.columns // (tile.vectors * registers.lanes)
    by_panel = panels >= _ENOUGH_PANELS
    if not by_panel:
        tile = choose_tile(product.rows, widths, registers, exact=True)
    tail = tail_of(product.op.output(0), stages, outputs)
    side = side_inputs(tail, product.op, stages) & set(inlined)
    side = {op for op in side if read_only_by(op, {*tail, *side}, stages, outputs)}
    here = [op for op in tail if op not in inlined or op is tail[-1]]
    if not _stays_vectors(here, tail, side, inlined, taken, registers.lanes):
        tail, side = [], set()
    return _Plan(product, tile, registers.lanes, tail, side, by_panel)


def _stays_vectors(
    here: Collection[te.Operation],
    tail: Collection[te.Operation],
    side: Collection[te.Operation],
    inlined: Collection[te.Operation],
    taken: Collection[te.Operation],
    lanes: int,
) -> bool:
    """True when a tail overlaps no other product's, and all its loops can be vectors."""
    if any(op in taken for op in (*tail, *side)):
        return False
    gone = {op for op in (*tail, *side) if op in inlined and op not in here}
    return all(is_linear_in_lanes(op, gone, op.axis[-1], lanes) for op in here)


def _schedule_product(schedule: te.Schedule, plan: _Plan, inlined: Collection[te.Operation]) -> None:
    product = plan.product
    result = product.op.output(0)
    if plan.tail:
        accumulator, end = result, plan.tail[-1].output(0)
    else:
        accumulator, end = schedule.cache_write(result, "global"), result
    packed = _pack(schedule, plan, accumulator)
    panel, at = _tile_loops(schedule, schedule[end], plan)
    if packed is not None:
        schedule[packed].compute_at(schedule[end], panel)
    for op in plan.tail[:-1]:
        if op not in inlined:
            schedule[op].compute_at(schedule[end], at)
            _vectorise(schedule[op], plan.lanes)
    stage = schedule[accumulator]
    stage.compute_at(schedule[end], at)
    *batch, row, column = stage.op.axis
    step, inner = _split_columns(stage, column, plan)
    stage.reorder(*batch, *stage.op.reduce_axis, row, *step, inner)
    for axis in (row, *step):
        stage.unroll(axis)
    stage.vectorize(inner)


def _tile_loops(schedule: te.Schedule, end: te.Stage, plan: _Plan) -> tuple[tir.IterVar, tir.IterVar]:
    """Loops of the stage a tile ends in; the parallel one, and the one at which the accumulators live."""
    tile = plan.tile
    *batch, row, column = end.op.axis
    row_tile, row = end.split(row, factor=tile.rows)
    panel, column = end.split(column, factor=tile.vectors * plan.lanes)
    vectors, lane = end.split(column, factor=plan.lanes)
    end.reorder(*batch, panel, row_tile, row, vectors, lane)
    outer = [*batch, panel] if plan.by_panel else [*batch, panel, row_tile]
    parallel = end.fuse(*outer)
    product = plan.product
    if product.batch * product.rows * product.columns * product.depth > _SERIAL_STEPS:
        end.parallel(parallel)
    end.unroll(row)
    end.unroll(vectors)
    end.vectorize(lane)
    return parallel, row_tile if plan.by_panel else parallel


def _split_columns(
    stage: te.Stage, column: tir.IterVar, plan: _Plan
) -> tuple[list[tir.IterVar], tir.IterVar]:
    """A tile's columns as panels, vectors and lanes, so that indices of packed weights simplify."""
    panel, width = plan.product.panel, plan.tile.vectors * plan.lanes
    steps = []
    if panel is not None and width > panel:
        outer, column = stage.split(column, factor=panel)
        steps.append(outer)
    vectors, lane = stage.split(column, factor=plan.lanes)
    return [*steps, vectors], lane


def _vectorise(stage: te.Stage, lanes: int) -> None:
    _, lane = stage.split(stage.op.axis[-1], factor=lanes)
    stage.vectorize(lane)


def _pack(schedule: te.Schedule, plan: _Plan, reader: te.Tensor) -> te.Tensor | None:
    """A stage that copies a panel of the right operand, columns innermost; None if it can stay as it is."""
    product = plan.product
    if product.layout == PACKED or product.rows < _PACKED_ROWS:
        return None
    copy = schedule.cache_read(product.right, "global", [reader])
    if product.layout != TRANSPOSED:
        _vectorise(schedule[copy], plan.lanes)
        return copy
    *batch, column, depth = schedule[copy].op.axis
    schedule[copy].reorder(*batch, depth, column)
    panel = schedule.cache_write(copy, "global")
    schedule[copy].compute_inline()
    _transpose(schedule[panel], plan)
    return panel


def _transpose(stage: te.Stage, plan: _Plan) -> None:
    """Blocks of vectors by as many steps: what one cache line holds is used while it is there."""
    *_, depth, column = stage.op.axis
    block = vector_split(plan.product.depth, plan.lanes)
    outer, inner = stage.split(depth, factor=block)
    vectors, lane = stage.split(column, factor=plan.lanes)
    stage.reorder(outer, vectors, inner, lane)
    stage.unroll(inner)
    stage.vectorize(lane)
