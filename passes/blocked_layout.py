"""Blocked tensor layouts such as ``NCHW16c``, as TVM's ``layout_transform`` understands them, in NumPy.

An upper-case letter is a primal axis; a number and a lower-case letter are a block of that axis. The primal
axis of ``NCHW16c`` counts blocks of 16 channels. Several blocks of one axis nest in the order in which they
appear, outermost first (``src/tir/ir/data_layout.cc``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

_AXIS = re.compile(r"(\d*)([A-Za-z])")


@dataclass(frozen=True)
class Axis:
    """One axis of a layout: the tensor's axis it belongs to, upper-case, and its block, 0 if primal."""

    name: str
    block: int


def parse_layout(layout: str) -> tuple[Axis, ...]:
    """The axes of ``layout``, in order.

    Raises
    ------
    ValueError
        The text is not a layout: a block without a size, a primal axis with one, or other characters.
    """
    axes: list[Axis] = []
    position = 0
    for match in _AXIS.finditer(layout):
        size, letter = match.groups()
        if match.start() != position or letter.islower() != bool(size):
            break
        axes.append(Axis(letter.upper(), int(size or 0)))
        position = match.end()
    if position != len(layout):
        raise ValueError(f"'{layout}' is no tensor layout: letters, and blocks as in 'NCHW16c', are accepted")
    return tuple(axes)


def _blocks(axes: tuple[Axis, ...], name: str) -> list[int]:
    return [axis.block for axis in axes if axis.name == name and axis.block]


def _logical(data: np.ndarray, axes: tuple[Axis, ...]) -> tuple[np.ndarray, list[str]]:
    """``data`` with each axis' blocks merged into it, and the names of its axes in order of appearance."""
    names = list(dict.fromkeys(axis.name for axis in axes))
    order: list[int] = []
    extents: list[int] = []
    for name in names:
        primal = [i for i, axis in enumerate(axes) if axis.name == name and not axis.block]
        parts = primal + [i for i, axis in enumerate(axes) if axis.name == name and axis.block]
        order += parts
        extents.append(int(np.prod([data.shape[i] for i in parts])))
    return data.transpose(order).reshape(extents), names


def transform_layout(data: np.ndarray, source: str, target: str) -> np.ndarray:
    """``data`` moved from layout ``source`` to layout ``target``.

    An extent that the target's blocks do not divide is padded with zeros.

    Raises
    ------
    ValueError
        A layout cannot be parsed, or the two have different axes.
    """
    source_axes, target_axes = parse_layout(source), parse_layout(target)
    logical, names = _logical(data, source_axes)
    if {axis.name for axis in target_axes} != set(names):
        raise ValueError(f"'{source}' and '{target}' do not have the same axes")
    padding: list[tuple[int, int]] = []
    split: list[int] = []
    index: dict[tuple[str, int], int] = {}
    for name, extent in zip(names, logical.shape, strict=True):
        blocks = _blocks(target_axes, name)
        padding.append((0, -extent % int(np.prod(blocks, dtype=np.int64))))
        outer = (extent + padding[-1][1]) // int(np.prod(blocks, dtype=np.int64))
        for rank, size in enumerate([outer, *blocks]):
            index[name, rank] = len(split)
            split.append(size)
    if any(after for _, after in padding):
        logical = np.pad(logical, padding)
    seen: dict[str, int] = {}
    order: list[int] = []
    for axis in target_axes:
        rank = 0
        if axis.block:
            rank = seen[axis.name] = seen.get(axis.name, 0) + 1
        order.append(index[axis.name, rank])
    return logical.reshape(split).transpose(order)
