"""TVM's ONNX importer, run one node at a time.

The converters are TVM's own (``tvm/relay/frontend/onnx.py``). Three things around them are ours:

* *Private copy.* The importer's two modules are loaded once more under names of our own, and in that copy
  ``fold_constant`` and ``infer_value`` evaluate shape arithmetic with NumPy and ``GraphProto`` is
  the class below. TVM's own importer stays as it is, in every thread.
* *Node by node.* A converter sees typed variables in place of its computed operands, and its result
  is spliced onto them. TVM infers the types of everything above a node for every question it asks,
  which is quadratic in the size of the network.
* *Constants.* A node whose operands are known is evaluated, not converted (``onnx_constants``).
"""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import tvm
import tvm.relay.frontend.common
import tvm.relay.frontend.onnx
from tvm import nd, relay, tir
from tvm.ir import Op, SourceName, Span, Type
from tvm.relay.expr import Call, CallWithFields, Constant, RelayExpr, Tuple, TupleGetItem, TupleWrapper, Var

from .errors import DNNFusionError, ImportModelError
from .onnx_constants import evaluate
from .onnx_converters import REPLACED, Converter
from .onnx_relay import constant, rewrite_dataflow, simplify, simplify_call, static_shape, type_of

# Float initializers up to this many elements take part in the evaluation of whole nodes: scales of Resize.
_FOLDED_WEIGHT_LIMIT = 16


def private_copy(module: ModuleType) -> ModuleType:
    """A second instance of ``module`` that shares no globals with it."""
    name = f"{module.__name__}_of_tvm_dnnfusion"
    spec = importlib.util.spec_from_file_location(name, module.__file__)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules[name] = copy
    spec.loader.exec_module(copy)
    return copy


def _load() -> ModuleType:
    common = private_copy(tvm.relay.frontend.common)
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
    return importer


@functools.cache
def convert_map(opset: int) -> dict[str, Converter]:
    """TVM's converters for an operator set version, by operator type."""
    converters = importer_convert_map(opset)
    return {**converters, **{name: replace(converters[name]) for name, replace in REPLACED.items()}}


importer: Any = _load()
importer_convert_map = importer._get_convert_map
importer._get_convert_map = convert_map


@dataclass(frozen=True)
class Weight:
    """A network parameter: its data, and the variable that stands for it."""

    array: nd.NDArray
    var: Var


def span_of(name: str) -> Span:
    """A span whose source is the ONNX name."""
    return Span(SourceName(name), 0, 0, 0, 0)


def qualified(node: onnx.NodeProto) -> str:
    """Operator type with its domain, unless that is the default one."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def reason(error: BaseException) -> str:
    """The part of an exception's text that says what is wrong, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Check failed" in line or "Error" in line]
    text = (telling or lines or [type(error).__name__])[-1]
    return text.rstrip(".")


def _address(value: Constant) -> int:
    return value.data.handle.contents.data or id(value)


def is_parameter(array: nd.NDArray) -> bool:
    """Whether an initializer is a weight; integers and single numbers are part of the program."""
    return len(array.shape) > 0 and math.prod(array.shape) > 1 and str(array.dtype).startswith("float")


