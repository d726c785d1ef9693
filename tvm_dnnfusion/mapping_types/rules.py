"""Rules for mapping types that depend on attributes or shapes.

Each takes ``(attrs, operand, output)`` and tells how the operand's elements map to the output's.
None of them divides by an extent: zero-size tensors are legal.
"""

from __future__ import annotations

from typing import Any

from ..ecg import TensorInfo
from ..layout_axes import keeps_order
from ..mapping_type import MappingType

ONE_TO_ONE = MappingType.ONE_TO_ONE
REORGANIZE = MappingType.REORGANIZE
SHUFFLE = MappingType.SHUFFLE
ONE_TO_MANY = MappingType.ONE_TO_MANY
MANY_TO_MANY = MappingType.MANY_TO_MANY


def by_placement(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """Each element goes to one place at most, and their order is kept.

    Reorganize when that is a bijection into a new shape (reshape), else One-to-One (slice, concat, pad).
    """
    if operand.size == output.size and operand.shape != output.shape:
        return REORGANIZE
    return ONE_TO_ONE


def by_broadcast(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """One-to-Many where an axis is widened or repeated, else as :func:`by_placement`.

    The axis itself does not matter, so the rule also serves ``bias_add``, ``tile`` and ``repeat``.
    """
    if [d for d in operand.shape if d != 1] != [d for d in output.shape if d != 1]:
        return ONE_TO_MANY
    return by_placement(attrs, operand, output)


def by_permutation(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """``transpose``: Shuffle unless only axes of extent 1 move."""
    rank = len(operand.shape)
    axes = attrs.axes if attrs is not None and attrs.axes is not None else range(rank - 1, -1, -1)
    wide = [int(axis) % rank for axis in axes if operand.shape[int(axis) % rank] != 1]
    return by_placement(attrs, operand, output) if wide == sorted(wide) else SHUFFLE


def by_layout(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """``layout_transform``: a blocked permutation, Shuffle unless the order in memory stays."""
    if operand.size != output.size:
        return SHUFFLE
    kept = keeps_order(attrs.src_layout, operand.shape, attrs.dst_layout, output.shape)
    return by_placement(attrs, operand, output) if kept else SHUFFLE


def by_reversal(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """``reverse``: Shuffle unless the axis has at most one element."""
    return SHUFFLE if operand.shape[int(attrs.axis)] > 1 else ONE_TO_ONE


def by_stride(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """``strided_slice``: One-to-One; Shuffle when a negative stride reverses an axis."""
    if attrs.slice_mode == "size" or attrs.strides is None:
        return ONE_TO_ONE
    strides = [int(stride) for stride in attrs.strides]
    axes = range(len(output.shape)) if attrs.axes is None else [int(axis) for axis in attrs.axes]
    # A single stride holds for every axis.
    strides = strides * len(axes) if len(strides) == 1 else strides
    reverses = any(stride < 0 and output.shape[axis] > 1 for axis, stride in zip(axes, strides, strict=False))
    return SHUFFLE if reverses else ONE_TO_ONE


def by_interpolation(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """Resizing: nearest neighbour copies elements or drops some, the other methods mix several.

    Table 2 has Resize as One-to-Many whatever the method; more than one element per output is Many-to-Many.
    """
    if attrs.method != "nearest_neighbor":
        return MANY_TO_MANY
    widened = any(after > before for before, after in zip(operand.shape, output.shape, strict=True))
    return ONE_TO_MANY if widened else ONE_TO_ONE


def by_index_tuple(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """Indices of ``gather_nd``: the first axis holds the coordinates of one read."""
    if operand.shape[0] > 1:
        return MANY_TO_MANY
    return by_broadcast(attrs, operand, output)


def by_diagonal(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """Diagonals of ``matrix_set_diag``: several of them come from the top down, out of row order."""
    return by_placement(attrs, operand, output) if int(attrs.k1) == int(attrs.k2) else SHUFFLE


def unread(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """An operand of which only the shape or dtype is read: no element maps to more than none."""
    return ONE_TO_ONE
