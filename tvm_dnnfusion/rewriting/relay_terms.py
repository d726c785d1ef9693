"""Relay function -> graph of terms: what equations can speak of in the function's own data flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relay

from tvm_dnnfusion.passes.tensor_memory import view
from tvm_dnnfusion.relay_graph import Visit, key_of, visit_order

from ..ecg import TensorInfo
from .operators import BINARY, REDUCTIONS, UNARY_FLOAT, Array, Attributes
from .operators_linear import CONVOLUTIONS, TRANSPOSED
from .pattern import Inapplicable
from .terms import TermGraph

_Read = tuple[str, Attributes]
_Reader = Callable[[Any, list[TensorInfo], TensorInfo], "_Read | None"]


@dataclass
class Imported:
    """A function as a graph of terms.

    Attributes
    ----------
    graph
        The terms.
    order
        The function's expressions, children first.
    numbers
        Term per expression, by key.
    exprs
        Expression per term: the first one, if several are equal.
    outputs
        Terms that anything else than a term reads, the result included.
    """

    graph: TermGraph
    order: list[Visit]
    numbers: dict[int, int] = field(default_factory=dict)
    exprs: dict[int, relay.Expr] = field(default_factory=dict)
    outputs: dict[int, None] = field(default_factory=dict)


class Types:
    """Static tensor types read from their text, which is cheaper than reading extent by extent."""

    def __init__(self) -> None:
        self._known: dict[str, TensorInfo | None] = {}

    def of(self, type_: Any) -> TensorInfo | None:
        """Shape and dtype; None for tuples, dynamic shapes and empty tensors."""
        text = str(type_)
        if text not in self._known:
            self._known[text] = _parse(text)
        return self._known[text]


def _parse(text: str) -> TensorInfo | None:
    if not text.startswith("Tensor["):
        return TensorInfo((), text) if text.isalnum() else None
    shape, _, dtype = text[len("Tensor[(") : -1].rpartition("), ")
    extents = [e.strip() for e in shape.split(",") if e.strip()]
    if not all(e.isdigit() and int(e) > 0 for e in extents):
        return None
    return TensorInfo(tuple(map(int, extents)), dtype)


def import_terms(function: relay.Function) -> Imported:
    """The terms of a typed function; what is in branches, loops and closures stays outside."""
    found = Imported(TermGraph(), visit_order(function.body))
    importer = _Importer(found)
    for visit in found.order:
        importer.visit(visit)
    importer.keep([function.body])
    return found


class _Importer:
    def __init__(self, found: Imported) -> None:
        self._found = found
        self._graph = found.graph
        self._types = Types()
        self._names: dict[int, str] = {}
        self._tuples: dict[int, list[relay.Expr]] = {}
        self._splits: dict[int, tuple[relay.Call, relay.Expr]] = {}
        self._infos: dict[int, TensorInfo | None] = {}

    def visit(self, visit: Visit) -> None:
        """Make a term of an expression if it is one; otherwise what it reads must be kept for it."""
        expr, kind = visit.expr, type(visit.expr)
        number = None
        if kind is relay.Constant:
            number = self._constant(expr)
        elif visit.scope == 0:
            if kind is relay.Tuple:
                self._tuples[key_of(expr)] = visit.children
                return
            if kind is relay.TupleGetItem:
                number = self._part_of_split(expr, visit.children[0])
            elif kind is relay.Call and isinstance(visit.children[0], tvm.ir.Op):
                number = self._call(expr, self._name(visit.children[0]), visit.children[1:])
        if number is not None:
            self._found.numbers[key_of(expr)] = number
            self._found.exprs.setdefault(number, expr)
        elif key_of(expr) not in self._splits:
            self.keep(visit.children)

    def keep(self, exprs: list[relay.Expr]) -> None:
        """Note that something else than a term reads ``exprs``."""
        pending = list(exprs)
        while pending:
            key = key_of(pending.pop())
            pending.extend(self._tuples.pop(key, ()))
            split = self._splits.pop(key, None)
            if split is not None:
                pending.append(split[1])
            if key in self._found.numbers:
                self._found.outputs[self._found.numbers[key]] = None

    def _name(self, op: tvm.ir.Op) -> str:
        key = key_of(op)
        if key not in self._names:
            self._names[key] = op.name
        return self._names[key]

    def _info(self, expr: relay.Expr) -> TensorInfo | None:
        key = key_of(expr)
        number = self._found.numbers.get(key)
        if number is not None:
            return self._graph.infos[number]
        if key not in self._infos:
            self._infos[key] = self._types.of(expr.checked_type)
        return self._infos[key]

    def _constant(self, expr: relay.Constant) -> int | None:
        info = self._types.of(expr.checked_type)
        if info is None or info.dtype.startswith("bfloat"):
            return None

        def read() -> Array:
            value = view(expr.data)
            assert value is not None, f"NumPy has no {info}"
            return value

        return self._graph.late_constant(key_of(expr), info, read)

    def _operand(self, expr: relay.Expr) -> int | None:
        number = self._found.numbers.get(key_of(expr))
        if number is not None:
            return number
        info = self._info(expr)
        return None if info is None else self._graph.leaf(key_of(expr), info)

    def _call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> int | None:
        if name == "split":
            self._splits[key_of(call)] = (call, args[0])
            return None
        reader = READERS.get(name)
        if reader is None:
            return None
        if len(args) == 1 and key_of(args[0]) in self._tuples:
            args = self._tuples[key_of(args[0])]
        infos = [self._info(arg) for arg in args]
        output = self._types.of(call.checked_type)
        if output is None or None in infos:
            return None
        read = reader(call, [info for info in infos if info is not None], output)
        return None if read is None else self._term(read, args, output)

    def _term(self, read: _Read, args: list[relay.Expr], output: TensorInfo) -> int | None:
        """None unless our type of the term is Relay's."""
        operands = tuple(number for arg in args if (number := self._operand(arg)) is not None)
        if len(operands) != len(args):
            return None
        try:
            number = self._graph.add(read[0], operands, read[1])
        except Inapplicable:
            return None
        return number if self._graph.infos[number] == output else None

    def _part_of_split(self, part: relay.TupleGetItem, source: relay.Expr) -> int | None:
        """One result of a split is a slice."""
        split = self._splits.get(key_of(source))
        output = self._types.of(part.checked_type)
        data = None if split is None else self._info(split[1])
        if split is None or output is None or data is None:
            return None
        call, arg = split
        axis = int(call.attrs.axis) % len(data.shape)
        sections = call.attrs.indices_or_sections
        if isinstance(sections, tvm.ir.Array | list | tuple):
            start = [0, *map(int, sections)][part.index]
        else:
            start = part.index * output.shape[axis]
        begin = tuple(start if a == axis else 0 for a in range(len(data.shape)))
        return self._term(("strided_slice", slice_attributes(begin, output.shape)), [arg], output)


