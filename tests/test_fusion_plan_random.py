"""The fusion planner on random graphs, against brute force: soundness and maximality."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tvm_dnnfusion.ecg import ECG, Node, TensorInfo, Value
from tvm_dnnfusion.fusion_block import block_type
from tvm_dnnfusion.fusion_legality import Limits
from tvm_dnnfusion.fusion_plan import plan_fusion
from tvm_dnnfusion.fusion_table import Colour, combine, fusion_cell
from tvm_dnnfusion.fusion_verify import kernel_arguments, verify_plan
from tvm_dnnfusion.mapping_type import MappingType, most_complex
from tvm_dnnfusion.plan import Group, Plan
from tvm_dnnfusion.profitability import Profitability, Verdict
from tvm_dnnfusion.recompute import recomputed_flops

O2O, O2M, M2M = MappingType.ONE_TO_ONE, MappingType.ONE_TO_MANY, MappingType.MANY_TO_MANY
TYPES = [O2O, O2O, O2O, O2M, M2M, MappingType.REORGANIZE, MappingType.SHUFFLE]


class Coin:
    """Tosses a coin per joint set of nodes: profit may come and go while a block grows."""

    def profitable(self, ecg: ECG, block: tuple[int, ...], candidate: int) -> Verdict:
        return Verdict(random.Random(repr(sorted((*block, candidate)))).random() < 0.5, "lost the toss")


def random_leaf(rng: random.Random, node_id: int) -> Node:
    kind = rng.choice(["source", "source", "constant"])
    return Node(node_id, kind, kind, outputs=(TensorInfo(rng.choice([(), (8,), (8, 8), (0, 8)]), "float32"),))


def random_operator(rng: random.Random, nodes: list[Node]) -> Node:
    """An operator on recent nodes: broadcast operands, several results, now and then opaque or empty."""
    recent = nodes[-6:]
    inputs = [rng.choice(recent) for _ in range(rng.choice([1, 1, 2, 2, 3]))]
    main = rng.choice(TYPES)
    types = (main, *(main if main is M2M else rng.choice([O2O, O2M]) for _ in inputs[1:]))
    largest = max(range(len(inputs)), key=lambda k: inputs[k].outputs[0].nbytes)
    return Node(
        len(nodes),
        rng.choice(["op"] * 11 + ["opaque"]),
        main.value,
        tuple(Value(n.id, rng.randrange(len(n.outputs))) for n in inputs),
        (TensorInfo(rng.choice([(8,), (8, 8), (8, 8), (0, 8)]), "float32"),) * rng.choice([1, 1, 1, 2]),
        types,
        most_complex(types),
        types[largest],
        flops=64 * len(inputs),
    )


def random_graph(rng: random.Random) -> ECG:
    nodes = [random_leaf(rng, i) for i in range(rng.randint(1, 3))]
    for _ in range(rng.randint(1, 24)):
        nodes.append(random_operator(rng, nodes))
    read = {value.node for node in nodes for value in node.inputs}
    sinks = [n.id for n in nodes if n.id not in read]
    return ECG(tuple(nodes), tuple(Value(n) for n in [*sinks, *rng.sample(range(len(nodes)), k=1)]))


def downstream_types(ecg: ECG, members: set[int], member: int) -> Iterator[MappingType]:
    """Type of each path from ``member`` down through ``members``, every path walked."""
    yield O2O
    for user in ecg.users[member]:
        if user in members:
            edge = edge_type(ecg, member, user)
            for below in downstream_types(ecg, members, user):
                yield combine(edge, below)


def edge_type(ecg: ECG, producer: int, consumer: int) -> MappingType:
    node = ecg.nodes[consumer]
    if block_type(node) is M2M:
        return M2M
    pairs = zip(node.inputs, node.operand_types, strict=True)
    return combine(*(t for value, t in pairs if value.node == producer))


def colour(ecg: ECG, group: Group, alone: int) -> Colour:
    """Table 3 for a group and one operator beside it, by walking every path."""
    members, node = set(group.nodes), ecg.nodes[alone]
    producers = {value.node for value in node.inputs} & members
    if producers:
        pairs = zip(node.inputs, node.operand_types, strict=True)
        types = [t for value, t in pairs if value.node in members]
        types = [M2M] * len(types) if block_type(node) is M2M else types
        return max(fusion_cell(group.mapping_type, t).colour for t in types)
    if block_type(node) is M2M and group.mapping_type is M2M:
        return Colour.RED
    worst = Colour.GREEN
    for member in set(ecg.users[alone]) & members:
        pairs = zip(ecg.nodes[member].inputs, ecg.nodes[member].operand_types, strict=True)
        for entry in [t for value, t in pairs if value.node == alone]:
            entry = M2M if block_type(ecg.nodes[member]) is M2M else entry
            for below in downstream_types(ecg, members, member):
                worst = max(worst, fusion_cell(block_type(node), combine(entry, below)).colour)
                if combine(entry, block_type(ecg.nodes[member])) is not block_type(ecg.nodes[member]):
                    worst = max(worst, fusion_cell(entry, below).colour)
    return worst


def reaches_around(ecg: ECG, plan: Plan, merged: set[int]) -> bool:
    """Whether a path leaves ``merged`` and comes back when every group runs as one."""
    vertex = {n: -1 - i for i, group in enumerate(plan.groups) for n in group.nodes}
    vertex |= dict.fromkeys(merged, -(10**6))
    edges = {(vertex.get(v.node, v.node), vertex.get(n.id, n.id)) for n in ecg.nodes for v in n.inputs}
    reached = {b for a, b in edges if a == -(10**6) and b != -(10**6)}
    while True:
        more = {b for a, b in edges if a in reached} | reached
        if -(10**6) in more:
            return True
        if more == reached:
            return False
        reached = more


def objections(
    ecg: ECG, plan: Plan, group: Group, alone: int, limits: Limits, profit: Profitability
) -> set[str]:
    """Words of all reasons that hold against ``alone`` joining ``group`` in the finished plan."""
    merged = Group(tuple(sorted((*group.nodes, alone))), group.mapping_type, group.seed)
    cell = colour(ecg, group, alone)
    total = sum(ecg.nodes[n].flops for n in merged.nodes)
    arguments = kernel_arguments(ecg, merged)
    held = {
        "never fused": cell is Colour.RED,
        f"{limits.max_operators} operators, the limit": len(group.nodes) >= limits.max_operators,
        f"take {arguments} arguments": arguments > limits.max_arguments,
        "at least": arguments > limits.max_arguments,
        "FLOPs again": recomputed_flops(ecg, merged.nodes) > limits.max_recompute * total,
        "lies between": reaches_around(ecg, plan, set(merged.nodes)),
        "not profitable": cell is Colour.YELLOW and not profit.profitable(ecg, group.nodes, alone).profitable,
    }
    return {words for words, holds in held.items() if holds}


LIMITS = [Limits(), Limits(max_arguments=4), Limits(max_operators=3), Limits(max_recompute=0.5)]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("producers_first", [False, True])
def test_plan_random_graphs_are_sound_and_maximal(seed: int, limits: Limits, producers_first: bool) -> None:
    """No group can take in a neighbour that is alone, and each refusal's reason holds in the end.

    Checked against path enumeration, brute-force reachability and counting from scratch.
    """
    for case in range(60):
        ecg = random_graph(random.Random(seed + case))
        profit = Coin()
        plan = plan_fusion(ecg, limits, profit, producers_first=producers_first)
        verify_plan(ecg, plan, limits)
        group_of = {n: group for group in plan.groups for n in group.nodes}
        for refusal in plan.refusals:
            ends = [(refusal.producer, refusal.consumer), (refusal.consumer, refusal.producer)]
            pairs = [(group_of.get(a), b) for a, b in ends if b in group_of and len(group_of[b].nodes) == 1]
            for group, alone in pairs:
                if group is not None:
                    held = objections(ecg, plan, group, alone, limits, profit)
                    print(f"seed {seed + case}: {group} {alone} {refusal.reason} {held}")
                    assert any(words in refusal.reason for words in held)


def test_plan_is_deterministic(seed: int) -> None:
    ecg = random_graph(random.Random(seed))
    plans = [plan_fusion(ecg, Limits(), Coin()) for _ in range(2)]
    assert plans[0] == plans[1]
