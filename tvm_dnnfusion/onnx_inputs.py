"""Shapes of graph inputs: what the model declares and what the caller adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from tvm import relay, tir

from .errors import ImportModelError, ShapeError


def input_types(
    graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]
) -> dict[str, list[int | tir.Any]]:
    """Extents of every graph input that is not an initializer.

    Parameters
    ----------
    graph
        The main graph.
    shapes
        The caller's extents by input name.

    Raises
    ------
    ImportModelError
        An input that is no tensor, or without a rank where ``shapes`` gives none.
    ShapeError
        An unknown name, another rank, a negative extent or one that contradicts a fixed one.
    """
    stored = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in stored}
    for name in shapes:
        if name not in inputs:
            valid = ", ".join(map(repr, inputs)) or "none"
            raise ShapeError(f"The model has no input {name!r}; its inputs are: {valid}.")
    return {name: _extents(value, shapes.get(name)) for name, value in inputs.items()}


def _extents(value: onnx.ValueInfoProto, given: Sequence[int] | None) -> list[int | tir.Any]:
    if value.type.WhichOneof("value") != "tensor_type":
        raise ImportModelError(f"Input {value.name!r} is not a tensor; only tensor inputs can be imported.")
    if not value.type.tensor_type.HasField("shape"):
        if given is None:
            raise ImportModelError(f"Input {value.name!r} has no rank in the model; give its shape.")
        return [_extent(value.name, given, axis) for axis in range(len(given))]
    dims = value.type.tensor_type.shape.dim
    if given is None:
        return [dim.dim_value if dim.dim_value > 0 else relay.Any() for dim in dims]
    declared = (
        "(" + ", ".join(str(d.dim_value) if d.dim_value > 0 else d.dim_param or "?" for d in dims) + ")"
    )
    if len(given) != len(dims):
        raise ShapeError(
            f"Input {value.name!r} has rank {len(dims)}, shape {declared}; the given shape "
            f"{tuple(given)} has rank {len(given)}."
        )
    extents = [_extent(value.name, given, axis) for axis in range(len(given))]
    for axis, (dim, extent) in enumerate(zip(dims, extents, strict=True)):
        if 0 < dim.dim_value != extent:
            raise ShapeError(
                f"Input {value.name!r} has shape {declared}; the given {tuple(given)} "
                f"contradicts extent {dim.dim_value} of axis {axis}."
            )
    return list(extents)


def _extent(name: str, given: Sequence[int], axis: int) -> int:
    extent = given[axis]
    if isinstance(extent, bool) or not hasattr(extent, "__index__") or extent < 0:
        raise ShapeError(f"Axis {axis} of the shape given for input {name!r} is {extent!r}, not an extent.")
    return int(extent)