def slice_attributes(
    begin: tuple[int, ...], extents: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Attributes:
    """Attributes of the slice of ``extents`` elements from ``begin``, every ``strides``-th."""
    strides = strides or (1,) * len(begin)
    end = tuple(b + (n - 1) * s + 1 for b, n, s in zip(begin, extents, strides, strict=True))
    return {"begin": begin, "end": end, "strides": strides}


def _plain(name: str) -> _Reader:
    return lambda call, inputs, output: (name, {})


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _reduction(name: str) -> _Reader:
    def read(call: Any, inputs: list[TensorInfo], output: TensorInfo) -> _Read | None:
        attrs, rank = call.attrs, len(inputs[0].shape)
        axis: Any = attrs.axis
        given = range(rank) if axis is None else axis if isinstance(axis, tvm.ir.Array) else [axis]
        axes = {int(a) % rank for a in given}
        if axis is not None and bool(attrs.exclude):
            axes = set(range(rank)) - axes
        return name, {"axes": tuple(sorted(axes)), "keepdims": bool(attrs.keepdims)}

    return read


def _transpose(call: Any, inputs: list[TensorInfo], output: TensorInfo) -> _Read:
    rank, axes = len(output.shape), call.attrs.axes
    given = range(rank)[::-1] if axes is None else (int(a) % rank for a in axes)
    return "transpose", {"axes": tuple(given)}


def _shape(name: str) -> _Reader:
    return lambda call, inputs, output: (name, {"shape": output.shape})


def _strided_slice(call: Any, inputs: list[TensorInfo], output: TensorInfo) -> _Read | None:
    attrs, shape = call.attrs, inputs[0].shape
    if len(inputs) != 1 or attrs.begin is None:
        return None
    given = _ints(attrs.begin)
    axes = range(len(given)) if attrs.axes is None else (a % len(shape) for a in _ints(attrs.axes))
    steps = (
        [1] * len(given) if attrs.slice_mode == "size" or not attrs.strides else list(_ints(attrs.strides))
    )
    steps = steps * len(given) if len(steps) == 1 else steps
    begin, strides = [0] * len(shape), [1] * len(shape)
    for axis, start, step in zip(axes, given, steps, strict=True):
        begin[axis] = min(max(start + shape[axis] if start < 0 else start, 0), shape[axis])
        strides[axis] = step
    if min(strides, default=1) < 1:
        return None
    return "strided_slice", slice_attributes(tuple(begin), output.shape, tuple(strides))


def _axis(name: str) -> _Reader:
    return lambda call, inputs, output: (name, {"axis": int(call.attrs.axis) % len(output.shape)})


def _pad(call: Any, inputs: list[TensorInfo], output: TensorInfo) -> _Read | None:
    if call.attrs.pad_mode != "constant":
        return None
    return "nn.pad", {"pad_width": tuple(_ints(pair) for pair in call.attrs.pad_width)}


def _take(call: Any, inputs: list[TensorInfo], output: TensorInfo) -> _Read | None:
    attrs = call.attrs
    if attrs.axis is None or attrs.mode != "clip" or int(attrs.batch_dims):
        return None
    return "take", {"axis": int(attrs.axis) % len(inputs[0].shape)}


def _product(call: Any, inputs: list[TensorInfo], output: TensorInfo) -> _Read:
    attrs = call.attrs
    given = {"transpose_a": bool(attrs.transpose_a), "transpose_b": bool(attrs.transpose_b)}
    return ("nn.batch_matmul" if len(output.shape) == 3 else "nn.matmul"), given


def _spatial(values: Any, rank: int) -> tuple[int, ...]:
    found = _ints(values)
    return found * rank if len(found) == 1 else found


def _convolution(name: str) -> _Reader:
    rank = 3 if "3d" in name else 2 if "2d" in name else 1
    transposed = name in TRANSPOSED

    def read(call: Any, inputs: list[TensorInfo], output: TensorInfo) -> _Read | None:
        attrs, spatial = call.attrs, "DHW"[3 - rank :]
        kernel = f"IO{spatial}" if transposed else f"OI{spatial}"
        if attrs.data_layout != f"NC{spatial}" or attrs.out_layout not in ("", f"NC{spatial}"):
            return None
        if attrs.kernel_layout != kernel or len(inputs[1].shape) != rank + 2:
            return None
        padding = _spatial(attrs.padding, rank)
        found: Attributes = {
            "strides": _spatial(attrs.strides, rank),
            "padding": padding * 2 if len(padding) == rank else padding,
            "dilation": _spatial(attrs.dilation, rank),
            "groups": int(attrs.groups),
            "kernel_size": inputs[1].shape[2:],
        }
        if transposed:
            found["output_padding"] = _spatial(attrs.output_padding, rank)
        return name, found

    return read


READERS: dict[str, _Reader] = {
    **{name: _plain(name) for name in (*UNARY_FLOAT, *BINARY)},
    **{name: _plain(name) for name in ("bitwise_not", "logical_not", "where", "nn.dense")},
    **{name: _reduction(name) for name in REDUCTIONS},
    **{name: _shape("reshape") for name in ("reshape", "squeeze", "expand_dims", "nn.batch_flatten")},
    **{name: _convolution(name) for name in (*CONVOLUTIONS, *TRANSPOSED)},
    "broadcast_to": _shape("broadcast_to"),
    "transpose": _transpose,
    "strided_slice": _strided_slice,
    "concatenate": _axis("concatenate"),
    "nn.softmax": _axis("nn.softmax"),
    "nn.pad": _pad,
    "take": _take,
    "nn.matmul": _product,
    "nn.batch_matmul": _product,
    "cast": lambda call, inputs, output: ("cast", {"dtype": output.dtype}),
    "clip": lambda call, inputs, output: (
        "clip",
        {"a_min": float(call.attrs.a_min), "a_max": float(call.attrs.a_max)},
    ),
    "nn.leaky_relu": lambda call, inputs, output: ("nn.leaky_relu", {"alpha": float(call.attrs.alpha)}),
}
