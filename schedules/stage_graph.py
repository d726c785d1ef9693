"""What a block's TE stages read, how often, and at what cost: the facts behind inlining."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import tvm
from tvm import te, tir

# Relative cost of evaluating an intrinsic once, an addition being 1: scalar libm calls on the CPU.
_INTRINSIC_COST = 20.0
_DIVISION_COST = 4.0
# LLVM intrinsics are single instructions: what takes libm is a TIR operator of its own.
_CHEAP_CALLS = frozenset(
    {"tir.if_then_else", "tir.likely", "tir.fabs", "tir.reinterpret", "tir.call_llvm_pure_intrin"}
)


@dataclass(eq=False)
class Stage:
    """One TE operation of a block.

    Attributes
    ----------
    op
        The TE operation.
    reads
        Per producer operation, the number of different index tuples at which one element of this
        stage reads it.
    cost
        Arithmetic per evaluation, in additions.
    evaluations
        How often the body is evaluated when the stage has a buffer of its own: elements times
        reduction extents.
    consumers
        Stages that read this one.
    """

    op: te.Operation
    reads: dict[te.Operation, int]
    cost: float
    evaluations: int
    consumers: list[Stage] = field(default_factory=list)

    @property
    def is_compute(self) -> bool:
        """True for a stage with a loop nest that can be scheduled."""
        return isinstance(self.op, te.ComputeOp)

    @property
    def is_reduction(self) -> bool:
        """True when the body is a reduction."""
        return self.is_compute and bool(self.op.reduce_axis)

    @property
    def is_injective(self) -> bool:
        """True for a stage that can be inlined into its readers."""
        return self.is_compute and not self.op.reduce_axis and self.op.num_outputs == 1

    @property
    def size(self) -> int:
        """Elements of the first output."""
        return math.prod(tensor_shape(self.op.output(0)))


def static_extent(extent: tir.PrimExpr) -> int:
    """A static extent as an integer; some TOPI computes write it as arithmetic on constants."""
    if not isinstance(extent, (int, tir.IntImm)):
        extent = tvm.arith.Analyzer().simplify(extent)
    return int(extent)


def tensor_shape(tensor: te.Tensor) -> list[int]:
    """Shape of a static tensor."""
    return [static_extent(d) for d in tensor.shape]


def extents(axes: Iterable[tir.IterVar]) -> list[int]:
    """Static extents of iteration variables."""
    return [static_extent(a.dom.extent) for a in axes]


class _BodyReader:
    """Counts distinct reads and arithmetic in a compute body."""

    def __init__(self) -> None:
        self.indices: dict[te.Operation, list[tir.PrimExpr]] = {}
        self.cost = 0.0

    def __call__(self, node: tvm.runtime.Object) -> None:
        if isinstance(node, tir.ProducerLoad):
            seen = self.indices.setdefault(node.producer.op, [])
            if not any(tvm.ir.structural_equal(node.indices, s) for s in seen):
                seen.append(node.indices)
        elif isinstance(node, (tir.Div, tir.FloorDiv, tir.FloorMod, tir.Mod)):
            self.cost += _DIVISION_COST if "float" in node.dtype else 0.0
        elif isinstance(node, tir.Call):
            self.cost += 0.0 if node.dtype == "handle" else _call_cost(node)
        elif isinstance(node, (tir.Add, tir.Sub, tir.Mul, tir.Max, tir.Min, tir.Select)):
            self.cost += 1.0 if "float" in node.dtype else 0.25


def _call_cost(call: tir.Call) -> float:
    name = getattr(call.op, "name", "")
    return 1.0 if name in _CHEAP_CALLS else _INTRINSIC_COST


def _make_stage(op: te.Operation) -> Stage:
    if not isinstance(op, te.ComputeOp):
        return Stage(op, {t.op: 1 for t in op.input_tensors}, 0.0, 0)
    reader = _BodyReader()
    for body in op.body:
        tir.stmt_functor.post_order_visit(body, reader)
    reads = {producer: len(found) for producer, found in reader.indices.items()}
    return Stage(op, reads, reader.cost, math.prod(extents([*op.axis, *op.reduce_axis])))


def stage_graph(outputs: Iterable[te.Tensor]) -> dict[te.Operation, Stage]:
    """Stages that compute ``outputs``, placeholders left out, readers after what they read."""
    order: dict[te.Operation, Stage] = {}
    stack: list[tuple[te.Operation, bool]] = [(t.op, False) for t in outputs]
    entered: set[te.Operation] = set()
    while stack:
        op, expanded = stack.pop()
        if expanded:
            order[op] = _make_stage(op)
            continue
        if op in entered or isinstance(op, te.PlaceholderOp):
            continue
        entered.add(op)
        stack.append((op, True))
        stack.extend((t.op, False) for t in op.input_tensors)
    for stage in order.values():
        for producer in stage.reads:
            if producer in order:
                order[producer].consumers.append(stage)
    return order
