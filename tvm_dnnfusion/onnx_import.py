"""ONNX models to Relay."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence

import onnx
import tvm
from tvm import relay

from .errors import ImportModelError
from .onnx_graph import NodeByNodeGraph, reason
from .onnx_inputs import input_types
from .onnx_read import opset_of, read_model

# TVM's converters find the graph they belong to in a class attribute.
_IMPORTING = threading.Lock()


def from_onnx(
    model: str | os.PathLike[str] | onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """Import an ONNX model into Relay.

    The operators are those that ``tvm.relay.frontend.from_onnx`` makes: its converters do the work.
    Arithmetic on known values (shapes, indices, masks) is carried out here, so static networks
    come out with static shapes.

    Parameters
    ----------
    model
        A file (external data beside it is read too) or a model in memory, which is not changed.
    shapes
        Extents of graph inputs by name, where the model leaves them open: a named dimension
        (``dim_param``), a missing one, or 0. Extents the model fixes may be repeated, not changed.
        Dimensions that stay open become ``relay.Any``, and the module needs the VM executor.
    dtype
        Element types of graph inputs by name that replace the declared ones; a string changes
        nothing (TVM's signature).

    Returns
    -------
    mod : tvm.IRModule
        ``main`` takes the graph inputs in their order, then the parameters; types are inferred.
        Calls carry the ONNX node's name as span, variables and constants the tensor's.
    params : dict of str to tvm.nd.NDArray
        Floating point initializers of rank 1 and more that ``main`` reads, by their ONNX names.
        All else the model stores is constant in ``main``: integers (shapes, axes, indices) and
        scalars, scales of quantised operators, and what loops and branches read.

    Raises
    ------
    ImportModelError
        The file is missing or not ONNX, or a node cannot be converted; the message names the node.
    ShapeError
        ``shapes`` names no input, or contradicts the model's rank or extents.
    """
    proto = read_model(model)
    given = input_types(proto.graph, shapes or {})
    with _IMPORTING, NodeByNodeGraph(given, dtype if isinstance(dtype, str) else dict(dtype)) as graph:
        mod, params = graph.to_module(proto.graph, opset_of(proto))
    return _typed(mod), params


def _typed(mod: tvm.IRModule) -> tvm.IRModule:
    try:
        return relay.transform.InferType()(mod)
    except Exception as error:
        raise ImportModelError(f"The imported model has no consistent types: {reason(error)}.") from error
