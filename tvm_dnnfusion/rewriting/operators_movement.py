"""Operators that move elements without computing any."""

from __future__ import annotations

import math

import numpy as np

from ..ecg import TensorInfo
from .operators import Array, Attributes, broadcast_shape, declare, require


def _transposed(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    axes, shape = attributes["axes"], inputs[0].shape
    require(sorted(axes) == list(range(len(shape))), f"axes {axes} of a tensor of rank {len(shape)}")
    return TensorInfo(tuple(shape[a] for a in axes), inputs[0].dtype)


declare("transpose", _transposed, lambda attributes, arrays: arrays[0].transpose(attributes["axes"]))


def _reshaped(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    shape = attributes["shape"]
    require(math.prod(shape) == inputs[0].size, f"{inputs[0].shape} has no shape {shape}")
    return TensorInfo(shape, inputs[0].dtype)


declare("reshape", _reshaped, lambda attributes, arrays: arrays[0].reshape(attributes["shape"]))


def _broadcast(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    shape = attributes["shape"]
    require(broadcast_shape([inputs[0].shape, shape]) == shape, f"{inputs[0].shape} does not reach {shape}")
    return TensorInfo(shape, inputs[0].dtype)


declare(
    "broadcast_to", _broadcast, lambda attributes, arrays: np.broadcast_to(arrays[0], attributes["shape"])
)


def _sliced(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    begin, end, strides = (attributes[name] for name in ("begin", "end", "strides"))
    shape = inputs[0].shape
    require(len(begin) == len(shape), "a slice of another rank")
    for b, e, n in zip(begin, end, shape, strict=True):
        require(0 <= b < e <= n, f"a slice from {b} to {e} of {n}")
    extents = (-(-(e - b) // s) for b, e, s in zip(begin, end, strides, strict=True))
    return TensorInfo(tuple(extents), inputs[0].dtype)


def _slice(attributes: Attributes, arrays: list[Array]) -> Array:
    bounds = zip(attributes["begin"], attributes["end"], attributes["strides"], strict=True)
    return arrays[0][tuple(slice(*bound) for bound in bounds)]


declare("strided_slice", _sliced, _slice)


def _joined(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    axis, first = attributes["axis"], inputs[0]
    require(0 <= axis < len(first.shape), "concatenation along an axis that is not there")
    for info in inputs:
        same = info.dtype == first.dtype and len(info.shape) == len(first.shape)
        require(same, "concatenation of different ranks or types")
        others = [a for a in range(len(first.shape)) if a != axis]
        require(all(info.shape[a] == first.shape[a] for a in others), "concatenation of different extents")
    shape = list(first.shape)
    shape[axis] = sum(info.shape[axis] for info in inputs)
    return TensorInfo(tuple(shape), first.dtype)


declare("concatenate", _joined, lambda attributes, arrays: np.concatenate(arrays, attributes["axis"]))


def _padded(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    width, shape = attributes["pad_width"], inputs[0].shape
    require(len(width) == len(shape), "padding of another rank")
    require(all(low >= 0 and high >= 0 for low, high in width), "negative padding")
    require(inputs[1].shape == () and inputs[1].dtype == inputs[0].dtype, "a padding value of another type")
    extents = (low + n + high for n, (low, high) in zip(shape, width, strict=True))
    return TensorInfo(tuple(extents), inputs[0].dtype)


def _pad(attributes: Attributes, arrays: list[Array]) -> Array:
    return np.pad(arrays[0], attributes["pad_width"], constant_values=arrays[1])


declare("nn.pad", _padded, _pad)


def _taken(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    axis, shape = attributes["axis"], inputs[0].shape
    require(0 <= axis < len(shape), "an axis that is not there")
    require(inputs[1].dtype in ("int32", "int64"), "indices that are not integers")
    return TensorInfo((*shape[:axis], *inputs[1].shape, *shape[axis + 1 :]), inputs[0].dtype)


def _take(attributes: Attributes, arrays: list[Array]) -> Array:
    """Indices are clipped, as Relay does by default; a negative one is clipped to 0."""
    table, indices = arrays
    axis = attributes["axis"]
    return np.take(table, np.clip(indices, 0, table.shape[axis] - 1), axis)


declare("take", _taken, _take)
