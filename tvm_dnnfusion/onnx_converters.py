"""Converters of ONNX operators that replace TVM's: faster, or right where TVM's are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import nd, relay, tir
from tvm.relay.expr import Constant, RelayExpr

from .onnx_relay import constant, static_shape, type_of

Operands = list[RelayExpr | None]
Converter = Callable[[Operands, dict[str, Any], dict[str, nd.NDArray]], Any]


def _rows(x: RelayExpr, shape: tuple[int, ...], rank: int) -> RelayExpr:
    """``x`` with its leading axes flattened so that ``rank`` axes remain."""
    if len(shape) == rank:
        return x
    flat = -1 if math.prod(shape) else math.prod(shape[: len(shape) - rank + 1])
    return relay.reshape(x, [flat, *shape[len(shape) - rank + 1 :]])


def matmul(stock: Converter) -> Converter:
    """MatMul of static operands of rank 2 and more, one of them above 2: what TVM's converter makes.

    TVM's computes each reshape's target with Relay operators and folds them, ten for each MatMul.
    """

    def convert(inputs: Operands, attrs: dict[str, Any], params: dict[str, nd.NDArray]) -> RelayExpr:
        a, b = inputs
        a_shape, b_shape = static_shape(type_of(a)), static_shape(type_of(b))
        if (
            a_shape is None
            or b_shape is None
            or min(len(a_shape), len(b_shape)) < 2
            or len(a_shape + b_shape) < 5
        ):
            return stock(inputs, attrs, params)
        dtype = type_of(a).dtype
        batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
        if len(b_shape) == 2:
            out = relay.nn.dense(_rows(a, a_shape, 2), relay.transpose(b), out_dtype=dtype)
        else:
            a_full, b_full = (*batch, *a_shape[-2:]), (*batch, *b_shape[-2:])
            a = a if a_full == a_shape else relay.broadcast_to(a, a_full)
            b = b if b_full == b_shape else relay.broadcast_to(b, b_full)
            transposed = relay.transpose(_rows(b, b_full, 3), [0, 2, 1])
            out = relay.nn.batch_matmul(_rows(a, a_full, 3), transposed, out_dtype=dtype)
        return relay.reshape(out, (*batch, a_shape[-2], b_shape[-1]))

    return convert


def _per_tensor(parameter: RelayExpr) -> RelayExpr:
    """A scale or zero point of one element as a scalar: relay takes shape (1,) for one per channel."""
    shape = static_shape(type_of(parameter))
    if shape is None or not shape or math.prod(shape) != 1:
        return parameter
    if isinstance(parameter, Constant):
        return constant(parameter.data.numpy().reshape(()), parameter.span)
    return relay.reshape(parameter, [])


def quantisation(default_zero: str) -> Callable[[Converter], Converter]:
    """QuantizeLinear and DequantizeLinear, with scales of shape (1,) and without a zero point.

    Parameters
    ----------
    default_zero
        Element type of the zero point where the node has none.
    """

    def replace(stock: Converter) -> Converter:
        def convert(inputs: Operands, attrs: dict[str, Any], params: dict[str, nd.NDArray]) -> RelayExpr:
            data, scale, zero = inputs[0], inputs[1], inputs[2]
            zero = constant(np.zeros((), default_zero)) if zero is None else _per_tensor(zero)
            rank = len(type_of(data).shape)
            attrs["axis"] = attrs.get("axis", 1) % max(rank, 1)
            return stock([data, _per_tensor(scale), zero], attrs, params)

        return convert

    return replace


def unsqueeze(stock: Converter) -> Converter:
    """Unsqueeze with negative axes, which count from the end of the *output*."""

    def convert(inputs: Operands, attrs: dict[str, Any], params: dict[str, nd.NDArray]) -> RelayExpr:
        data, given = inputs[0], inputs[1]
        if given is not None and not isinstance(given, Constant):
            return stock(inputs, attrs, params)
        axes = [int(axis) for axis in (attrs["axes"] if given is None else given.data.numpy().reshape(-1))]
        rank = len(type_of(data).shape) + len(axes)
        for axis in sorted(axis % rank for axis in axes):
            data = relay.expand_dims(data, axis)
        return data

    return convert


def split(stock: Converter) -> Converter:
    """Split into one part, which is its operand: TVM's has no indices, and then no shape function."""

    def convert(inputs: Operands, attrs: dict[str, Any], params: dict[str, nd.NDArray]) -> Any:
        return inputs[0] if attrs["tvm_custom"]["num_outputs"] == 1 else stock(inputs, attrs, params)

    return convert


