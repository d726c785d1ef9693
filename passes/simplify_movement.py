"""Exact simplifications of data movement: no element is computed, none is rounded.

========================================= ================================
reshape to the shape it has                nothing
reshape, squeeze, expand_dims in a row     one reshape
transpose of a transpose                   one transpose
transpose by the identity                  nothing
transpose that only moves unit axes        reshape
cast to the dtype it has, copy             nothing
layout A -> B, then B -> C                 layout A -> C
layout A -> A                              nothing
slice, broadcast, tile, repeat, pad of all nothing
concatenation of one tensor                nothing
========================================= ================================

Rules that need a shape fire on static shapes only. Two casts in a row are not one: the middle one may round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relay
from tvm_dnnfusion.passes.static_types import StaticTypes, constant_type

from tvm_dnnfusion.block_attributes import make_attributes
from tvm_dnnfusion.node_fields import copy_call, field_of, items
from tvm_dnnfusion.relay_graph import key_of

RESHAPES = frozenset(
    {"reshape", "squeeze", "expand_dims", "nn.batch_flatten", "contrib_reverse_reshape", "reshape_like"}
)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Movement:
    """A data-movement call about to be rebuilt on rewritten arguments."""

    call: relay.Call
    name: str
    args: list[relay.Expr]


class MovementSimplifier:
    """The rules of this module; it remembers the types of the expressions that it and its caller make."""

    def __init__(self, static: StaticTypes) -> None:
        self._static = static
        self._types: dict[int, tuple[relay.Expr, relay.Type]] = {}

    def remember_type(self, expr: relay.Expr, type_: relay.Type) -> None:
        """Note the type of an ``expr`` made after type inference."""
        self._types[key_of(expr)] = (expr, type_)

    def type_of(self, expr: relay.Expr) -> relay.Type | None:
        """The type of ``expr`` if it is known without another type inference."""
        known = self._types.get(key_of(expr))
        if known is not None:
            return known[1]
        if isinstance(expr, relay.Constant):
            return constant_type(expr.data)
        return field_of(expr, "_checked_type_")

    def simplified(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        """What ``call`` of the operator ``name`` on ``args`` simplifies to; None: no rule fires."""
        rule = _RULES.get(name)
        return None if rule is None else rule(self, Movement(call, name, args))

    def shape_of(self, expr: relay.Expr) -> Shape | None:
        """The static shape of a tensor without empty axes; None for anything else."""
        return self._static.shape(self.type_of(expr))

    def _reshape(self, move: Movement) -> relay.Expr | None:
        shape = self._static.shape(field_of(move.call, "_checked_type_"))
        if shape is None or self.shape_of(move.args[0]) is None:
            return None
        return self._reshaped(move, move.args[0], shape, must_change=move.name in ("reshape_like", "squeeze"))

    def _reshaped(
        self, move: Movement, source: relay.Expr, shape: Shape, must_change: bool
    ) -> relay.Expr | None:
        """``source`` as one reshape to ``shape`` of what an earlier reshape read."""
        inner = _producer(source, RESHAPES)
        if inner is not None and self.shape_of(inner.args[0]) is not None:
            source, must_change = inner.args[0], True
        if self.shape_of(source) == shape:
            return source
        if not must_change:
            return None
        attrs = make_attributes("relay.attrs.ReshapeAttrs", newshape=list(shape), allowzero=0)
        return copy_call(move.call, relay.op.get("reshape"), [source], attrs)

    def _transpose(self, move: Movement) -> relay.Expr | None:
        type_ = field_of(move.call, "_checked_type_")
        rank = len(field_of(type_, "shape"))
        source = move.args[0]
        order = _axes(move.call, rank)
        inner = _producer(source, frozenset({"transpose"}))
        if inner is not None:
            inner_order = _axes(inner, rank)
            source, order = inner.args[0], tuple(inner_order[axis] for axis in order)
        if order == tuple(range(rank)):
            return source
        shape, extents = self._static.shape(type_), self.shape_of(source)
        if shape is not None and extents is not None:
            moved = [axis for axis in order if extents[axis] != 1]
            if moved == sorted(moved):
                return self._reshaped(move, source, shape, must_change=True)
        if inner is None:
            return None
        attrs = tvm.ir.make_node("relay.attrs.TransposeAttrs", axes=list(order))
        return copy_call(move.call, relay.op.get("transpose"), [source], attrs)

    def _cast(self, move: Movement) -> relay.Expr | None:
        source_type = self.type_of(move.args[0])
        if source_type is None or source_type.dtype != move.call.attrs.dtype:
            return None
        return move.args[0]

    def _copy(self, move: Movement) -> relay.Expr | None:
        return move.args[0]

    def _same_shape(self, move: Movement) -> relay.Expr | None:
        """For operators that, unless they change the shape, do nothing."""
        shape = self._static.shape(field_of(move.call, "_checked_type_"))
        return move.args[0] if shape is not None and self.shape_of(move.args[0]) == shape else None

    def _strided_slice(self, move: Movement) -> relay.Expr | None:
        """By size, every element kept; by sign, in their order."""
        strides = move.call.attrs.strides
        if len(move.args) != 1 or any(int(stride) < 1 for stride in strides or []):
            return None
        return self._same_shape(move)

    def _pad(self, move: Movement) -> relay.Expr | None:
        unpadded = all(int(amount) == 0 for pair in move.call.attrs.pad_width for amount in pair)
        return move.args[0] if unpadded else None

    def _concatenate(self, move: Movement) -> relay.Expr | None:
        fields = move.args[0]
        if not isinstance(fields, relay.Tuple) or len(fields.fields) != 1:
            return None
        return fields.fields[0]

    def _layout_transform(self, move: Movement) -> relay.Expr | None:
        source, first = move.args[0], str(move.call.attrs.src_layout)
        last = str(move.call.attrs.dst_layout)
        inner = _producer(source, frozenset({"layout_transform"}))
        if inner is not None and self._keeps_every_element(inner):
            source, first = inner.args[0], str(inner.attrs.src_layout)
        elif first != last:
            return None
        if first == last:
            return source
        attrs = tvm.ir.make_node("relay.attrs.LayoutTransformAttrs", src_layout=first, dst_layout=last)
        return copy_call(move.call, relay.op.get("layout_transform"), [source], attrs)

    def _keeps_every_element(self, call: relay.Call) -> bool:
        """Whether a layout's blocks divide the extents, so that nothing is padded."""
        before, after = self.shape_of(call.args[0]), self.shape_of(call)
        return before is not None and after is not None and _size(before) == _size(after)


