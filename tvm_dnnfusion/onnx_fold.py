"""Folding constants in the small Relay expressions that one ONNX node becomes."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
from tvm.ir import IRModule
from tvm.relay.expr import Call, Constant, RelayExpr, Tuple, Var, bind
from tvm.relay.function import Function
from tvm.relay.transform import DynamicToStatic, FoldConstantExpr

from .onnx_relay import (
    address,
    children,
    constant,
    operator_name,
    rebuild,
    rewrite_dataflow,
    static_shape,
    type_of,
)

# Elements up to which a call that NumPy does not cover is compiled and run: shapes, scales, offsets.
_COMPILED_FOLD_LIMIT = 4096

IsWeight = Callable[[Constant], bool]


def _slice(data: np.ndarray, attrs: Any) -> np.ndarray | None:
    if attrs.slice_mode != "end" or attrs.begin is None or attrs.end is None:
        return None
    begin, end = [int(b) for b in attrs.begin], [int(e) for e in attrs.end]
    strides = [int(s) for s in attrs.strides or []]
    strides += [1] * (len(begin) - len(strides))
    if any(b < 0 for b in begin + end) or any(s <= 0 for s in strides) or len(begin) != len(end):
        return None
    axes = [int(a) for a in attrs.axes] if attrs.axes else list(range(len(begin)))
    index = [slice(None)] * data.ndim
    for axis, b, e, s in zip(axes, begin, end, strides, strict=False):
        index[axis] = slice(b, e, s)
    return data[tuple(index)]


def _within(index: np.ndarray, extent: int) -> bool:
    return index.size > 0 and bool(index.min() >= 0) and bool(index.max() < extent)


def _take(data: np.ndarray, index: np.ndarray, attrs: Any) -> np.ndarray | None:
    flat, axis = (data.reshape(-1), 0) if attrs.axis is None else (data, int(attrs.axis))
    if int(attrs.batch_dims) or not _within(index, flat.shape[axis]):
        return None
    return np.take(flat, index, axis=axis)


def _reshape(data: np.ndarray, attrs: Any) -> np.ndarray | None:
    shape = [int(dim) for dim in attrs.newshape]
    plain = not attrs.allowzero and min(shape, default=1) >= -1 and 0 not in shape
    return data.reshape(shape) if plain and data.size else None


def _squeeze(data: np.ndarray, attrs: Any) -> np.ndarray:
    return np.squeeze(data, None if attrs.axis is None else tuple(int(a) for a in attrs.axis))


def _expand_dims(data: np.ndarray, attrs: Any) -> np.ndarray | None:
    axis, count = int(attrs.axis), int(attrs.num_newaxis)
    return data.reshape(data.shape[:axis] + (1,) * count + data.shape[axis:]) if axis >= 0 else None


def _scatter(data: np.ndarray, index: np.ndarray, updates: np.ndarray, attrs: Any) -> np.ndarray | None:
    if attrs.reduction != "update" or data.ndim != 1 or not _within(index, data.size):
        return None
    out = data.copy()
    out[index] = updates
    return out


def _prod(data: np.ndarray, attrs: Any) -> np.ndarray | None:
    if attrs.exclude or attrs.axis is None or data.dtype.kind not in "iu":
        return None
    axes = tuple(int(axis) for axis in attrs.axis)
    return np.prod(data, axes, data.dtype, keepdims=bool(attrs.keepdims))


def _where(condition: np.ndarray, x: np.ndarray, y: np.ndarray, _: Any) -> np.ndarray:
    return np.where(condition, x, y)


# Data movement is exact for every dtype, and so is the arithmetic on integers, which in NumPy wraps
# as in compiled code; division is left to the compiler, whose rounding of negatives differs.
_MOVEMENT: dict[str, Callable[..., np.ndarray | None]] = {
    "concatenate": lambda *a: np.concatenate(a[:-1], int(a[-1].axis)),
    "expand_dims": _expand_dims,
    "prod": _prod,
    "reshape": _reshape,
    "scatter_elements": _scatter,
    "squeeze": _squeeze,
    "strided_slice": _slice,
    "take": _take,
    "transpose": lambda x, a: np.transpose(x, None if a.axes is None else [int(i) for i in a.axes]),
    "where": _where,
}
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "equal": np.equal,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "subtract": np.subtract,
}


def _in_numpy(name: str, args: list[np.ndarray], attrs: Any) -> np.ndarray | None:
    """Value of one operator call, or None when NumPy would not surely give TVM's value."""
    if name in _MOVEMENT:
        return _MOVEMENT[name](*args, attrs)
    integers = all(a.dtype.kind in "iu" for a in args)
    if name in _ARITHMETIC and integers and all(a.dtype == args[0].dtype for a in args):
        return _ARITHMETIC[name](*args)
    if name == "cast" and integers and str(attrs.dtype).startswith(("int", "uint")):
        return args[0].astype(attrs.dtype)
    return None


