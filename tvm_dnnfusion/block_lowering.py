"""Body of a block -> one TE graph, operator by operator, with TVM's own computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm
from tvm import relay, te
from tvm.auto_scheduler import is_auto_scheduler_enabled
from tvm.relay.backend.te_compiler import get_shape, get_valid_implementations, lower_call

from .block_body import Body, scalar_value
from .errors import BlockError
from .operator_rounding import added_calls, round_product
from .vector_math import has_vector_math, use_vector_math


@dataclass(frozen=True, eq=False)
class LoweredOperator:
    """One operator call of a block and its TE stages.

    Attributes
    ----------
    call
        The typed Relay call.
    inputs, outputs
        Operand and result tensors, tuples flattened.
    implementation
        What TVM's strategy chose; its ``schedule`` may anchor the block's. None for a scalar constant.
    """

    call: relay.Call
    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    implementation: relay.op.OpImplementation

    @property
    def name(self) -> str:
        """Operator name."""
        return self.call.op.name

    def stages(self) -> Iterator[te.Operation]:
        """TE operations that belong to this operator and to none of its operands."""
        boundary = {t.op for t in self.inputs}
        stack, seen = [t.op for t in self.outputs], set()
        while stack:
            op = stack.pop()
            if op in seen or op in boundary:
                continue
            seen.add(op)
            yield op
            stack.extend(t.op for t in op.input_tensors)


@dataclass(frozen=True, eq=False)
class LoweredBlock:
    """A block as a TE graph, what a block schedule is given."""

    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    operators: tuple[LoweredOperator, ...]
    target: tvm.target.Target


def lower_body(body: Body, inputs: Sequence[te.Tensor], target: tvm.target.Target) -> LoweredBlock:
    """Compute of a block.

    Parameters
    ----------
    body
        Decoded body.
    inputs
        One placeholder per parameter of the body's function.
    target
        Strategies are chosen for it.

    Raises
    ------
    BlockError
        The number of tensors is not the body's.
    """
    params = body.function.params
    if len(inputs) != len(params):
        raise BlockError(f"a block of {len(params)} inputs was given {len(inputs)} tensors")
    lowering = _Lowering(dict(zip(params, ([t] for t in inputs), strict=True)), target)
    lowering.added = added_calls(body.calls)
    for call in body.calls:
        lowering.add(call)
    return LoweredBlock(
        tuple(inputs), tuple(lowering.tensors(body.function.body)), tuple(lowering.operators), target
    )


class _Lowering:
    def __init__(self, env: dict[relay.Expr, list[te.Tensor]], target: tvm.target.Target) -> None:
        self.env, self.target = env, target
        self.operators: list[LoweredOperator] = []
        self.added: set[relay.Expr] = set()

    def tensors(self, expr: relay.Expr) -> list[te.Tensor]:
        """Tensors of an operand; tuples and projections nest a bounded number of times."""
        if expr in self.env:
            return self.env[expr]
        if isinstance(expr, relay.Tuple):
            return [t for f in expr.fields for t in self.tensors(f)]
        if isinstance(expr, relay.TupleGetItem):
            return [self.tensors(expr.tuple_value)[expr.index]]
        self.env[expr] = [_scalar(expr)]
        return self.env[expr]

    def add(self, call: relay.Call) -> None:
        inputs = [t for a in call.args for t in self.tensors(a)]
        if is_auto_scheduler_enabled():
            lowered = _lower_without_extern(call, inputs, self.target)
        else:
            chosen = lower_call(call, inputs, self.target)
            lowered = chosen.implementation, list(chosen.outputs)
        implementation, outputs = lowered
        outputs = [_without_layout_free(t) for t in outputs]
        # Ansor's workers are processes that have not imported this package.
        if has_vector_math(self.target) and not is_auto_scheduler_enabled():
            outputs = [use_vector_math(t) for t in outputs]
        if call in self.added:
            outputs = [round_product(t, self.target) for t in outputs]
        self.env[call] = outputs
        self.operators.append(LoweredOperator(call, tuple(inputs), tuple(self.env[call]), implementation))


def _scalar(constant: relay.Constant) -> te.Tensor:
    """A stage without axes.

    A floating-point zero is given by its bits: TIR's simplifier would turn ``x * 0`` into 0 whatever ``x``
    is, and refuse ``x / 0``.
    """
    value = scalar_value(constant)
    dtype = constant.data.dtype
    literal = (
        _zero(value, dtype) if isinstance(value, float) and value == 0.0 else tvm.tir.const(value, dtype)
    )
    return te.compute((), lambda *_: literal, name="constant", tag="broadcast")


def _zero(value: float, dtype: str) -> tvm.tir.PrimExpr:
    """A zero of ``value``'s sign that only the code generator folds."""
    width = tvm.DataType(dtype).bits
    # Code generators take the reinterpretation of a zero integer for a null pointer, so 0.0 is |-0.0|.
    negative = tvm.tir.reinterpret(dtype, tvm.tir.const(1 << (width - 1), f"uint{width}"))
    return negative if math.copysign(1.0, value) < 0 else tvm.tir.abs(negative)


def _lower_without_extern(
    call: relay.Call, inputs: list[te.Tensor], target: tvm.target.Target
) -> tuple[relay.op.OpImplementation, list[te.Tensor]]:
    """Highest-priority implementation that Ansor can search: it cannot see into extern stages."""
    fields = getattr(call.checked_type, "fields", None)
    types = [relay.TensorType(get_shape(t.shape), t.dtype) for t in (fields or [call.checked_type])]
    out_type = types[0] if fields is None else relay.TupleType(types)
    found = []
    for implementation in get_valid_implementations(call.op, call.attrs, inputs, out_type, target):
        outputs = list(implementation.compute(call.attrs, inputs, out_type))
        open_to_search = all(isinstance(t.op, te.ComputeOp) for t in outputs)
        found.append((open_to_search, implementation.plevel, implementation, outputs))
    *_, implementation, outputs = max(found, key=lambda f: f[:2])
    return implementation, outputs


def _without_layout_free(tensor: te.Tensor) -> te.Tensor:
    """Drop TOPI's mark that an operand's layout may be rewritten.

    Ansor's workers crash on it when the operand is computed inside the block.
    """
    op = tensor.op
    if not isinstance(op, te.ComputeOp) or "layout_free_placeholders" not in op.attrs:
        return tensor
    attrs = {k: v for k, v in op.attrs.items() if k != "layout_free_placeholders"}
    return tvm.te._ffi_api.ComputeOp(op.name, op.tag, attrs, op.axis, op.body).output(tensor.value_index)
