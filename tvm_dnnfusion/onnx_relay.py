"""Rewriting the small Relay expression that one ONNX node became: folding, spans, parameters."""

from __future__ import annotations

from collections.abc import Callable, Container

import numpy as np
from tvm import nd, tir
from tvm.ir import IRModule, Op, Span, TensorType, Type
from tvm.relay.expr import Call, CallWithFields, Constant, RelayExpr, Tuple, TupleGetItem, Var, bind
from tvm.relay.frontend.common import infer_type
from tvm.relay.function import Function
from tvm.relay.transform import DynamicToStatic, FoldConstantExpr

# Elements up to which a call that NumPy does not cover is compiled and run: shapes, scales, offsets.
_COMPILED_FOLD_LIMIT = 4096

Visit = Callable[[RelayExpr, RelayExpr], RelayExpr]


def children(expr: RelayExpr) -> list[RelayExpr]:
    """The tensor operands of a Call, Tuple or TupleGetItem; nothing for any other expression."""
    if isinstance(expr, Call):
        return list(expr.args)
    if isinstance(expr, Tuple):
        return list(expr.fields)
    if isinstance(expr, TupleGetItem):
        return [expr.tuple_value]
    return []


def with_children(expr: RelayExpr, new: list[RelayExpr]) -> RelayExpr:
    """``expr`` reading ``new`` instead of ``children(expr)``; everything else is kept."""
    if isinstance(expr, Call):
        return CallWithFields(expr, expr.op, new, expr.attrs, expr.type_args, None, expr.span)
    if isinstance(expr, Tuple):
        return Tuple(new, expr.span)
    return TupleGetItem(new[0], expr.index, expr.span)


def rewrite_dataflow(root: RelayExpr, visit: Visit, known: Container[RelayExpr] = ()) -> RelayExpr:
    """Rebuild ``root`` from its operands up, without recursion (an unrolled LSTM is deep).

    Parameters
    ----------
    root
        Only Calls, Tuples and TupleGetItems are entered; functions and control flow are leaves.
    visit
        Called once per expression with the original and the rebuilt one; returns what replaces it.
    known
        Expressions that stay as they are and are not entered.
    """
    done: dict[RelayExpr, RelayExpr] = {}
    stack = [(root, False)]
    while stack:
        expr, entered = stack.pop()
        if expr in done:
            continue
        if expr in known:
            done[expr] = expr
            continue
        operands = children(expr)
        if operands and not entered:
            stack.append((expr, True))
            stack.extend((operand, False) for operand in operands if operand not in done)
            continue
        new = [done[operand] for operand in operands]
        changed = any(not a.same_as(b) for a, b in zip(new, operands, strict=True))
        done[expr] = visit(expr, with_children(expr, new) if changed else expr)
    return done[root]


def constant(value: np.ndarray, span: Span | None = None) -> Constant:
    """A constant of exactly ``value``'s dtype (``relay.const`` narrows int64 and float64)."""
    return Constant(nd.array(np.ascontiguousarray(value).reshape(value.shape)), span)


def static_shape(ty: object) -> tuple[int, ...] | None:
    """Extents of a tensor type, or None when it is no tensor or has an unknown extent."""
    if not isinstance(ty, TensorType):
        return None
    if not all(isinstance(dim, tir.IntImm) for dim in ty.shape):
        return None
    return tuple(int(dim) for dim in ty.shape)


def _slice(data: np.ndarray, attrs: object) -> np.ndarray | None:
    if attrs.slice_mode != "end" or attrs.begin is None or attrs.end is None:  # type: ignore[attr-defined]
        return None
    begin, end = [int(b) for b in attrs.begin], [int(e) for e in attrs.end]  # type: ignore[attr-defined]
    strides = [int(s) for s in attrs.strides or []]  # type: ignore[attr-defined]
    strides += [1] * (len(begin) - len(strides))
    if any(b < 0 for b in begin + end) or any(s <= 0 for s in strides) or len(begin) != len(end):
        return None
    axes = [int(a) for a in attrs.axes] if attrs.axes else list(range(len(begin)))  # type: ignore[attr-defined]
    index = [slice(None)] * data.ndim
    for axis, b, e, s in zip(axes, begin, end, strides, strict=False):
        index[axis] = slice(b, e, s)
    return data[tuple(index)]


