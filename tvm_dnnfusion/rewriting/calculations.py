"""Attributes of an equation's right side, computed from those of the left; they refuse what is wrong."""

from __future__ import annotations

import math
from typing import Any

from .matching import Match
from .operators import broadcast_shape, require
from .pattern import calculation

Ints = tuple[int, ...]


def _whole_axis(extent: int, what: str) -> int:
    """Begin, end or strides of a slice of a whole axis."""
    return {"begin": 0, "end": extent, "strides": 1}[what]


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
    require(len(extents) <= len(axes), "an operand of higher rank than what is transposed")
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
    require(first == second, "one reduction keeps its axes and the other does not")
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
    require(all(extents[axis] == 1 for axis in axes), "the operand varies along a reduced axis")
    return extents if keeps else tuple(n for axis, n in enumerate(extents) if axis not in axes)


def aligned_shape(extents: Ints, axes: Ints, output_rank: int, keeps: bool) -> Ints:
    """``extents`` with the rank of what was reduced over ``axes``."""
    rank = output_rank if keeps else output_rank + len(axes)
    require(len(extents) <= rank, "an operand of higher rank")
    return (1,) * (rank - len(extents)) + extents


@calculation
def not_wider(m: Match, axes: Ints, tensor: int, other: int) -> Ints:
    """``axes``, if an element-wise operator of both tensors has the shape of the first."""
    wide = m.graph.info(tensor).shape
    require(broadcast_shape([wide, m.graph.info(other).shape]) == wide, "broadcast: the operand is larger")
    return axes


@calculation
def broadcast_slice(m: Match, values: Ints, tensor: int, what: str) -> Ints:
    """A slice of what an operand is broadcast to, as one of the operand."""
    extents = m.graph.info(tensor).shape
    offset = len(values) - len(extents)
    require(offset >= 0, "a slice of lower rank")
    whole = _whole_axis(1, what)
    return tuple(whole if n == 1 else values[a + offset] for a, n in enumerate(extents))


@calculation
def unreduced(m: Match, values: Ints, tensor: int, axes: Ints, keeps: bool, what: str) -> Ints:
    """A slice of a reduction's result as one of what is reduced: all of the reduced axes."""
    extents = m.graph.info(tensor).shape
    rest = iter(values)
    found = []
    for axis, extent in enumerate(extents):
        whole = _whole_axis(extent, what)
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
    require(low2 <= high2, "bounds in the wrong order")
    return max(low2, min(low, high2))


@calculation
def clip_high(m: Match, low: float, high: float, low2: float, high2: float) -> float:
    """The upper bound of one clip for two."""
    require(low <= high, "bounds in the wrong order")
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
    require(math.prod(extents) == length, f"the operand does not vary along axis {axis} alone")
    found = [1] * rank
    found[other if swap else target] = length
    return tuple(found)


@calculation
def ungrouped(m: Match, attributes: Any) -> Any:
    """Attributes of a convolution in one group."""
    require(dict(attributes)["groups"] == 1, "a grouped convolution")
    return attributes


@calculation
def transposed_reshape(m: Match, tensor: int, new: Ints, axes: Ints) -> Ints:
    """The transposition before a reshape that is one behind it: of groups of axes that the reshape merges."""
    groups = merged_groups(m.graph.info(tensor).shape, new)
    return tuple(axis for position in axes for axis in groups[position])


def merged_groups(old: Ints, new: Ints) -> list[Ints]:
    """Per axis of ``new``, the neighbouring axes of ``old`` that a reshape merges into it."""
    groups: list[Ints] = []
    axis = 0
    for extent in new:
        start, size = axis, 1
        while axis < len(old) and (size < extent or (old[axis] == 1 and axis == start and extent == 1)):
            size *= old[axis]
            axis += 1
        require(size == extent, "the reshape splits an axis")
        groups.append(tuple(range(start, axis)))
    rest = range(axis, len(old))
    require(all(old[a] == 1 for a in rest), "the reshape splits an axis")
    if rest:
        require(bool(groups), "a reshape to a scalar")
        groups[-1] = (*groups[-1], *rest)
    return groups


@calculation
def common_tail(m: Match, tensor: int, new: Ints, axes: Any) -> Any:
    """Axes of a reshaped tensor, in the tail that the reshape leaves alone, as axes of the tensor before."""
    old = m.graph.info(tensor).shape
    tail = tail_length(old, new)
    given = (axes,) if isinstance(axes, int) else axes
    require(all(axis >= len(new) - tail for axis in given), "the reshape changes one of the axes")
    found = tuple(axis + len(old) - len(new) for axis in given)
    return found[0] if isinstance(axes, int) else found


def tail_length(old: Ints, new: Ints) -> int:
    """How many last axes have the same extents."""
    count = 0
    for a, b in zip(old[::-1], new[::-1], strict=False):
        if a != b:
            break
        count += 1
    return count


@calculation
def reduced_shape(m: Match, new: Ints, axes: Ints, keeps: bool) -> Ints:
    """A shape after a reduction."""
    if keeps:
        return tuple(1 if a in axes else n for a, n in enumerate(new))
    return tuple(n for a, n in enumerate(new) if a not in axes)


