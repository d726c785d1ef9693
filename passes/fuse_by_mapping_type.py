"""Group operators by mapping type: ECG, plan, and the plan as nested primitive functions.

The functions are the readable form of the plan; :mod:`tvm_dnnfusion.passes.seal_blocks` turns them
into block operators, the form that every stock flow leaves alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import tvm
from tvm import relay
from tvm_dnnfusion.passes.graph_rebuilder import GraphRebuilder

from tvm_dnnfusion.ecg import ECG, Node, Value
from tvm_dnnfusion.fusion_join import join_small
from tvm_dnnfusion.fusion_legality import Limits
from tvm_dnnfusion.fusion_plan import plan_fusion
from tvm_dnnfusion.fusion_verify import verify_plan
from tvm_dnnfusion.node_fields import field_of, make_call
from tvm_dnnfusion.plan import Group, Plan
from tvm_dnnfusion.profitability import Profitability, StaticProfitability
from tvm_dnnfusion.relay_graph import CHILDREN, is_sealed, key_of
from tvm_dnnfusion.relay_to_ecg import RelayECG, build_ecg

logger = logging.getLogger(__name__)

MAPPING_TYPE = "MappingType"


@dataclass(frozen=True)
class PlannedFunction:
    """A function's graph and the plan made for it."""

    name: str
    graph: RelayECG
    plan: Plan


class _Realiser(GraphRebuilder):
    """Rebuilds a function with each of ``groups`` as one call of a primitive function."""

    def __init__(self, graph: RelayECG, groups: list[Group]) -> None:
        super().__init__()
        self.graph, self.ecg = graph, graph.ecg
        self.group_of = {key_of(graph.exprs[n]): group for group in groups for n in group.nodes}
        self.escaping = _escaping_values(self.ecg, groups)
        self.results: dict[Group, list[relay.Expr]] = {}

    def dependencies(self, expr: relay.Expr, children: list[relay.Expr]) -> list[relay.Expr]:
        group = self.group_of.get(key_of(expr))
        if group is None:
            return children
        members = set(group.nodes)
        external = _external_values(self.ecg, group, members)
        return [self.graph.exprs[v.node] for v in external]

    def replace(self, expr: relay.Expr) -> relay.Expr | None:
        key = key_of(expr)
        if isinstance(expr, relay.TupleGetItem):
            values = self.graph.values.get(key)
            if values and len(values) == 1 and key_of(self.graph.exprs[values[0].node]) in self.group_of:
                return self._value(values[0])
            return None
        group = self.group_of.get(key)
        if group is None:
            return None
        values = self.graph.values[key]
        if not _is_tuple(expr):
            return self._value(values[0])
        return relay.Tuple([self._value(v) for v in values])

    def _value(self, value: Value) -> relay.Expr:
        """The rebuilt form of one value of a group; a placeholder that nobody reads if it stays inside."""
        group = self.group_of[key_of(self.graph.exprs[value.node])]
        if group not in self.results:
            self.results[group] = self._call(group)
        outputs = self.escaping[group]
        return self.results[group][outputs.index(value)] if value in outputs else relay.Tuple([])

    def _call(self, group: Group) -> list[relay.Expr]:
        members = set(group.nodes)
        external = _external_values(self.ecg, group, members)
        inner: dict[Value, relay.Expr] = {}
        params: list[relay.Var] = []
        args: list[relay.Expr] = []
        for value in external:
            expr = self.graph.exprs[value.node]
            if isinstance(expr, relay.Constant) and not expr.data.shape:
                inner[value] = expr
                continue
            params.append(relay.Var(f"p{len(params)}", _type_of(expr, value)))
            args.append(self._argument(value))
            inner[value] = params[-1]
        for number in group.nodes:
            self._inner_call(number, inner)
        outputs = [inner[v] for v in self.escaping[group]]
        body = outputs[0] if len(outputs) == 1 else relay.Tuple(outputs)
        function = relay.Function(params, body).with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        function = function.with_attr(MAPPING_TYPE, group.mapping_type.value)
        call = make_call(function, args, None, field_of(self.graph.exprs[group.seed], "span"))
        return [call] if len(outputs) == 1 else [relay.TupleGetItem(call, i) for i in range(len(outputs))]

    def _argument(self, value: Value) -> relay.Expr:
        owner = self.graph.exprs[value.node]
        if key_of(owner) in self.group_of:
            return self._value(value)
        rebuilt = self.rebuilt(owner)
        return relay.TupleGetItem(rebuilt, value.index) if _is_tuple(owner) else rebuilt

    def _inner_call(self, number: int, inner: dict[Value, relay.Expr]) -> None:
        """Copy one operator call into its group's function."""
        node, call = self.ecg.nodes[number], self.graph.exprs[number]
        operands = iter(node.inputs)
        op, *sources = CHILDREN[relay.Call](call)
        args = []
        for source in sources:
            fields = self.graph.fields[key_of(source)]
            found = [inner[next(operands)] for _ in range(fields or 1)]
            args.append(relay.Tuple(found) if fields else found[0])
        copy = make_call(op, args, field_of(call, "attrs"), field_of(call, "span"))
        for value in self.graph.values[key_of(call)]:
            inner[value] = relay.TupleGetItem(copy, value.index) if _is_tuple(call) else copy


