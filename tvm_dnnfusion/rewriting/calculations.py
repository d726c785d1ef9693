"""Attributes of an equation's right side, computed from those of the left; they refuse what is wrong."""

from __future__ import annotations

import math
from typing import Any

from .matching import Match
from .operators import broadcast_shape
from .pattern import Inapplicable, calculation

Ints = tuple[int, ...]


def _need(holds: bool, reason: str) -> None:
    if not holds:
        raise Inapplicable(reason)


@calculation
def shape(m: Match, tensor: int) -> Ints:
    """The shape of a tensor."""
    return m.graph.info(tensor).shape


@calculation
def output_shape(m: Match) -> Ints:
    """The shape of both sides."""
    return m.output.shape


@calculation
def composed(m: Match, inner: Ints, outer: Ints) -> Ints:
    """The permutation that is ``inner`` and then ``outer``."""
    return tuple(inner[axis] for axis in outer)


@calculation
def inverse(m: Match, axes: Ints) -> Ints:
    """The inverse permutation."""
    return inverted(axes)


def inverted(axes: Ints) -> Ints:
    """The inverse of a permutation."""
    found = [0] * len(axes)
    for position, axis in enumerate(axes):
        found[axis] = position
    return tuple(found)


@calculation
def picked(m: Match, axes: Ints, position: int) -> int:
    """The axis that a transposition puts at ``position``."""
    return axes[position]


@calculation
def permuted(m: Match, values: Any, axes: Ints) -> Any:
    """Per-axis values of a transposed tensor as those of the tensor before."""
    return tuple(values[position] for position in inverted(axes))


@calculation
def reordered(m: Match, values: Any, axes: Ints) -> Any:
    """Per-axis values of a tensor as those of the transposed one."""
    return tuple(values[axis] for axis in axes)


@calculation
def aligned(m: Match, tensor: int, axes: Ints) -> Ints:
    """The shape of a broadcast operand, with as many axes as ``axes`` permutes."""
    extents = m.graph.info(tensor).shape
    _need(len(extents) <= len(axes), "an operand of higher rank than what is transposed")
    return (1,) * (len(axes) - len(extents)) + extents


@calculation
def merged_axes(m: Match, inner: Ints, keeps: bool, outer: Ints, tensor: int) -> Ints:
    """The axes of a reduction over ``inner`` and then over ``outer``."""
    rank = len(m.graph.info(tensor).shape)
    remaining = list(range(rank)) if keeps else [a for a in range(rank) if a not in inner]
    return tuple(sorted({*inner, *(remaining[axis] for axis in outer)}))


@calculation
def same_keepdims(m: Match, first: bool, second: bool) -> bool:
    """Whether reduced axes are kept, if two reductions agree on it."""
    _need(first == second, "one reduction keeps its axes and the other does not")
    return first


@calculation
def mapped_axes(m: Match, axes: Ints, permutation: Ints) -> Ints:
    """Axes of a transposed tensor as axes of the tensor before."""
    return tuple(sorted(permutation[axis] for axis in axes))


@calculation
def remaining_order(m: Match, permutation: Ints, axes: Ints, keeps: bool) -> Ints:
    """The transposition that is left behind a reduction over ``axes`` of the transposed tensor."""
    if keeps:
        return permutation
    gone = {permutation[axis] for axis in axes}
    kept = [axis for axis in permutation if axis not in gone]
    order = sorted(kept)
    return tuple(order.index(axis) for axis in kept)


@calculation
def without_reduced(m: Match, tensor: int, axes: Ints, keeps: bool) -> Ints:
    """The shape, reduced, of an operand that is one element along ``axes`` of what it is combined with."""
    extents = aligned_shape(m.graph.info(tensor).shape, axes, len(m.output.shape), keeps)
    _need(all(extents[axis] == 1 for axis in axes), "the operand varies along a reduced axis")
    return extents if keeps else tuple(n for axis, n in enumerate(extents) if axis not in axes)


def aligned_shape(extents: Ints, axes: Ints, output_rank: int, keeps: bool) -> Ints:
    """``extents`` with the rank of what was reduced over ``axes``."""
    rank = output_rank if keeps else output_rank + len(axes)
    _need(len(extents) <= rank, "an operand of higher rank")
    return (1,) * (rank - len(extents)) + extents