@calculation
def tail_operand(m: Match, operand: int, tensor: int, new: Ints) -> Ints:
    """The shape of an operand that is broadcast along everything but the tail that a reshape leaves alone.

    The operand varies along the last axes of ``new`` only; they are the last axes of ``tensor``, too.
    """
    extents, old = m.graph.info(operand).shape, m.graph.info(tensor).shape
    varies = [len(extents) - axis for axis, n in enumerate(extents) if n != 1]
    needed = max(varies, default=0)
    require(needed <= tail_length(old, new), "the operand varies along an axis that the reshape changes")
    return extents[len(extents) - needed :] if needed else ()


@calculation
def slice_before_reshape(m: Match, values: Ints, tensor: int, new: Ints, what: str) -> Ints:
    """A slice of the unchanged tail of a reshaped tensor as one of the tensor before."""
    old = m.graph.info(tensor).shape
    tail = tail_length(old, new)
    for axis in range(len(new) - tail):
        whole = _whole_axis(new[axis], what)
        require(values[axis] == whole, "the slice cuts an axis that the reshape changes")
    head = (_whole_axis(n, what) for n in old[: len(old) - tail])
    return (*head, *values[len(new) - tail :])


@calculation
def other_axis(m: Match, axis: int, reserved: int) -> int:
    """``axis``, unless it is the reserved one."""
    require(axis != reserved, "along the same axis")
    return axis


@calculation
def axis_not_reduced(m: Match, axis: int, axes: Ints, keeps: bool) -> int:
    """An axis of what is reduced as one of the result."""
    require(axis not in axes, "along a reduced axis")
    return axis if keeps else axis - sum(a < axis for a in axes)


@calculation
def whole_along(m: Match, values: Ints, tensor: int, axis: int, what: str) -> Ints:
    """A slice that keeps all of ``axis``."""
    whole = _whole_axis(m.graph.info(tensor).shape[axis], what)
    require(values[axis] == whole, f"the slice cuts axis {axis}")
    return values


@calculation
def rows_slice(m: Match, values: Ints, tensor: int, what: str, last: int = -1) -> Ints:
    """A slice of a product as one of its left operand: all of the inner axis, ``last``."""
    extents = m.graph.info(tensor).shape
    whole = _whole_axis(extents[last], what)
    found = list(values)
    found[last] = whole
    return tuple(found)


@calculation
def units_slice(m: Match, values: Ints, weights: int, what: str) -> Ints:
    """A slice of a dense layer's result as one of the rows of its weights."""
    whole = _whole_axis(m.graph.info(weights).shape[1], what)
    return (values[-1], whole)


def _whole(extents: Ints, what: str) -> Ints:
    """Begin, end or strides of a slice of everything."""
    return tuple(_whole_axis(extent, what) for extent in extents)


def _only(m: Match, values: Ints, axes: Ints, what: str) -> None:
    """Refuse a slice of the result's source that cuts other axes than ``axes``."""
    source = m.graph.info(m.form.operands[0]).shape
    for axis, whole in enumerate(_whole(source, what)):
        require(axis in axes or values[axis] == whole, f"the slice cuts axis {axis}")


@calculation
def channels_slice(m: Match, values: Ints, weights: int, what: str) -> Ints:
    """A slice of a convolution's channels, and of nothing else, as one of its kernels."""
    _only(m, values, (1,), what)
    return (values[1], *_whole(m.graph.info(weights).shape, what)[1:])


@calculation
def samples_slice(m: Match, values: Ints, data: int, what: str) -> Ints:
    """A slice of a convolution's samples, and of nothing else, as one of its data."""
    _only(m, values, (0,), what)
    return (values[0], *_whole(m.graph.info(data).shape, what)[1:])


@calculation
def first(m: Match, values: Ints, indices: int, what: str) -> Ints:
    """A slice of taken rows, and of nothing else, as one of the indices."""
    rank = len(m.graph.info(indices).shape)
    _only(m, values, tuple(range(rank)), what)
    return values[:rank]


@calculation
def all_rows(m: Match, values: Ints, table: int, indices: int, what: str) -> Ints:
    """A slice within taken rows as one of the rows of the table."""
    rank, extents = len(m.graph.info(indices).shape), m.graph.info(table).shape
    _only(m, values, tuple(range(rank, len(values))), what)
    return (_whole(extents, what)[0], *values[rank:])


@calculation
def operand_slice(m: Match, values: Ints, operand: int, transposed: bool, position: int, what: str) -> Ints:
    """A slice of a product of matrices as one of an operand: its rows or columns, the whole inner axis."""
    extents = m.graph.info(operand).shape
    whole = _whole(extents, what)
    matrix = [values[-2], whole[-2 if transposed else -1]]
    if position == 1:
        matrix = [whole[-1 if transposed else -2], values[-1]]
    batch = whole[:-2] if extents[0] == 1 and len(extents) == 3 else values[:-2]
    return (*batch, *(matrix[::-1] if transposed else matrix))


