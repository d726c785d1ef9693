"""Relay function -> extended computational graph: the edge at which TVM's objects end.

Only the data flow of the function's own scope becomes operators. Whatever else occurs in it
(branches, loops, closures, calls of other functions, values of unknown shape) becomes an opaque
node that depends on all the operators it mentions.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relay

from .algebraic_properties import properties
from .block_attributes import encode_attributes, plain_attributes
from .ecg import ECG, Node, TensorInfo, Value
from .ecg_body import operator_attributes
from .mapping import Classification, classify, why_opaque
from .mapping_type import MappingType
from .node_fields import field_of, items, static_shape
from .operator_cost import flops
from .relay_graph import CHILDREN, Visit, key_of, visit_order
from .relay_span import span_text
from .structural_memo import StructuralMemo

_NO_TYPES = Classification((), MappingType.OPAQUE, MappingType.OPAQUE)
_FLOW = (relay.Call, relay.Tuple, relay.TupleGetItem)


@dataclass(frozen=True)
class RelayECG:
    """An ECG and where its nodes stand in Relay.

    Attributes
    ----------
    ecg
        The graph.
    exprs
        Relay expression per node.
    why_opaque
        Per opaque node, why it is never grouped.
    order
        The function's expressions, children first: keeps the keys below alive.
    values
        Per expression (by :func:`~tvm_dnnfusion.passes.graph_rewriter.key_of`) of the function's own
        data flow, the values it stands for; tuples flattened.
    fields
        Per such expression, how many fields its tuple has; 0 for a tensor.
    """

    ecg: ECG
    exprs: tuple[relay.Expr, ...]
    why_opaque: dict[int, str]
    order: tuple[Visit, ...]
    values: dict[int, tuple[Value, ...]]
    fields: dict[int, int]


def tensor_infos(type_: relay.Type) -> tuple[TensorInfo, ...] | None:
    """Static tensors of a tensor type or a flat tuple of them; None for anything else."""
    fields = items(field_of(type_, "fields")) if isinstance(type_, relay.TupleType) else [type_]
    found = []
    for tensor in fields:
        if not isinstance(tensor, relay.TensorType):
            return None
        shape = static_shape(tensor)
        if shape is None:
            return None
        found.append(TensorInfo(shape, field_of(tensor, "dtype")))
    return tuple(found)


def build_ecg(function: relay.Function) -> RelayECG:
    """The ECG of a typed function.

    Parameters
    ----------
    function
        Types inferred. Linear in its size; nothing recurses.
    """
    return _Builder(function).run()


class _Types:
    """What a type says, read from TVM once: every read of a field costs microseconds."""

    def __init__(self, type_: relay.Type) -> None:
        self.infos = tensor_infos(type_)
        self.fields = len(type_.fields) if isinstance(type_, relay.TupleType) else 0

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Static tensors, or nothing."""
        return self.infos or ()