def _take(data: np.ndarray, index: np.ndarray, attrs: object) -> np.ndarray | None:
    axis = attrs.axis  # type: ignore[attr-defined]
    flat = data.reshape(-1) if axis is None else data
    extent = flat.shape[0 if axis is None else int(axis)]
    if int(attrs.batch_dims) or index.size == 0 or index.min() < 0 or index.max() >= extent:  # type: ignore[attr-defined]
        return None
    return np.take(flat, index, axis=0 if axis is None else int(axis))


def _reshape(data: np.ndarray, attrs: object) -> np.ndarray | None:
    shape = [int(dim) for dim in attrs.newshape]  # type: ignore[attr-defined]
    plain = not attrs.allowzero and min(shape, default=1) >= -1 and 0 not in shape  # type: ignore[attr-defined]
    return data.reshape(shape) if plain and data.size else None


def _squeeze(data: np.ndarray, attrs: object) -> np.ndarray:
    axis = attrs.axis  # type: ignore[attr-defined]
    return np.squeeze(data, None if axis is None else tuple(int(a) for a in axis))


def _expand_dims(data: np.ndarray, attrs: object) -> np.ndarray | None:
    axis, count = int(attrs.axis), int(attrs.num_newaxis)  # type: ignore[attr-defined]
    return data.reshape(data.shape[:axis] + (1,) * count + data.shape[axis:]) if axis >= 0 else None


def _scatter(data: np.ndarray, index: np.ndarray, updates: np.ndarray, attrs: object) -> np.ndarray | None:
    axis = int(attrs.axis)  # type: ignore[attr-defined]
    if attrs.reduction != "update" or index.size == 0 or index.min() < 0:  # type: ignore[attr-defined]
        return None
    out = data.copy()
    np.put_along_axis(out, index, updates, axis)
    return out


def _prod(data: np.ndarray, attrs: object) -> np.ndarray | None:
    if attrs.exclude or attrs.axis is None or data.dtype.kind not in "iu":  # type: ignore[attr-defined]
        return None
    axes = tuple(int(axis) for axis in attrs.axis)  # type: ignore[attr-defined]
    return np.prod(data, axes, data.dtype, keepdims=bool(attrs.keepdims))  # type: ignore[attr-defined]


# Data movement is exact for every dtype, and so is the arithmetic on integers, which in NumPy wraps
# as in compiled code; division is left to the compiler, whose rounding of negatives differs.
_MOVEMENT: dict[str, Callable[..., np.ndarray | None]] = {
    "concatenate": lambda *a: np.concatenate(a[:-1], int(a[-1].axis)),
    "strided_slice": _slice,
    "take": _take,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "scatter_elements": _scatter,
    "prod": _prod,
    "expand_dims": _expand_dims,
    "transpose": lambda x, a: np.transpose(x, None if a.axes is None else [int(i) for i in a.axes]),
    "where": lambda c, x, y, _: np.where(c, x, y),
}
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": np.less,
    "equal": np.equal,
    "greater_equal": np.greater_equal,
}


def _in_numpy(name: str, args: list[np.ndarray], attrs: object) -> np.ndarray | None:
    """Value of one operator call, or None when NumPy would not surely give TVM's value."""
    integral = all(a.dtype.kind in "iub" for a in args)
    if name in _MOVEMENT:
        return _MOVEMENT[name](*args, attrs)
    if name in _ARITHMETIC and integral and all(a.dtype == args[0].dtype for a in args):
        return _ARITHMETIC[name](*args)
    if name == "cast" and integral and np.dtype(bool) not in (args[0].dtype, attrs.dtype):  # type: ignore[attr-defined]
        return args[0].astype(attrs.dtype)  # type: ignore[attr-defined]
    return None