def _never(_: Constant) -> bool:
    return False


def _constants(args: Sequence[RelayExpr], is_weight: IsWeight) -> list[Constant] | None:
    """Operands with tuples flattened; None when there is none, or one is computed or a weight."""
    flat: list[RelayExpr] = []
    for arg in args:
        flat.extend(arg.fields if isinstance(arg, Tuple) else [arg])
    found = [arg for arg in flat if isinstance(arg, Constant)]
    return found if found and len(found) == len(flat) and not any(map(is_weight, found)) else None


def _fold(call: Call, name: str, args: list[RelayExpr], is_weight: IsWeight) -> Constant | None:
    """The value of ``call`` on ``args``, if they determine it."""
    if name == "shape_of":
        shape = static_shape(type_of(call.args[0]))
        return None if shape is None else constant(np.array(shape, dtype=call.attrs.dtype))
    if name == "cast" and isinstance(args[0], Constant) and args[0].data.dtype == call.attrs.dtype:
        return args[0]
    operands = _constants(args, is_weight)
    if operands is None:
        return None
    arrays = [operand.data.numpy() for operand in operands]
    value = _in_numpy(name, arrays, call.attrs)
    if value is not None:
        return constant(value)
    if sum(a.size for a in arrays) > _COMPILED_FOLD_LIMIT:
        return None
    folded = FoldConstantExpr(rebuild(call, args), IRModule())
    return folded if isinstance(folded, Constant) else None


def _static(call: Call, args: list[RelayExpr]) -> RelayExpr | None:
    """The static form of a ``dyn`` operator whose shape operands have become constants."""
    if not any(isinstance(arg, Constant) for arg in args):
        return None
    stand_ins = [
        arg if isinstance(arg, Constant) else Var(f"data{i}", type_of(old))
        for i, (old, arg) in enumerate(zip(call.args, args, strict=True))
    ]
    params = [var for var in stand_ins if isinstance(var, Var)]
    computed = [arg for arg in args if not isinstance(arg, Constant)]
    func = DynamicToStatic()(IRModule.from_expr(Function(params, rebuild(call, stand_ins))))["main"]
    if isinstance(func.body, Call) and (operator_name(func.body) or "").startswith("dyn."):
        return None
    return bind(func.body, dict(zip(func.params, computed, strict=True)))


def simplify_call(call: Call, args: list[RelayExpr], is_weight: IsWeight = _never) -> RelayExpr | None:
    """What ``call`` on ``args`` comes to, or None when it stays a call.

    Shape arithmetic is evaluated by NumPy: TVM compiles a function for each call, which takes 50 ms
    where a network has thousands of them. Everything else small goes to TVM's own folder.

    Parameters
    ----------
    call
        The call as the converter made it.
    args
        Its operands after rewriting.
    is_weight
        Whether a constant is a network parameter, which is folded after binding instead.
    """
    name = operator_name(call)
    if name is None:
        return None
    folded = _fold(call, name, args, is_weight)
    return _static(call, args) if folded is None and name.startswith("dyn.") else folded


def simplify(root: RelayExpr, is_weight: IsWeight = _never, known: Container[int] = ()) -> RelayExpr:
    """``root`` with calls of constants replaced by their values, and dynamic calls by static ones.

    Parameters
    ----------
    root
        The expression.
    is_weight
        As for ``simplify_call``.
    known
        Addresses of expressions that are not entered.
    """

    def visit(old: RelayExpr, operands: list[RelayExpr]) -> RelayExpr:
        simpler = simplify_call(old, operands, is_weight) if isinstance(old, Call) else None
        if simpler is not None:
            return simpler
        same = all(address(a) == address(b) for a, b in zip(operands, children(old), strict=True))
        return old if same else rebuild(old, operands)

    return rewrite_dataflow(root, visit, known)
