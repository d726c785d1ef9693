"""Names, shapes and element types of a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relay, tir

from tvm_dnnfusion.errors import ImportModelError, ShapeError

# Random values of wide integers stay below this: they are mostly indices (token ids) or masks, and an index
# out of range is undefined behaviour.
INDEX_LIMIT = 2


@dataclass(frozen=True)
class TensorSpec:
    """One input or output; an extent of ``None`` is open until run time."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{format_shape(self.shape)}"

    def to_json(self) -> dict[str, Any]:
        """Give the fields as JSON values."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> TensorSpec:
        """Read what :py:meth:`to_json` gave."""
        return TensorSpec(fields["name"], tuple(fields["shape"]), fields["dtype"])


def format_shape(shape: Sequence[int | None]) -> str:
    """Write a shape as on the command line, ``[1x3x?x?]``."""
    return "[" + "x".join("?" if extent is None else str(extent) for extent in shape) + "]"


def input_specs(mod: tvm.IRModule, params: Collection[str] = ()) -> list[TensorSpec]:
    """List the inputs of ``main`` in its order, parameters left out.

    Raises
    ------
    ImportModelError
        An input is not a tensor.
    """
    return [
        _spec(var.name_hint, var.checked_type) for var in mod["main"].params if var.name_hint not in params
    ]


def output_specs(mod: tvm.IRModule, names: Sequence[str] = ()) -> list[TensorSpec]:
    """List the outputs of ``main``, nested tuples flattened as the executors do.

    Parameters
    ----------
    mod : tvm.IRModule
        A module with inferred types.
    names : sequence of str
        The outputs' names; ``output0``, ``output1``, ... if their number does not fit.
    """
    types: list[tvm.ir.Type] = []
    pending = [mod["main"].ret_type]
    while pending:
        current = pending.pop()
        if isinstance(current, relay.TupleType):
            pending.extend(reversed(list(current.fields)))
        else:
            types.append(current)
    if len(names) != len(types):
        names = [f"output{i}" for i in range(len(types))]
    return [_spec(name, tensor_type) for name, tensor_type in zip(names, types, strict=True)]


def _spec(name: str, tensor_type: tvm.ir.Type) -> TensorSpec:
    if not isinstance(tensor_type, relay.TensorType):
        raise ImportModelError(f"'{name}' is no tensor but {tensor_type}; only tensors are accepted")
    shape = tuple(None if isinstance(d, tir.Any | tir.Var) else int(d) for d in tensor_type.shape)
    return TensorSpec(name, shape, tensor_type.dtype)


def check_arrays(specs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray]) -> None:
    """Compare the given arrays with what the model takes.

    Raises
    ------
    ShapeError
        A name is missing or unknown, or an array has another shape or element type.
    """
    names = [spec.name for spec in specs]
    unknown = [name for name in arrays if name not in names]
    missing = [name for name in names if name not in arrays]
    if unknown or missing:
        what = f"no input named '{unknown[0]}'" if unknown else f"an input '{missing[0]}' that is not given"
        raise ShapeError(f"the model has {what}; its inputs are {', '.join(map(str, specs)) or 'none'}")
    for spec in specs:
        array = arrays[spec.name]
        if str(array.dtype) != spec.dtype:
            raise ShapeError(f"input '{spec.name}' is of type {array.dtype}; the model takes {spec.dtype}")
        fits = len(array.shape) == len(spec.shape) and all(
            wanted in (None, extent) for wanted, extent in zip(spec.shape, array.shape, strict=True)
        )
        if not fits:
            raise ShapeError(
                f"input '{spec.name}' has shape {format_shape(array.shape)}; "
                f"the model takes {format_shape(spec.shape)}"
            )


def random_arrays(
    specs: Sequence[TensorSpec], seed: int, shapes: Mapping[str, Sequence[int]] | None = None
) -> dict[str, np.ndarray]:
    """Draw an array per input: floats from N(0, 1), booleans and integers uniformly.

    Integers of 32 and 64 bits are 0 or 1, narrower ones cover their whole range.

    Parameters
    ----------
    specs : sequence of TensorSpec
        The inputs.
    seed : int
        Seed of NumPy's default generator; the same seed gives the same arrays.
    shapes : mapping of str to sequence of int, optional
        Shapes of inputs with open extents.

    Raises
    ------
    ShapeError
        An input has open extents and no shape is given for it.
    """
    rng = np.random.default_rng(seed)
    arrays = {}
    for spec in specs:
        shape = tuple((shapes or {}).get(spec.name, spec.shape))
        if None in shape:
            raise ShapeError(
                f"input '{spec.name}' has open extents, {format_shape(shape)}; give its shape, "
                f"as in --shape {spec.name}={'x'.join(str(extent or 1) for extent in shape)}"
            )
        arrays[spec.name] = _draw(rng, shape, spec.dtype)
    return arrays


def _draw(rng: np.random.Generator, shape: tuple[Any, ...], dtype: str) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        low, high = (0, INDEX_LIMIT) if info.bits > 16 else (int(info.min), int(info.max) + 1)
        return rng.integers(low, high, shape).astype(dtype)
    if dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    raise ShapeError(f"inputs of type {dtype} cannot be drawn at random; give them as arrays")