class NodeByNodeGraph(importer.GraphProto):  # type: ignore[misc]
    """``GraphProto`` that converts each node against placeholders of its operands.

    Attributes
    ----------
    types
        Type of every value converted so far, by expression; shared with subgraphs.
    weights
        Network parameters by the address of their data; shared with subgraphs.
    """

    def __init__(
        self,
        shape: Mapping[str, Sequence[int | tir.Any]],
        dtype: str | Mapping[str, str],
        freeze_params: bool = True,
        op_type_dict: dict[str, int] | None = None,
    ) -> None:
        super().__init__(dict(shape), dtype, freeze_params, {} if op_type_dict is None else op_type_dict)
        outer = importer.GraphProto.current
        self.types: dict[RelayExpr, Type] = outer.types if outer else {}
        self.weights: dict[int, Weight] = outer.weights if outer else {}
        self.is_subgraph = outer is not None
        self._placeholders: dict[RelayExpr, Var] = {}
        self._operands: dict[RelayExpr, RelayExpr] = {}
        self._converters: dict[str, Converter] = {}

    def to_module(self, graph: onnx.GraphProto, opset: int) -> tuple[tvm.IRModule, dict[str, nd.NDArray]]:
        """Convert the main graph; parameters are those that its outputs read."""
        # Converters give names to nodes and take inputs off loop bodies: they get a copy to do it in.
        copy = onnx.GraphProto(node=graph.node, input=graph.input, output=graph.output)
        self._parse_graph_initializers(graph)
        outputs = self.from_onnx(copy, opset, get_output_expr=True)
        read = set(relay.analysis.free_vars(outputs))
        weights = {w.var.name_hint: w for w in self.weights.values() if w.var in read}
        func = relay.Function([*self._inputs.values(), *(w.var for w in weights.values())], outputs)
        return tvm.IRModule.from_expr(func), {name: w.array for name, w in weights.items()}

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            value = constant(onnx.numpy_helper.to_array(tensor), span_of(tensor.name))
            self._nodes[tensor.name] = value
            if is_parameter(value.data) and not self.is_subgraph:
                var = Var(tensor.name, type_of(value), value.span)
                self.weights[_address(value)] = Weight(value.data, var)

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        for value in graph.input:
            name = value.name
            if name in self._nodes:
                continue
            chosen = self._dtype.get(name) if isinstance(self._dtype, Mapping) else None
            _, shape, dtype, _ = importer.get_info(value)
            var = Var(name, relay.TensorType(self._shape.get(name, shape), chosen or dtype), span_of(name))
            self._nodes[name] = self._inputs[name] = var
            self._input_names.append(name)

    def _check_user_inputs_in_outermost_graph_scope(self) -> None:
        """Nothing: the caller checks names, ranks and extents before conversion."""

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        self._converters = convert_map(self.opset)
        for node in graph.node:
            if node.op_type not in self._converters:
                name = importer.get_source_name(node, self._op_type_dict)
                raise ImportModelError(
                    f"ONNX node {name!r} has operator {qualified(node)}, "
                    f"which the importer does not know in operator set {self.opset}."
                )

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            name = importer.get_source_name(node, self._op_type_dict)
            try:
                self._nodes.update(self._evaluate(node) or self._convert(node))
            except DNNFusionError:
                raise
            except Exception as error:
                raise ImportModelError(
                    f"ONNX node {name!r} ({qualified(node)}) could not be converted: {reason(error)}."
                ) from error

    def _operand(self, name: str) -> RelayExpr | None:
        """The value of that name, None for an omitted operand."""
        if name and name not in self._nodes:
            raise ValueError(f"it reads {name!r}, which no input, initializer or earlier node defines")
        return self._nodes[name] if name else None

    def type_of(self, expr: RelayExpr) -> Type:
        """The type of a converted value."""
        known = self.types.get(expr)
        if known is None:
            known = self.types[expr] = type_of(expr)
        return known

    def _evaluate(self, node: onnx.NodeProto) -> dict[str, RelayExpr] | None:
        """The node's outputs as constants, if its operands determine them."""
        arrays: list[np.ndarray | None]
        if node.op_type in ("Shape", "Size"):
            shape = static_shape(self.type_of(self._operand(node.input[0])))
            if shape is None:
                return None
            # Only the extents are read: one repeated zero stands for the tensor.
            arrays = [np.broadcast_to(np.int8(0), shape)]
        else:
            operands = [self._operand(name) for name in node.input]
            if not all(x is None or (isinstance(x, Constant) and self._is_foldable(x)) for x in operands):
                return None
            arrays = [None if x is None else x.data.numpy() for x in operands]
        values = evaluate(node, arrays, self.opset)
        if values is None:
            return None
        return {
            name: constant(v, span_of(node.name)) for name, v in zip(node.output, values, strict=True) if name
        }

    def _is_weight(self, value: Constant) -> bool:
        """Whether ``value`` is a network parameter: its user is folded after binding, not here."""
        return _address(value) in self.weights

    def _is_foldable(self, value: Constant) -> bool:
        return not self._is_weight(value) or math.prod(value.data.shape) <= _FOLDED_WEIGHT_LIMIT

    def _convert(self, node: onnx.NodeProto) -> dict[str, RelayExpr]:
        """The node's outputs by name: TVM's converter on placeholders, spliced onto the operands."""
        attrs = self._parse_attr(node.attribute)
        names = list(self._fix_outputs(node.op_type, node.output))
        attrs["tvm_custom"] = {"name": node.name, "num_outputs": len(names)}
        operands = [self._operand(name) for name in node.input]
        if not any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
            operands = [x if x is None else self._placeholder(x) for x in operands]
        result = self._converters[node.op_type](importer.onnx_input(operands), attrs, self._params)
        if isinstance(result, TupleWrapper):
            return self._fields(result.astuple(), names, node)
        if len(names) != 1:
            raise ValueError(f"it has {len(names)} outputs, of which the importer makes 1")
        return {names[0]: self._finish(result, node)}

    def _fields(self, expr: RelayExpr, names: list[str], node: onnx.NodeProto) -> dict[str, RelayExpr]:
        whole = self._finish(expr, node)
        types = self.types[whole].fields
        if len(names) > len(types):
            raise ValueError(f"it has {len(names)} outputs, of which the importer makes {len(types)}")
        outputs = {}
        for index, (name, ty) in enumerate(zip(names, types, strict=False)):
            field = (
                whole.fields[index] if isinstance(whole, Tuple) else TupleGetItem(whole, index, whole.span)
            )
            self.types[field] = ty
            outputs[name] = field
        outputs.pop("", None)
        return outputs

    def _placeholder(self, operand: RelayExpr) -> RelayExpr:
        """A variable of the operand's type; constants and sequences are shown as they are."""
        ty = self.type_of(operand)
        if isinstance(operand, Constant) or not isinstance(ty, relay.TensorType):
            return operand
        if operand not in self._placeholders:
            var = Var(f"operand{len(self._placeholders)}", ty, span_of("operand"))
            self._placeholders[operand] = var
            self._operands[var] = operand
        return self._placeholders[operand]

    def _finish(self, expr: RelayExpr, node: onnx.NodeProto) -> RelayExpr:
        """Fold constants, set the span, read parameters, and put operands for placeholders."""
        ty = type_of(expr)
        if relay.ty.is_dynamic(ty):
            expr = simplify(expr, self._is_weight, self.types)
            ty = type_of(expr)
        span = span_of(node.name)

        def visit(old: RelayExpr, new: RelayExpr) -> RelayExpr:
            if isinstance(new, Call):
                folded = simplify_call(old, new, self._is_weight)
                return self._finish_call(folded, span) if isinstance(folded, Call) else folded
            if isinstance(new, Tuple):
                return Tuple(self._read_weights(new.fields, False), new.span or span)
            if isinstance(new, TupleGetItem):
                return TupleGetItem(new.tuple_value, new.index, new.span or span)
            if isinstance(new, (Var, Constant)):
                return self._operands.get(new, new)
            return self._close(new, span)

        finished = rewrite_dataflow(expr, visit, self.types)
        self.types.setdefault(finished, ty)
        return finished

    def _finish_call(self, call: Call, span: Span) -> Call:
        op = call.op if isinstance(call.op, Op) else self._close(call.op, span)
        is_quantized = isinstance(op, Op) and op.name.startswith("qnn.")
        args = self._read_weights(call.args, is_quantized)
        return CallWithFields(call, op, args, call.attrs, call.type_args, None, call.span or span)

    def _close(self, expr: RelayExpr, span: Span) -> RelayExpr:
        """A function or control flow: its span, and operands for placeholders inside it."""
        return relay.bind(importer.set_span(expr, span), dict(self._operands))

    def _read_weights(self, args: Sequence[RelayExpr], is_quantized: bool) -> list[RelayExpr]:
        """``args`` with variables for network parameters.

        Scales and zero points stay constants: quantised operators are lowered by their values.
        """
        if self.is_subgraph:
            return list(args)
        read = []
        for arg in args:
            weight = self.weights.get(_address(arg)) if isinstance(arg, Constant) else None
            kept = weight is None or (is_quantized and len(weight.array.shape) <= 1)
            read.append(arg if kept else weight.var)
        return read


importer.GraphProto = NodeByNodeGraph