@calculation
def vector_indices(m: Match, axes: Ints, indices: int) -> Ints:
    """The transposition behind a take, which keeps the rank if the indices are a vector."""
    require(len(m.graph.info(indices).shape) == 1, "indices that are not a vector")
    return axes


@calculation
def without_axes(m: Match, widths: Any, axes: Ints, keeps: bool) -> Any:
    """Padding of a reduction's operand as padding of the result; reduced axes must not be padded."""
    require(all(widths[axis] == (0, 0) for axis in axes), "a reduced axis is padded")
    return tuple((0, 0) if a in axes else w for a, w in enumerate(widths) if keeps or a not in axes)


@calculation
def only_padded(m: Match, axes: Ints, widths: Any) -> Ints:
    """``axes``, if no other axis is padded."""
    require(all(w == (0, 0) for a, w in enumerate(widths) if a not in axes), "an axis that is kept is padded")
    return axes


@calculation
def added_widths(m: Match, first_widths: Any, second_widths: Any) -> Any:
    """Padding of two paddings."""
    pairs = zip(first_widths, second_widths, strict=True)
    return tuple((a + c, b + d) for (a, b), (c, d) in pairs)


@calculation
def padded_convolution(m: Match, attributes: Any, widths: Any) -> Any:
    """Attributes of a convolution that pads by itself; samples and channels must not be padded."""
    require(widths[0] == widths[1] == (0, 0), "samples or channels are padded")
    own, rank = dict(attributes)["padding"], len(widths) - 2
    low = tuple(own[a] + widths[2 + a][0] for a in range(rank))
    high = tuple(own[rank + a] + widths[2 + a][1] for a in range(rank))
    return tuple(sorted({**dict(attributes), "padding": low + high}.items()))


@calculation
def inside(m: Match, values: Ints, tensor: int, widths: Any) -> Ints:
    """Begin or end of a slice that cuts only what was there before padding."""
    extents = m.graph.info(tensor).shape
    found = tuple(v - low for v, (low, _) in zip(values, widths, strict=True))
    require(all(0 <= v <= n for v, n in zip(found, extents, strict=True)), "the slice keeps padding")
    return found


@calculation
def axis_before_take(m: Match, axes: Ints, taken: int, indices: int) -> Ints:
    """Axes of a result of take as axes of the table; axes of the indices refuse."""
    rank = len(m.graph.info(indices).shape)
    require(not any(taken <= axis < taken + rank for axis in axes), "along the axis of the indices")
    return tuple(axis if axis < taken else axis - rank + 1 for axis in axes)


@calculation
def axis_after_reduction(m: Match, taken: int, axes: Ints, keeps: bool, table: int, indices: int) -> int:
    """The axis from which a reduced table is taken, for a reduction over ``axes`` of what is taken."""
    rank = len(m.graph.info(indices).shape)
    before = sum(axis < taken for axis in axes)
    require(not any(taken <= axis < taken + rank for axis in axes), "along the axis of the indices")
    return taken if keeps else taken - before


@calculation
def softmax_axis(m: Match, axis: int, taken: int, indices: int) -> int:
    """The axis of a softmax of what is taken as one of the table."""
    rank = len(m.graph.info(indices).shape)
    require(not taken <= axis < taken + rank, "along the axis of the indices")
    return axis if axis < taken else axis - rank + 1


@calculation
def repeats(m: Match, tensor: int, wide: Ints, axes: Ints) -> Ints:
    """``axes``, if a broadcast repeats along all of them and has no axes in front."""
    extents = m.graph.info(tensor).shape
    require(len(extents) == len(wide), "the broadcast adds axes")
    require(all(extents[a] == 1 for a in axes), "a reduced axis is not only repeated")
    return axes


@calculation
def same_concatenation(m: Match, axis: int, tensors: Any, shared: int) -> int:
    """``axis``, if the shared operand is the same for all parts: one number, or constant along the axis."""
    extents = m.graph.info(shared).shape
    part = m.graph.info(tensors[0]).shape
    offset = len(part) - len(extents)
    require(offset >= 0, "an operand of higher rank")
    require(axis < offset or extents[axis - offset] == 1, "the operand varies along the axis")
    return axis


@calculation
def last_axis(m: Match, axis: int, rank: int) -> int:
    """The axis of weights for a concatenation of results along their last axis."""
    require(axis == len(m.output.shape) - 1, "not along the last axis")
    return rank


@calculation
def first_axis(m: Match, axis: int) -> int:
    """``axis``, which must not be the last one."""
    require(axis < len(m.output.shape) - 1, "along the last axis")
    return axis


@calculation
def channel_axis(m: Match, axis: int, target: int) -> int:
    """``target``, for a concatenation along the channels."""
    require(axis == 1, "not along the channels")
    return target


@calculation
def sample_axis(m: Match, axis: int) -> int:
    """``axis``, for a concatenation along the samples."""
    require(axis == 0, "not along the samples")
    return axis
