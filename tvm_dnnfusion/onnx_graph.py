"""Converting an ONNX graph one node at a time.

The converters are TVM's own (``onnx_private``). What is ours is how they are driven:

* *Placeholders.* A converter sees typed variables in place of its computed operands, and its result is
  spliced onto them. TVM infers the types of everything above a node for every question it asks,
  which is quadratic in the size of the network.
* *Constants.* A node whose operands are known is evaluated, not converted (``onnx_constants``).
* *Errors* name the node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import tvm
from tvm import nd, relay, tir
from tvm.ir import Span, Type
from tvm.relay.expr import Call, Constant, RelayExpr, Tuple, TupleGetItem, TupleWrapper, Var

from .errors import DNNFusionError, ImportModelError
from .onnx_constants import evaluate
from .onnx_converters import Converter
from .onnx_extents import PartialValues
from .onnx_fold import simplify, simplify_call
from .onnx_private import convert_map, importer
from .onnx_relay import (
    address,
    constant,
    data_address,
    is_parameter,
    operator_name,
    rebuild,
    rewrite_dataflow,
    static_shape,
    type_of,
)
from .relay_span import span_of

# Float initializers up to this many elements take part in the evaluation of whole nodes: scales of Resize.
_FOLDED_WEIGHT_LIMIT = 16


@dataclass(frozen=True)
class Weight:
    """A network parameter: its data, and the variable that stands for it."""

    array: nd.NDArray
    var: Var


_PLACEHOLDER = span_of("operand")


def qualified(node: onnx.NodeProto) -> str:
    """Operator type with its domain, unless that is the default one."""
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def reason(error: BaseException) -> str:
    """The part of an exception's text that says what is wrong, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Check failed" in line or "Error" in line]
    text = (telling or lines or [type(error).__name__])[-1]
    return text.rstrip(".")


class NodeByNodeGraph(importer.GraphProto):
    """``GraphProto`` that converts each node against placeholders of its operands.

    Attributes
    ----------
    types
        Every value converted so far and its type, by address; shared with subgraphs.
    weights
        Network parameters by the address of their data; shared with subgraphs.
    partial
        What is known of computed shapes; shared with subgraphs.
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
        self.types: dict[int, tuple[RelayExpr, Type]] = outer.types if outer else {}
        self.weights: dict[int, Weight] = outer.weights if outer else {}
        self.partial: PartialValues = outer.partial if outer else PartialValues(self.type_of)
        self.is_subgraph = outer is not None
        self._placeholders: dict[int, Var] = {}
        self._operands: dict[int, RelayExpr] = {}
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
                self.weights[data_address(value)] = Weight(value.data, var)

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
        known = self.types.get(address(expr))
        return self._remember(expr, type_of(expr)) if known is None else known[1]

    def _remember(self, expr: RelayExpr, ty: Type) -> Type:
        return self.types.setdefault(address(expr), (expr, ty))[1]

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
        return data_address(value) in self.weights

    def _is_foldable(self, value: Constant) -> bool:
        return not self._is_weight(value) or math.prod(value.data.shape) <= _FOLDED_WEIGHT_LIMIT

    def _convert(self, node: onnx.NodeProto) -> dict[str, RelayExpr]:
        """The node's outputs by name: TVM's converter on placeholders, spliced onto the operands."""
        attrs = self._parse_attr(node.attribute)
        names = list(self._fix_outputs(node.op_type, node.output))
        attrs["tvm_custom"] = {"name": node.name, "num_outputs": len(names)}
        operands = given = [self._operand(name) for name in node.input]
        if not any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute):
            operands = [x if x is None else self._placeholder(x) for x in operands]
        known = self.partial.evaluate(node, given, self.opset)
        if known is not None and known.known.all():
            return {names[0]: constant(known.values, span_of(node.name))}
        result = self._converters[node.op_type](importer.onnx_input(operands), attrs, self._params)
        if isinstance(result, TupleWrapper):
            return self._fields(result.astuple(), names, node)
        if len(names) != 1:
            raise ValueError(f"it has {len(names)} outputs, of which the importer makes 1")
        finished = self._finish(self.partial.refine(node, given, result), node)
        self.partial.remember(finished, known)
        return {names[0]: finished}

    def _fields(self, expr: RelayExpr, names: list[str], node: onnx.NodeProto) -> dict[str, RelayExpr]:
        whole = self._finish(expr, node)
        types = self.type_of(whole).fields
        if len(names) > len(types):
            raise ValueError(f"it has {len(names)} outputs, of which the importer makes {len(types)}")
        outputs = {}
        for index, (name, ty) in enumerate(zip(names, types, strict=False)):
            field = (
                whole.fields[index] if isinstance(whole, Tuple) else TupleGetItem(whole, index, whole.span)
            )
            self._remember(field, ty)
            outputs[name] = field
        outputs.pop("", None)
        return outputs

    def _placeholder(self, operand: RelayExpr) -> RelayExpr:
        """A variable of the operand's type; constants and sequences are shown as they are."""
        ty = self.type_of(operand)
        if isinstance(operand, Constant) or not isinstance(ty, relay.TensorType):
            return operand
        key = address(operand)
        if key not in self._placeholders:
            var = self._placeholders[key] = Var(f"operand{len(self._placeholders)}", ty, _PLACEHOLDER)
            self._operands[address(var)] = operand
        return self._placeholders[key]

    def _finish(self, expr: RelayExpr, node: onnx.NodeProto) -> RelayExpr:
        """Fold constants, set the span, read parameters, and put operands for placeholders."""
        ty = type_of(expr)
        if relay.ty.is_dynamic(ty):
            expr = simplify(expr, self._is_weight, self.types)
            ty = type_of(expr)
        span = span_of(node.name)

        def visit(old: RelayExpr, operands: list[RelayExpr]) -> RelayExpr:
            if isinstance(old, (Var, Constant)):
                return self._operands.get(address(old), old)
            if isinstance(old, (Tuple, TupleGetItem)):
                return rebuild(old, self._read_weights(operands), span)
            if not isinstance(old, Call):
                return self._close(old, span)
            simpler = simplify_call(old, operands, self._is_weight)
            if simpler is None:
                return self._finish_call(old, operands, span)
            return (
                self._finish_call(simpler, list(simpler.args), span) if isinstance(simpler, Call) else simpler
            )

        finished = rewrite_dataflow(expr, visit, self.types)
        self._remember(finished, ty)
        return finished

    def _finish_call(self, call: Call, args: list[RelayExpr], span: Span) -> Call:
        name = operator_name(call)
        if name is None:
            op = self._close(call.op, span)
            return Call(op, self._read_weights(args), call.attrs, call.type_args, call.span or span)
        return rebuild(call, self._read_weights(args, name.startswith("qnn.")), span)

    def _close(self, expr: RelayExpr, span: Span) -> RelayExpr:
        """A function or control flow: its span, and operands for placeholders inside it."""
        placeholders = {var: self._operands[address(var)] for var in self._placeholders.values()}
        return relay.bind(importer.set_span(expr, span), placeholders)

    def _read_weights(self, args: Sequence[RelayExpr], is_quantized: bool = False) -> list[RelayExpr]:
        """``args`` with variables for network parameters.

        Scales and zero points stay constants: quantised operators are lowered by their values.
        """
        if self.is_subgraph:
            return list(args)
        read = []
        for arg in args:
            weight = self.weights.get(data_address(arg)) if isinstance(arg, Constant) else None
            if weight is not None and not (is_quantized and len(weight.array.shape) <= 1):
                arg = weight.var
            read.append(arg)
        return read


importer.GraphProto = NodeByNodeGraph