@calculation
def not_wider(m: Match, axes: Ints, tensor: int, other: int) -> Ints:
    """``axes``, if an element-wise operator of both tensors has the shape of the first."""
    wide = m.graph.info(tensor).shape
    _need(broadcast_shape([wide, m.graph.info(other).shape]) == wide, "broadcast: the operand is larger")
    return axes


@calculation
def slice_of(m: Match, values: Ints, tensor: int, result: int, what: str) -> Ints:
    """A slice of a broadcast result as one of an operand: all of what is repeated."""
    extents, wide = m.graph.info(tensor).shape, m.graph.info(result).shape
    offset = len(wide) - len(extents)
    whole = {"begin": 0, "end": 1, "strides": 1}[what]
    return tuple(
        whole if n == 1 and wide[a + offset] != 1 else values[a + offset] for a, n in enumerate(extents)
    )


@calculation
def broadcast_slice(m: Match, values: Ints, tensor: int, what: str) -> Ints:
    """A slice of what an operand is broadcast to, as one of the operand."""
    extents = m.graph.info(tensor).shape
    offset = len(values) - len(extents)
    _need(offset >= 0, "a slice of lower rank")
    whole = {"begin": 0, "end": 1, "strides": 1}[what]
    return tuple(whole if n == 1 else values[a + offset] for a, n in enumerate(extents))


@calculation
def unreduced(m: Match, values: Ints, tensor: int, axes: Ints, keeps: bool, what: str) -> Ints:
    """A slice of a reduction's result as one of what is reduced: all of the reduced axes."""
    extents = m.graph.info(tensor).shape
    rest = iter(values)
    found = []
    for axis, extent in enumerate(extents):
        whole = {"begin": 0, "end": extent, "strides": 1}[what]
        if axis in axes:
            found.append(whole)
            if keeps:
                next(rest)
        else:
            found.append(next(rest))
    return tuple(found)


@calculation
def composed_begin(m: Match, begin: Ints, strides: Ints, begin2: Ints) -> Ints:
    """Begin of a slice of a slice."""
    return tuple(b + s * b2 for b, s, b2 in zip(begin, strides, begin2, strict=True))


@calculation
def composed_end(m: Match, begin: Ints, strides: Ints, end2: Ints) -> Ints:
    """End of a slice of a slice, one past its last element."""
    return tuple(b + s * (e - 1) + 1 for b, s, e in zip(begin, strides, end2, strict=True))


@calculation
def multiplied(m: Match, first: Ints, second: Ints) -> Ints:
    """Per axis, the product."""
    return tuple(a * b for a, b in zip(first, second, strict=True))


@calculation
def size_of(m: Match, tensor: int) -> int:
    """The number of elements."""
    return math.prod(m.graph.info(tensor).shape)


@calculation
def flipped(m: Match, value: bool) -> bool:
    """The other of yes and no."""
    return not value


@calculation
def clip_low(m: Match, low: float, low2: float, high2: float) -> float:
    """The lower bound of one clip for two."""
    _need(low2 <= high2, "bounds in the wrong order")
    return max(low2, min(low, high2))


@calculation
def clip_high(m: Match, low: float, high: float, low2: float, high2: float) -> float:
    """The upper bound of one clip for two."""
    _need(low <= high, "bounds in the wrong order")
    return max(low2, min(high, high2))


@calculation
def vector_along(
    m: Match, tensor: int, operand: int, axis: int, target: int, other: int = 0, swap: bool = False
) -> Ints:
    """The shape of a factor that varies along ``axis`` alone, to scale ``operand`` along ``target``.

    Axes are counted in an operand's rank; ``other`` takes the place of ``target`` if ``swap``.
    """
    extents, rank = m.graph.info(tensor).shape, len(m.graph.info(operand).shape)
    behind = axis if axis < 0 else axis - rank
    length = extents[behind] if len(extents) >= -behind else 1
    _need(math.prod(extents) == length, f"the operand does not vary along axis {axis} alone")
    found = [1] * rank
    found[other if swap else target] = length
    return tuple(found)


@calculation
def ungrouped(m: Match, attributes: Any) -> Any:
    """Attributes of a convolution in one group."""
    _need(dict(attributes)["groups"] == 1, "a grouped convolution")
    return attributes
