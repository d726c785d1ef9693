"""Reading TVM layout strings such as ``NCHW8c``: upper case is an axis, ``8c`` its inner part of 8."""

from __future__ import annotations

import re

_AXIS = re.compile(r"(\d*)([A-Za-z])")


def axis_letters(layout: str) -> tuple[str, ...]:
    """The axes of a layout in order, e.g. ``("N", "C", "H", "W", "c")``; factors are left out."""
    return tuple(letter for _, letter in _AXIS.findall(layout))


def axis_extent(layout: str, shape: tuple[int, ...], letter: str) -> int:
    """Extent of an axis over all its parts; 1 when the layout has no such axis.

    ``axis_extent("NCHW8c", (1, 4, 7, 7, 8), "C")`` is 32.
    """
    extent = 1
    for name, size in zip(axis_letters(layout), shape, strict=False):
        if name.upper() == letter:
            extent *= size
    return extent


def spatial_extent(layout: str, shape: tuple[int, ...]) -> int:
    """Product of the extents of the axes D, H and W."""
    return axis_extent(layout, shape, "D") * axis_extent(layout, shape, "H") * axis_extent(layout, shape, "W")


def _parts(layout: str, shape: tuple[int, ...]) -> list[tuple[str, int, int]]:
    """(axis, stride within the axis, extent) in order; inner parts have the small strides."""
    axes = list(zip(axis_letters(layout), shape, strict=False))
    inner: dict[str, int] = {}
    strides = [0] * len(axes)
    lower_case_first = sorted(range(len(axes)), key=lambda i: (axes[i][0].isupper(), -i))
    for i in lower_case_first:
        name, extent = axes[i]
        strides[i] = inner.get(name.upper(), 1)
        inner[name.upper()] = strides[i] * extent
    return [(name.upper(), stride, extent) for (name, extent), stride in zip(axes, strides, strict=True)]


def keeps_order(
    source: str, source_shape: tuple[int, ...], target: str, target_shape: tuple[int, ...]
) -> bool:
    """Whether converting between two layouts leaves the elements in the same order in memory.

    Axes are cut at every stride that either layout cuts them at; the order is kept when both
    layouts list the pieces of more than one element in the same order.
    """
    if 0 in source_shape or 0 in target_shape:
        return True
    before, after = _parts(source, source_shape), _parts(target, target_shape)
    cuts: dict[str, set[int]] = {}
    for axis, stride, extent in before + after:
        if extent > 1:
            cuts.setdefault(axis, set()).add(stride)

    def pieces(parts: list[tuple[str, int, int]]) -> list[tuple[str, int]]:
        return [
            (axis, cut)
            for axis, stride, extent in parts
            for cut in sorted(cuts.get(axis, ()), reverse=True)
            if stride <= cut < stride * extent
        ]

    return pieces(before) == pieces(after)