class _Builder:
    def __init__(self, function: relay.Function) -> None:
        self.root = function.body
        self.order = visit_order(self.root)
        self.children = {key_of(v.expr): v.children for v in self.order}
        self.own = self._own_flow()
        self.nodes: list[Node] = []
        self.exprs: list[relay.Expr] = []
        self.reasons: dict[int, str] = {}
        self.types: dict[int, _Types] = {}
        self.known_types: StructuralMemo[_Types] = StructuralMemo(_Types)
        self.values: dict[int, tuple[Value, ...]] = {}
        self.names: dict[int, str] = {}

    def run(self) -> RelayECG:
        for visit in self.order:
            key = key_of(visit.expr)
            if key in self.own:
                self.types[key] = self.known_types.of(field_of(visit.expr, "_checked_type_"))
                self._visit(visit, key)
        ecg = ECG(tuple(self.nodes), self.values[key_of(self.root)])
        fields = {key: types.fields for key, types in self.types.items()}
        return RelayECG(ecg, tuple(self.exprs), self.reasons, tuple(self.order), self.values, fields)

    def _own_flow(self) -> set[int]:
        """Keys of the expressions in the function's own data flow."""
        found: set[int] = set()
        stack = [self.root]
        while stack:
            expr = stack.pop()
            if isinstance(expr, tvm.ir.Op) or key_of(expr) in found:
                continue
            found.add(key_of(expr))
            if isinstance(expr, _FLOW):
                stack.extend(self.children[key_of(expr)])
        return found

    def _visit(self, visit: Visit, key: int) -> None:
        expr, children = visit.expr, visit.children
        if isinstance(expr, relay.Tuple):
            self.values[key] = tuple(v for f in children for v in self.values[key_of(f)])
        elif isinstance(expr, relay.TupleGetItem) and self._is_flat(key_of(children[0])):
            self.values[key] = (self.values[key_of(children[0])][field_of(expr, "index")],)
        elif isinstance(expr, relay.Constant):
            self._add(expr, "constant", "constant", ())
        elif isinstance(expr, relay.Call) and isinstance(children[0], tvm.ir.Op):
            self._operator(expr, self._name(children[0]), children[1:])
        elif children:
            self._opaque(expr, type(expr).__name__.lower(), "control flow or a call of another function")
        else:
            name = expr.name_hint if isinstance(expr, (relay.Var, relay.GlobalVar)) else type(expr).__name__
            self._add(expr, "source", name, ())

    def _is_flat(self, key: int) -> bool:
        """True when each field of a tuple is one value."""
        return len(self.values[key]) == self.types[key].fields

    def _name(self, op: tvm.ir.Op) -> str:
        key = key_of(op)
        if key not in self.names:
            self.names[key] = field_of(op, "name")
        return self.names[key]

    def _operator(self, call: relay.Call, name: str, args: list[relay.Expr]) -> None:
        operands = [self.types[key_of(a)] for a in args]
        outs = self.types[key_of(call)].infos
        inputs = tuple(v for a in args for v in self.values[key_of(a)])
        reason = "a fused block already" if name.startswith("dnnfusion.block") else why_opaque(name)
        if reason is None and (outs is None or any(o.infos is None for o in operands)):
            reason = "a shape is not static"
        if reason is None and not args:
            reason = "no operand: nothing to fuse"
        if reason is not None:
            self._opaque(call, name, reason, inputs)
            return
        encoded, ins = encode_attributes(field_of(call, "attrs")), [t for o in operands for t in o.outputs]
        attrs = plain_attributes(encoded)
        types = classify(name, attrs, ins, outs or ())
        attributes = operator_attributes(encoded, [o.fields for o in operands])
        work = flops(name, attrs, ins, outs or ())
        self._add(call, "op", name, inputs, types, work, properties(name), attributes)

    def _opaque(
        self, expr: relay.Expr, name: str, reason: str, inputs: tuple[Value, ...] | None = None
    ) -> None:
        self.reasons[len(self.nodes)] = reason
        self._add(expr, "opaque", name, self._mentioned(expr) if inputs is None else inputs)

    def _add(
        self,
        expr: relay.Expr,
        kind: str,
        op: str,
        inputs: tuple[Value, ...],
        types: Classification = _NO_TYPES,
        work: int = 0,
        properties: frozenset[str] = frozenset(),
        attributes: str = "",
    ) -> None:
        number, known = len(self.nodes), self.types[key_of(expr)]
        span = span_text(field_of(expr, "span")) if kind in ("op", "opaque") else ""
        self.nodes.append(
            Node(
                number, kind, op, inputs, known.outputs, types.operands, types.operator, types.entry, work,
                properties, span, attributes,
            )
        )  # fmt: skip
        self.exprs.append(expr)
        count = max(1, len(known.outputs)) if known.fields else 1
        self.values[key_of(expr)] = tuple(Value(number, i) for i in range(count))

    def _mentioned(self, expr: relay.Expr) -> tuple[Value, ...]:
        """Everything of this scope that an opaque expression mentions, at any depth inside it."""
        found: dict[Value, None] = {}
        stack = list(self.children[key_of(expr)])
        seen: set[int] = set()
        while stack:
            inner = stack.pop()
            key = key_of(inner)
            if key in seen or isinstance(inner, tvm.ir.Op):
                continue
            seen.add(key)
            if key in self.values:
                found.update(dict.fromkeys(self.values[key]))
            elif CHILDREN.get(type(inner)):
                stack.extend(self.children[key])
        return tuple(found)
