"""TVM's ONNX importer, in a copy of our own.

``tvm/relay/frontend/onnx.py`` and ``common.py`` are loaded once more under other names, so that their
converters can be given other helpers while TVM's own importer stays as it is, in every thread:

* ``fold_constant`` and ``infer_value`` evaluate shape arithmetic with NumPy (``onnx_fold``);
* ``shape_of`` makes the constant of a static shape without a detour through TVM integers;
* ``normalize_gather_indices`` is ``onnx_converters.non_negative_indices``;
* ``GraphProto``, of which loops and branches make instances, is ``onnx_graph.NodeByNodeGraph``.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np
import tvm.relay.frontend.common
import tvm.relay.frontend.onnx
from tvm import nd, relay
from tvm.relay.expr import Constant, RelayExpr

from .onnx_converters import REPLACED, Converter, non_negative_indices
from .onnx_fold import simplify
from .onnx_relay import constant, static_shape, type_of


def private_copy(module: ModuleType) -> ModuleType:
    """A second instance of ``module`` that shares no globals with it."""
    name = f"{module.__name__}_of_tvm_dnnfusion"
    spec = importlib.util.spec_from_file_location(name, module.__file__)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules[name] = copy
    spec.loader.exec_module(copy)
    return copy


def _load_importer() -> ModuleType:
    common: Any = private_copy(tvm.relay.frontend.common)
    importer = private_copy(tvm.relay.frontend.onnx)
    infer_value = common.infer_value

    def fold_constant(node: RelayExpr, mod: object = None) -> RelayExpr:
        return simplify(node)

    def value_of(input_val: RelayExpr, params: dict[str, nd.NDArray], mod: object = None) -> nd.NDArray:
        folded = simplify(input_val)
        if isinstance(folded, Constant):
            return folded.data
        return infer_value(input_val, params, mod)

    def shape_of(
        x: RelayExpr, dtype: str = "int64", start: int | None = None, end: int | None = None
    ) -> RelayExpr:
        shape = static_shape(type_of(x))
        if shape is None:
            return relay.shape_of(x, dtype)
        # As TVM has it, 0 means the whole shape.
        return constant(np.array(shape[start or 0 : end or len(shape)], dtype))

    common.fold_constant, common.infer_value, common.shape_of = fold_constant, value_of, shape_of
    for name in set(vars(importer)) & set(vars(common)):
        if getattr(vars(importer)[name], "__module__", "") == tvm.relay.frontend.common.__name__:
            setattr(importer, name, vars(common)[name])
    vars(importer)["normalize_gather_indices"] = non_negative_indices
    return importer


@functools.cache
def convert_map(opset: int) -> dict[str, Converter]:
    """TVM's converters for an operator set version, by operator type."""
    converters = importer_convert_map(opset)
    return {**converters, **{name: replace(converters[name]) for name, replace in REPLACED.items()}}


importer: Any = _load_importer()
importer_convert_map = importer._get_convert_map
importer._get_convert_map = convert_map