def expand(stock: Converter) -> Converter:
    """Expand of a dynamic shape, in which an extent of 0 against 1 is 0: TVM's takes the larger, and then
    reads, and scatters to, rows that do not exist.
    """

    def convert(inputs: Operands, attrs: dict[str, Any], params: dict[str, nd.NDArray]) -> RelayExpr:
        data, target = inputs
        shape, rank = static_shape(type_of(data)), len(type_of(data).shape)
        target_type = type_of(target)
        length = static_shape(target_type)
        if length is None or (shape is not None and isinstance(target, Constant)):
            return stock(inputs, attrs, params)
        dtype = target_type.dtype
        extents = relay.shape_of(data, dtype) if shape is None else constant(np.array(shape, dtype))
        extents, target = _padded(extents, length[0] - rank, dtype), _padded(target, rank - length[0], dtype)
        one = constant(np.ones((), dtype))
        return relay.broadcast_to(data, relay.where(relay.equal(extents, one), target, extents))

    return convert


def loop(stock: Converter) -> Converter:
    """Loop without a condition, which goes on until its count: TVM's infers the type of what is missing."""

    def convert(inputs: Operands, attrs: dict[str, Any], params: dict[str, nd.NDArray]) -> Any:
        count, condition, *carried = inputs
        if condition is None:
            condition = constant(np.ones((), bool))
        return stock([count, condition, *carried], attrs, params)

    return convert


def _padded(extents: RelayExpr, missing: int, dtype: str) -> RelayExpr:
    """A shape with ``missing`` leading extents of 1."""
    if missing <= 0:
        return extents
    return relay.concatenate([constant(np.ones(missing, dtype)), extents], axis=0)


def non_negative_indices(data: RelayExpr, indices: RelayExpr, axis: int) -> RelayExpr:
    """Indices counted from the start of ``axis``, for the converters of the Gather family.

    TVM's adds the extent of a dynamic axis as a scalar; the VM has no shape function that takes one
    (``vm.shape_of`` makes a tensor of rank 1 of it, where the compiled shape function asserts rank 0).
    And its shape function of ``where`` gives scalars rank 1, so that what they index gets a wrong shape:
    for a scalar this is arithmetic.
    """
    ty, shape = type_of(indices), type_of(data).shape
    axis %= len(shape)
    extent = shape[axis]
    if isinstance(extent, tir.IntImm):
        count: RelayExpr = constant(np.array(int(extent), ty.dtype))
    else:
        where = np.array([axis] if len(ty.shape) else axis, "int64")
        count = relay.take(relay.shape_of(data, ty.dtype), constant(where))
    if isinstance(indices, Constant):
        negative = indices.data.numpy() < 0
        if not negative.any():
            return indices
        if negative.all():
            return relay.add(indices, count)
    is_negative = relay.less(indices, constant(np.zeros((), ty.dtype)))
    if not len(ty.shape):
        return relay.add(indices, relay.multiply(relay.cast(is_negative, ty.dtype), count))
    return relay.where(is_negative, relay.add(indices, count), indices)


REPLACED: dict[str, Callable[[Converter], Converter]] = {
    "DequantizeLinear": quantisation("int8"),
    "Expand": expand,
    "Loop": loop,
    "MatMul": matmul,
    "QuantizeLinear": quantisation("uint8"),
    "Split": split,
    "Unsqueeze": unsqueeze,
}