def constant_operands(call: Call, is_weight: Callable[[Constant], bool]) -> list[Constant] | None:
    """The call's constant operands, tuples flattened; None when one is computed or is a weight."""
    flat: list[RelayExpr] = []
    for arg in call.args:
        flat.extend(arg.fields if isinstance(arg, Tuple) else [arg])
    if not flat or not all(isinstance(arg, Constant) and not is_weight(arg) for arg in flat):
        return None
    return flat


def never(_: Constant) -> bool:
    """No constant is a weight: for expressions a converter asks to have folded."""
    return False


def fold_call(original: Call, call: Call, is_weight: Callable[[Constant], bool] = never) -> RelayExpr:
    """Replace a call of constants by its value.

    Shape arithmetic is evaluated by NumPy: TVM compiles a function for each call, which takes 50 ms
    where a network has thousands of them. Everything else small goes to TVM's own folder.

    Parameters
    ----------
    original
        The call before its operands were rewritten; it may carry their types.
    call
        The call to fold.
    is_weight
        Whether a constant is a network parameter, which is folded after binding instead.
    """
    if not isinstance(call.op, Op):
        return call
    if call.op.name == "shape_of":
        shape = static_shape(type_of(original.args[0]))
        return call if shape is None else constant(np.array(shape, dtype=call.attrs.dtype))
    if (
        call.op.name == "cast"
        and isinstance(call.args[0], Constant)
        and call.args[0].data.dtype == call.attrs.dtype
    ):
        return call.args[0]
    operands = constant_operands(call, is_weight)
    if operands is None:
        return call
    arrays = [operand.data.numpy() for operand in operands]
    value = _in_numpy(call.op.name, arrays, call.attrs)
    if value is not None:
        return constant(value)
    if sum(a.size for a in arrays) <= _COMPILED_FOLD_LIMIT:
        return FoldConstantExpr(call, IRModule())
    return call


def static_call(original: Call, call: Call) -> RelayExpr:
    """The static form of a call of a ``dyn`` operator whose shape operands have become constants."""
    if not any(isinstance(arg, Constant) for arg in call.args):
        return call
    data = [
        arg if isinstance(arg, Constant) else Var(f"data{i}", type_of(old))
        for i, (old, arg) in enumerate(zip(original.args, call.args, strict=True))
    ]
    computed = {var: arg for var, arg in zip(data, call.args, strict=True) if isinstance(var, Var)}
    func = Function(list(computed), Call(call.op, data, call.attrs, call.type_args, call.span))
    static = DynamicToStatic()(IRModule.from_expr(func))["main"]
    return bind(static.body, dict(zip(static.params, computed.values(), strict=True)))


def simplify_call(original: Call, call: Call, is_weight: Callable[[Constant], bool] = never) -> RelayExpr:
    """``fold_call``, then ``static_call`` for what is left of a dynamic operator."""
    folded = fold_call(original, call, is_weight)
    if isinstance(folded, Call) and isinstance(folded.op, Op) and folded.op.name.startswith("dyn."):
        return static_call(original, folded)
    return folded


def simplify(
    root: RelayExpr, is_weight: Callable[[Constant], bool] = never, known: Container[RelayExpr] = ()
) -> RelayExpr:
    """``root`` with calls of constants replaced by their values, and dynamic calls by static ones."""

    def visit(old: RelayExpr, new: RelayExpr) -> RelayExpr:
        return simplify_call(old, new, is_weight) if isinstance(new, Call) else new

    return rewrite_dataflow(root, visit, known)


def type_of(expr: RelayExpr) -> Type:
    """The expression's type: as known, else inferred."""
    if isinstance(expr, Var) and expr.type_annotation is not None:
        return expr.type_annotation
    if isinstance(expr, Constant):
        return TensorType(expr.data.shape, expr.data.dtype)
    if expr._checked_type_ is not None:
        return expr._checked_type_
    return infer_type(expr).checked_type
