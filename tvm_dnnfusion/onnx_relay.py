"""Rewriting the small Relay expressions that one ONNX node becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence

import numpy as np
from tvm import nd, tir
from tvm.ir import Op, Span, TensorType, Type
from tvm.relay.expr import Call, Constant, RelayExpr, Tuple, TupleGetItem, Var
from tvm.relay.frontend.common import infer_type

Visit = Callable[[RelayExpr, list[RelayExpr]], RelayExpr]


def address(expr: RelayExpr) -> int:
    """Identity of the expression behind a Python wrapper; hashing the wrapper costs a call into C++."""
    return int(expr.handle.value)


def data_address(value: Constant) -> int:
    """Address of a constant's data, which copies of the constant share."""
    return value.data.handle.contents.data or id(value)


def is_parameter(array: nd.NDArray) -> bool:
    """Whether an initializer is a weight; integers and single numbers are part of the program."""
    return len(array.shape) > 0 and math.prod(array.shape) > 1 and str(array.dtype).startswith("float")


def children(expr: RelayExpr) -> list[RelayExpr]:
    """The tensor operands of a Call, Tuple or TupleGetItem; nothing for any other expression."""
    if isinstance(expr, Call):
        return list(expr.args)
    if isinstance(expr, Tuple):
        return list(expr.fields)
    if isinstance(expr, TupleGetItem):
        return [expr.tuple_value]
    return []


def rebuild(expr: RelayExpr, operands: Sequence[RelayExpr], span: Span | None = None) -> RelayExpr:
    """A Call, Tuple or TupleGetItem like ``expr`` that reads ``operands``; ``span`` where it has none."""
    span = expr.span or span
    if isinstance(expr, Call):
        return Call(expr.op, list(operands), expr.attrs, expr.type_args, span)
    if isinstance(expr, Tuple):
        return Tuple(list(operands), span)
    return TupleGetItem(operands[0], expr.index, span)


def rewrite_dataflow(root: RelayExpr, visit: Visit, known: Container[int] = ()) -> RelayExpr:
    """Rewrite ``root`` from its operands up, without recursion (an unrolled LSTM is deep).

    Parameters
    ----------
    root
        Only Calls, Tuples and TupleGetItems are entered; functions and control flow are leaves.
    visit
        Called once per expression with its rewritten operands; returns what replaces it.
    known
        Addresses of expressions that stay as they are and are not entered.
    """
    done: dict[int, RelayExpr] = {}
    stack: list[tuple[RelayExpr, list[RelayExpr] | None]] = [(root, None)]
    while stack:
        expr, operands = stack.pop()
        key = address(expr)
        if key in done:
            continue
        if key in known:
            done[key] = expr
            continue
        if operands is None:
            operands = children(expr)
            if operands:
                stack.append((expr, operands))
                stack.extend((operand, None) for operand in operands)
                continue
        done[key] = visit(expr, [done[address(operand)] for operand in operands])
    return done[address(root)]


def constant(value: np.ndarray, span: Span | None = None) -> Constant:
    """A constant of exactly ``value``'s dtype (``relay.const`` narrows int64 and float64)."""
    return Constant(nd.array(np.ascontiguousarray(value).reshape(value.shape)), span)


def static_shape(ty: object) -> tuple[int, ...] | None:
    """Extents of a tensor type, or None when it is no tensor or has an unknown extent."""
    if not isinstance(ty, TensorType):
        return None
    shape = list(ty.shape)
    return tuple(int(dim) for dim in shape) if all(isinstance(dim, tir.IntImm) for dim in shape) else None


def type_of(expr: RelayExpr) -> Type:
    """The expression's type: as known, else inferred."""
    if isinstance(expr, Var):
        annotation = expr.type_annotation
        if annotation is not None:
            return annotation
    if isinstance(expr, Constant):
        return TensorType(expr.data.shape, expr.data.dtype)
    return expr._checked_type_ or infer_type(expr).checked_type


def operator_name(call: Call) -> str | None:
    """Name of the Relay operator called; None for a function, closure or constructor."""
    op = call.op
    return str(op.name) if isinstance(op, Op) else None