def _size(shape: Shape) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _producer(expr: relay.Expr, names: frozenset[str]) -> relay.Call | None:
    """``expr`` if it is a call of one of the operators ``names``."""
    if not isinstance(expr, relay.Call):
        return None
    op = field_of(expr, "op")
    return expr if isinstance(op, tvm.ir.Op) and field_of(op, "name") in names else None


def _axes(call: relay.Call, rank: int) -> Shape:
    """The axes of a transpose, none negative; without axes it reverses them."""
    axes = field_of(field_of(call, "attrs"), "axes")
    if not axes:
        return tuple(reversed(range(rank)))
    return tuple(field_of(axis, "value") % rank for axis in items(axes))


_Rule = Callable[[MovementSimplifier, Movement], "relay.Expr | None"]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(RESHAPES, MovementSimplifier._reshape),
    "transpose": MovementSimplifier._transpose,
    "cast": MovementSimplifier._cast,
    "copy": MovementSimplifier._copy,
    "strided_slice": MovementSimplifier._strided_slice,
    "broadcast_to": MovementSimplifier._same_shape,
    "tile": MovementSimplifier._same_shape,
    "repeat": MovementSimplifier._same_shape,
    "nn.pad": MovementSimplifier._pad,
    "concatenate": MovementSimplifier._concatenate,
    "layout_transform": MovementSimplifier._layout_transform,
}