def _is_tuple(expr: relay.Expr) -> bool:
    return isinstance(field_of(expr, "_checked_type_"), relay.TupleType)


def _type_of(expr: relay.Expr, value: Value) -> relay.Type:
    """Type of one value, extents in the integer type that they have: int64 ones do not unify with int32."""
    type_ = field_of(expr, "_checked_type_")
    return type_.fields[value.index] if isinstance(type_, relay.TupleType) else type_


def _external_values(ecg: ECG, group: Group, members: set[int]) -> list[Value]:
    """Values that a group reads from outside, each once, in order of first use."""
    found = (v for n in group.nodes for v in ecg.nodes[n].inputs if v.node not in members)
    return list(dict.fromkeys(found))


def _escaping_values(ecg: ECG, groups: list[Group]) -> dict[Group, list[Value]]:
    """Per group, the values that something outside it reads, in topological order."""
    group_of = {n: group for group in groups for n in group.nodes}
    escaping: dict[Group, dict[Value, None]] = {g: {} for g in groups}
    readers = [(v, group_of.get(node.id)) for node in ecg.nodes for v in node.inputs]
    for value, reader in [*readers, *((v, None) for v in ecg.outputs)]:
        owner = group_of.get(value.node)
        if owner in escaping and owner is not reader:
            escaping[owner][value] = None
    return {g: sorted(found, key=lambda v: (v.node, v.index)) for g, found in escaping.items()}


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.FuseByMappingType")
@dataclass
class FuseByMappingType:
    """Plan each function of a module and nest its groups as primitive functions.

    Parameters
    ----------
    limits
        Bounds on a group.
    profitability
        Decides the yellow cells of Table 3; a function of the module's graphs alone.
    join_bytes
        Groups are joined past Table 3 while at most so many bytes pass between them; 0 keeps the
        paper's plan.
    alone
        Names of operators that become a group even by themselves, because a block schedule is written
        for them.
    verify
        Check each plan against the definition of legality (debugging).
    on_plan
        Called with each :class:`PlannedFunction`.
    typed
        The module's types are inferred already.
    infer_types
        Infer them in the result; ``SealBlocks`` does not need them.
    """

    limits: Limits = field(default_factory=Limits)
    profitability: Profitability = field(default_factory=StaticProfitability)
    verify: bool = False
    join_bytes: int = 4096
    alone: Collection[str] = ()
    on_plan: Callable[[PlannedFunction], None] | None = None
    typed: bool = False
    infer_types: bool = True

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with groups as calls of primitive functions; types inferred."""
        if not self.typed:
            mod = relay.transform.InferType()(mod)
        result = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
        for var, function in mod.functions.items():
            if isinstance(function, relay.Function) and not is_sealed(function):
                result.update_func(var, self._fuse(var.name_hint, function))
        return relay.transform.InferType()(result) if self.infer_types else result

    def _fuse(self, name: str, function: relay.Function) -> relay.Function:
        graph = build_ecg(function)
        plan = plan_fusion(graph.ecg, self.limits, self.profitability, producers_first=True)
        if self.verify:
            verify_plan(graph.ecg, plan, self.limits)
        plan = join_small(graph.ecg, plan, self.limits, self.join_bytes)
        if self.on_plan is not None:
            self.on_plan(PlannedFunction(name, graph, plan))
        groups = [g for g in plan.groups if len(g.nodes) > 1 or self._is_alone(graph.ecg.nodes[g.seed])]
        body = _Realiser(graph, groups).run(graph.order, function.body)
        if key_of(body) == key_of(function.body):
            return function
        return relay.function.FunctionWithFields(function, body=body)

    def _is_alone(self, node: Node) -> bool:
        return node.kind == "op" and node.op in self.alone
