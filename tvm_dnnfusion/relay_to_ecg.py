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
from .block_attributes import encode_attributes
from .ecg import ECG, Node, TensorInfo, Value
from .ecg_body import operator_attributes
from .mapping import entry_type, operand_types, operator_type, why_opaque
from .mapping_type import MappingType
from .operator_cost import flops
from .passes.graph_rewriter import CHILDREN, Visit, key_of, visit_order
from .relay_span import span_text

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
    """

    ecg: ECG
    exprs: tuple[relay.Expr, ...]
    why_opaque: dict[int, str]
    order: tuple[Visit, ...]
    values: dict[int, tuple[Value, ...]]


def tensor_infos(type_: relay.Type) -> tuple[TensorInfo, ...] | None:
    """Static tensors of a tensor type or a flat tuple of them; None for anything else."""
    fields = type_.fields if isinstance(type_, relay.TupleType) else [type_]
    found = []
    for field in fields:
        if not isinstance(field, relay.TensorType):
            return None
        shape = [int(d) if isinstance(d, tvm.tir.IntImm) else None for d in field.shape]
        if None in shape:
            return None
        found.append(TensorInfo(tuple(d for d in shape if d is not None), field.dtype))
    return tuple(found)


def _tuple_length(argument: relay.Expr) -> int:
    """Fields of a tuple argument, 0 for a tensor."""
    type_ = argument.checked_type
    return len(type_.fields) if isinstance(type_, relay.TupleType) else 0


def build_ecg(function: relay.Function) -> RelayECG:
    """The ECG of a typed function.

    Parameters
    ----------
    function
        Types inferred. Linear in its size; nothing recurses.
    """
    return _Builder(function).run()


class _Builder:
    def __init__(self, function: relay.Function) -> None:
        self.root = function.body
        self.order = visit_order(self.root)
        self.children = {key_of(v.expr): v.children for v in self.order}
        self.own = self._own_flow()
        self.nodes: list[Node] = []
        self.exprs: list[relay.Expr] = []
        self.reasons: dict[int, str] = {}
        self.values: dict[int, tuple[Value, ...]] = {}

    def run(self) -> RelayECG:
        for visit in self.order:
            if key_of(visit.expr) in self.own:
                self._visit(visit)
        ecg = ECG(tuple(self.nodes), self.values[key_of(self.root)])
        return RelayECG(ecg, tuple(self.exprs), self.reasons, tuple(self.order), self.values)

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

    def _visit(self, visit: Visit) -> None:
        expr = visit.expr
        if isinstance(expr, relay.Tuple):
            self.values[key_of(expr)] = tuple(v for f in expr.fields for v in self.values[key_of(f)])
        elif isinstance(expr, relay.TupleGetItem) and self._is_flat(expr.tuple_value):
            self.values[key_of(expr)] = (self.values[key_of(expr.tuple_value)][expr.index],)
        elif isinstance(expr, relay.Constant):
            self._add(expr, "constant", "constant", tensor_infos(expr.checked_type) or ())
        elif isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            self._operator(expr)
        elif visit.children:
            self._opaque(expr, type(expr).__name__.lower(), "control flow or a call of another function")
        else:
            name = expr.name_hint if isinstance(expr, (relay.Var, relay.GlobalVar)) else type(expr).__name__
            self._add(expr, "source", name, tensor_infos(expr.checked_type) or ())

    def _is_flat(self, tuple_value: relay.Expr) -> bool:
        """True when each field of a tuple is one value."""
        fields = getattr(tuple_value.checked_type, "fields", ())
        return len(self.values[key_of(tuple_value)]) == len(fields)

    def _operator(self, call: relay.Call) -> None:
        name = call.op.name
        reason = "a fused block already" if name.startswith("dnnfusion.block") else why_opaque(name)
        outs = tensor_infos(call.checked_type)
        operands = [tensor_infos(a.checked_type) for a in call.args]
        if reason is None and (outs is None or None in operands):
            reason = "a shape is not static"
        if reason is None and not call.args:
            reason = "no operand: nothing to fuse"
        if reason is not None:
            self._opaque(call, name, reason)
            return
        ins = [t for o in operands if o is not None for t in o]
        types = operand_types(name, call.attrs, ins, outs or ())
        self._add(
            call,
            "op",
            name,
            outs or (),
            operand_types=types,
            mapping_type=operator_type(name, call.attrs, ins, outs or ()),
            entry_type=entry_type(name, call.attrs, ins, outs or ()),
            flops=flops(name, call.attrs, ins, outs or ()),
            properties=properties(name),
            attributes=operator_attributes(
                encode_attributes(call.attrs), [_tuple_length(a) for a in call.args]
            ),
        )

    def _opaque(self, expr: relay.Expr, name: str, reason: str) -> None:
        outs = tensor_infos(expr.checked_type) or ()
        self.reasons[len(self.nodes)] = reason
        self._add(expr, "opaque", name, outs)

    def _add(
        self,
        expr: relay.Expr,
        kind: str,
        op: str,
        outputs: tuple[TensorInfo, ...],
        operand_types: tuple[MappingType, ...] = (),
        mapping_type: MappingType = MappingType.OPAQUE,
        entry_type: MappingType = MappingType.OPAQUE,
        flops: int = 0,
        properties: frozenset[str] = frozenset(),
        attributes: str = "",
    ) -> None:
        number = len(self.nodes)
        inputs = self._inputs(expr) if kind in ("op", "opaque") else ()
        self.nodes.append(
            Node(
                number, kind, op, inputs, outputs, operand_types, mapping_type, entry_type, flops, properties,
                span_text(expr.span), attributes,
            )
        )  # fmt: skip
        self.exprs.append(expr)
        count = max(1, len(outputs)) if isinstance(expr.checked_type, relay.TupleType) else 1
        self.values[key_of(expr)] = tuple(Value(number, i) for i in range(count))

    def _inputs(self, expr: relay.Expr) -> tuple[Value, ...]:
        """Values read: a call's operands, or everything of this scope that an opaque expression mentions."""
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            return tuple(v for a in expr.args for v in self.values[key_of(a)])
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
