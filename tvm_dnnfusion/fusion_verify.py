"""Check of a fusion plan from scratch, sharing nothing with the planner but Table 3."""

from __future__ import annotations

import math
from collections import Counter

from .ecg import ECG, Value
from .fusion_block import block_type, computed, groupable
from .fusion_legality import Limits
from .fusion_table import combine
from .mapping_type import MappingType
from .plan import Group, Plan
from .recompute import recomputed_flops


def verify_plan(ecg: ECG, plan: Plan, limits: Limits) -> None:
    """Assert every property that a plan promises; linear in the size of the graph.

    Every operator is in one group, groups can run in their order with the opaque nodes between them,
    no group holds a red cell of Table 3, the types are those of the members, no group of several
    operators exceeds ``limits``, and every edge that leaves a group has one reason.

    Raises
    ------
    AssertionError
        With a message that names the group; it is a fault of the planner, never of the input.
    """
    _check_cover(ecg, plan)
    _check_order(ecg, plan)
    for group in plan.groups:
        _check_types(ecg, group)
        if len(group.nodes) > 1:
            _check_limits(ecg, group, limits)
    _check_refusals(ecg, plan)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(f"fusion plan: {message}")


def _check_cover(ecg: ECG, plan: Plan) -> None:
    counts = Counter(node for group in plan.groups for node in group.nodes)
    for node in ecg.nodes:
        expected = int(groupable(node))
        _require(
            counts[node.id] == expected,
            f"{node.op} (node {node.id}) is in {counts[node.id]} groups instead of {expected}",
        )
    for group in plan.groups:
        _require(group.seed in group.nodes, f"the seed {group.seed} is not among {group.nodes}")
        _require(list(group.nodes) == sorted(group.nodes), f"group {group.nodes} is not in topological order")


def _check_order(ecg: ECG, plan: Plan) -> None:
    """Sort groups and opaque nodes topologically, each group also after the one listed before it."""
    vertex = {node: -1 - i for i, group in enumerate(plan.groups) for node in group.nodes}
    successors: dict[int, set[int]] = {vertex.get(n.id, n.id): set() for n in ecg.nodes}
    for node in ecg.nodes:
        for value in node.inputs:
            ends = vertex.get(value.node, value.node), vertex.get(node.id, node.id)
            if ends[0] != ends[1]:
                successors[ends[0]].add(ends[1])
    for i in range(1, len(plan.groups)):
        successors[-i].add(-i - 1)
    waiting = Counter(s for followers in successors.values() for s in followers)
    ready = [v for v in successors if waiting[v] == 0]
    done = 0
    while ready:
        done += 1
        for follower in successors[ready.pop()]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    stuck = sorted(-1 - v for v in successors if waiting[v] > 0 and v < 0)
    _require(done == len(successors), f"groups {stuck} cannot run in the order of the plan")


def _check_types(ecg: ECG, group: Group) -> None:
    many, expansion = MappingType.MANY_TO_MANY, MappingType.ONE_TO_MANY
    own = {n: block_type(ecg.nodes[n]) for n in group.nodes}
    _require(
        sum(t is many for t in own.values()) <= 1, f"group {group.nodes} holds two Many-to-Many operators"
    )
    inner: list[MappingType] = []
    expanded = {n for n, t in own.items() if t is expansion}
    for n in group.nodes:
        node = ecg.nodes[n]
        for value, operand_type in zip(node.inputs, node.operand_types, strict=True):
            if value.node in own:
                inner.append(operand_type)
                if value.node in expanded or operand_type is expansion:
                    expanded.add(n)
        _require(
            own[n] is not many or n not in expanded,
            f"{node.op} (node {n}) of group {group.nodes} is Many-to-Many and reads a One-to-Many result",
        )
    expected = combine(*own.values(), *inner)
    _require(group.mapping_type is expected, f"group {group.nodes} is {expected}, not {group.mapping_type}")


def _check_limits(ecg: ECG, group: Group, limits: Limits) -> None:
    _require(len(group.nodes) <= limits.max_operators, f"group {group.nodes} holds too many operators")
    arguments = kernel_arguments(ecg, group)
    _require(arguments <= limits.max_arguments, f"group {group.nodes} takes {arguments} arguments")
    total = sum(ecg.nodes[n].flops for n in group.nodes)
    extra = recomputed_flops(ecg, group.nodes)
    within = limits.max_recompute == math.inf or extra <= limits.max_recompute * total  # inf * 0 is NaN
    _require(within, f"group {group.nodes} computes {extra} FLOPs again")


def kernel_arguments(ecg: ECG, group: Group) -> int:
    """Parameters of the group's kernel: distinct tensors read, scalar constants excepted, and written."""
    members = set(group.nodes)
    read = {v for n in group.nodes for v in ecg.nodes[n].inputs if v.node not in members}
    inlined = {v for v in read if ecg.nodes[v.node].kind == "constant" and _is_scalar(ecg, v)}
    users = {u for n in group.nodes for u in ecg.users[n]} - members
    written = {v for u in users for v in ecg.nodes[u].inputs if v.node in members}
    written |= {v for v in ecg.outputs if v.node in members}
    return len(read - inlined) + len(written)


def _is_scalar(ecg: ECG, value: Value) -> bool:
    outputs = ecg.nodes[value.node].outputs
    return bool(outputs) and outputs[0].shape == ()


def _check_refusals(ecg: ECG, plan: Plan) -> None:
    vertex = {node: i for i, group in enumerate(plan.groups) for node in group.nodes}
    expected = {
        (value.node, node.id)
        for node in ecg.nodes
        for value in node.inputs
        if computed(node)
        and computed(ecg.nodes[value.node])
        and (node.id in vertex or value.node in vertex)
        and vertex.get(node.id, -1) != vertex.get(value.node, -2)
    }
    found = [(refusal.producer, refusal.consumer) for refusal in plan.refusals]
    _require(len(found) == len(set(found)), "an edge is refused twice")
    _require(set(found) == expected, f"refusals and open edges differ in {sorted(set(found) ^ expected)[:5]}")
    _require(all(refusal.reason for refusal in plan.refusals), "a refusal has no reason")
