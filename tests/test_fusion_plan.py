"""The fusion planner on plain graphs: the paper's example, limits, cycles, maximality, scaling."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

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
REORGANIZE, SHUFFLE = MappingType.REORGANIZE, MappingType.SHUFFLE
SHAPE = (8, 8)


@dataclass
class Graph:
    """Builds an ECG node by node; methods return the new node's id."""

    nodes: list[Node] = field(default_factory=list)

    def leaf(self, kind: str = "source", shape: tuple[int, ...] = SHAPE) -> int:
        self.nodes.append(Node(len(self.nodes), kind, kind, outputs=(TensorInfo(shape, "float32"),)))
        return len(self.nodes) - 1

    def op(
        self,
        name: str,
        types: MappingType | Sequence[MappingType],
        *inputs: int | Value,
        shape: tuple[int, ...] = SHAPE,
        results: int = 1,
        kind: str = "op",
    ) -> int:
        values = tuple(v if isinstance(v, Value) else Value(v) for v in inputs)
        operand_types = (types,) * len(values) if isinstance(types, MappingType) else tuple(types)
        largest = max(range(len(values)), key=lambda k: self.nodes[values[k].node].outputs[0].nbytes)
        node = Node(
            len(self.nodes),
            kind,
            name,
            values,
            (TensorInfo(shape, "float32"),) * results,
            operand_types,
            most_complex(operand_types),
            operand_types[largest],
            flops=64 * len(values),
        )
        self.nodes.append(node)
        return node.id

    def finish(self, *outputs: int) -> ECG:
        return ECG(tuple(self.nodes), tuple(Value(n) for n in outputs or (len(self.nodes) - 1,)))


class Always:
    """Every yellow cell pays, or none."""

    def __init__(self, verdict: bool = True) -> None:
        self.verdict = verdict

    def profitable(self, ecg: ECG, block: tuple[int, ...], candidate: int) -> Verdict:
        return Verdict(self.verdict, "said so")


class Coin:
    """Tosses a coin per joint set of nodes: profit may come and go while a block grows."""

    def profitable(self, ecg: ECG, block: tuple[int, ...], candidate: int) -> Verdict:
        return Verdict(random.Random(repr(sorted((*block, candidate)))).random() < 0.5, "lost the toss")


def planned(
    ecg: ECG, limits: Limits | None = None, profitability: Profitability | None = None, **options: bool
) -> Plan:
    limits = limits or Limits()
    plan = plan_fusion(ecg, limits, profitability or Always(), **options)
    verify_plan(ecg, plan, limits)
    return plan


def groups(plan: Plan) -> set[tuple[int, ...]]:
    return {group.nodes for group in plan.groups}


def reasons(plan: Plan) -> dict[tuple[int, int], str]:
    return {(refusal.producer, refusal.consumer): refusal.reason for refusal in plan.refusals}


def figure_3() -> ECG:
    g = Graph()
    gemm = g.op("gemm", M2M, g.leaf())
    conv = g.op("conv", M2M, g.op("add", O2O, gemm))
    g.op("sub", O2O, g.op("relu", O2O, conv), g.op("mul", O2O, conv))
    return g.finish()


def test_plan_figure_3() -> None:
    plan = planned(figure_3())
    assert groups(plan) == {(1,), (2, 3, 4, 5, 6)}
    assert plan.groups[1].mapping_type is M2M
    assert plan.groups[1].seed == 2
    assert reasons(plan) == {(1, 2): "Many-to-Many followed by Many-to-Many is never fused (Table 3)"}


def test_plan_producers_first_makes_epilogues() -> None:
    assert groups(planned(figure_3(), producers_first=True)) == {(1, 2), (3, 4, 5, 6)}


def test_plan_refuses_expansion_before_many_to_many() -> None:
    g = Graph()
    expand = g.op("expand", O2M, g.leaf(shape=(1, 8)))
    conv = g.op("conv", M2M, g.op("relu", O2O, expand))
    plan = planned(g.finish())
    assert groups(plan) == {(1,), (2, 3)}
    assert reasons(plan)[expand, conv - 1] == "One-to-Many followed by Many-to-Many is never fused (Table 3)"


def test_plan_takes_expansion_that_enters_behind_many_to_many() -> None:
    g = Graph()
    conv = g.op("conv", M2M, g.leaf())
    expand = g.op("expand", O2M, g.leaf(shape=(1, 8)))
    g.op("add", O2O, conv, expand)
    assert len(planned(g.finish()).groups) == 1


def test_plan_refuses_broadcast_operand_before_many_to_many() -> None:
    """The bias is a vector computed in the graph: inside the block it would be expanded before conv."""
    g = Graph()
    x = g.leaf()
    bias = g.op("exp", O2O, g.leaf(shape=(8,)), shape=(8,))
    add = g.op("add", (O2O, O2M), x, bias)
    g.op("conv", M2M, add)
    plan = planned(g.finish())
    assert (bias, add) in reasons(plan) or (add, add + 1) in reasons(plan)


def test_plan_broadcast_operand_from_memory_is_one_to_one() -> None:
    g = Graph()
    add = g.op("add", (O2O, O2M), g.leaf(), g.leaf("constant", (8,)))
    conv = g.op("conv", M2M, add)
    assert groups(planned(g.finish())) == {(add, conv)}


def test_plan_never_joins_two_many_to_many_through_one_to_one() -> None:
    g = Graph()
    first, second = g.op("dense", M2M, g.leaf()), g.op("dense", M2M, g.leaf())
    g.op("add", O2O, first, second)
    plan = planned(g.finish())
    assert len(plan.groups) == 2


def test_plan_yellow_follows_profitability() -> None:
    g = Graph()
    conv = g.op("conv", M2M, g.leaf())
    transpose = g.op("transpose", SHUFFLE, conv)
    assert groups(planned(g.finish())) == {(conv, transpose)}
    plan = planned(g.finish(), profitability=Always(False))
    assert groups(plan) == {(conv,), (transpose,)}
    assert reasons(plan)[conv, transpose] == "not profitable: said so"


def test_plan_green_asks_no_profitability() -> None:
    g = Graph()
    g.op("relu", O2O, g.op("conv", M2M, g.leaf()))
    assert len(planned(g.finish(), profitability=Always(False)).groups) == 1


def test_plan_seeds_smallest_one_to_one_first() -> None:
    """The small add claims the GEMM's successor before the large one is a seed."""
    g = Graph()
    x = g.leaf()
    large = g.op("relu", O2O, x, shape=(64, 64))
    first = g.op("conv", M2M, large)
    small = g.op("relu", O2O, first, shape=(4, 4))
    g.op("conv", M2M, small)
    plan = planned(g.finish())
    assert [group.seed for group in plan.groups] == [large, small]


def test_plan_groups_without_one_to_one_seed() -> None:
    g = Graph()
    reshape = g.op("reshape", REORGANIZE, g.leaf())
    transpose = g.op("transpose", SHUFFLE, reshape)
    assert groups(planned(g.finish())) == {(reshape, transpose)}


def test_plan_single_operator_joins_a_later_block() -> None:
    """Refused by Coin-like profit at first, welcome when the block is another."""

    class Late:
        def profitable(self, ecg: ECG, block: tuple[int, ...], candidate: int) -> Verdict:
            return Verdict(len(block) > 1, "too small")

    g = Graph()
    transpose = g.op("transpose", SHUFFLE, g.leaf())
    g.op("exp", O2O, g.op("gather", O2M, transpose))
    assert len(planned(g.finish(), profitability=Late()).groups) == 1


def test_plan_residual_around_refused_operator_closes_no_cycle() -> None:
    """add -> conv -> conv -> add2: with add2, add's group would wait for the second conv and it for add."""
    g = Graph()
    add = g.op("add", O2O, g.leaf())
    first = g.op("conv", M2M, add)
    second = g.op("conv", M2M, first)
    last = g.op("add", O2O, second, add)
    plan = planned(g.finish())
    assert groups(plan) == {(add, first), (second, last)}
    assert "lies between them" in reasons(plan)[add, last]


def test_plan_takes_both_sides_of_a_diamond() -> None:
    g = Graph()
    top = g.op("relu", O2O, g.leaf())
    g.op("add", O2O, g.op("exp", O2O, top), g.op("tanh", O2O, g.op("neg", O2O, top)))
    assert len(planned(g.finish()).groups) == 1


def test_plan_opaque_between_two_operators() -> None:
    g = Graph()
    top = g.op("relu", O2O, g.leaf())
    sort = g.op("sort", MappingType.OPAQUE, top, kind="opaque")
    last = g.op("add", O2O, top, sort)
    plan = planned(g.finish())
    assert groups(plan) == {(top,), (last,)}
    assert reasons(plan) == {
        (top, sort): "sort is opaque: it is never grouped",
        (sort, last): "sort is opaque: it is never grouped",
        (top, last): f"sort (node {sort}) lies between them: each kernel would wait for the other",
    }


def test_plan_operator_without_static_shape_is_opaque() -> None:
    g = Graph()
    x = g.leaf()
    g.nodes.append(Node(1, "op", "unique", (Value(x),), (), (O2O,), O2O, O2O))
    g.nodes.append(Node(2, "op", "relu", (Value(1),), (TensorInfo(SHAPE, "float32"),), (O2O,), O2O, O2O))
    plan = planned(g.finish())
    assert groups(plan) == {(2,)}
    assert reasons(plan) == {(1, 2): "unique is opaque: its shape is not static"}


def test_plan_writes_an_intermediate_used_outside() -> None:
    g = Graph()
    relu = g.op("relu", O2O, g.leaf())
    exp = g.op("exp", O2O, relu)
    ecg = g.finish(relu, exp)
    plan = planned(ecg)
    assert groups(plan) == {(relu, exp)}
    assert kernel_arguments(ecg, plan.groups[0]) == 3


def test_plan_split_and_its_users_are_one_group() -> None:
    g = Graph()
    split = g.op("split", O2O, g.op("dense", M2M, g.leaf(shape=(1, 30))), shape=(1, 10), results=3)
    parts = [g.op("sigmoid", O2O, Value(split, k), shape=(1, 10)) for k in range(3)]
    g.op("add", O2O, parts[0], g.op("mul", O2O, parts[1], parts[2]))
    assert len(planned(g.finish()).groups) == 1


@pytest.mark.parametrize("swapped", [False, True])
def test_plan_operator_limit_is_strict_and_order_free(swapped: bool) -> None:
    """Sum of five products, at most four operators: three groups whichever way the adds are written."""
    g = Graph()

    def chain(depth: int) -> int:
        if depth == 0:
            return g.op("multiply", O2O, g.leaf())
        first, second = (0, depth - 1) if swapped else (depth - 1, 0)
        return g.op("add", O2O, chain(first), chain(second))

    chain(4)
    plan = planned(g.finish(), Limits(max_operators=4))
    assert max(len(group.nodes) for group in plan.groups) <= 4
    assert len(plan.groups) == 3


@pytest.mark.parametrize("kind", ["source", "constant"])
def test_plan_argument_limit_counts_inputs_constants_and_outputs(kind: str) -> None:
    g = Graph()
    total = g.leaf(kind)
    for _ in range(199):
        total = g.op("add", O2O, total, g.leaf(kind))
    ecg = g.finish()
    plan = planned(ecg, Limits(max_operators=1000))
    assert max(kernel_arguments(ecg, group) for group in plan.groups) == 128
    assert len(plan.groups) == 2


def test_plan_scalar_constants_are_no_arguments() -> None:
    g = Graph()
    total = g.leaf()
    for _ in range(199):
        total = g.op("add", O2O, total, g.leaf("constant", ()))
    assert len(planned(g.finish(), Limits(max_operators=1000)).groups) == 1


def test_plan_leaves_an_operator_wider_than_the_limit_alone() -> None:
    g = Graph()
    concat = g.op("concatenate", O2O, *[g.leaf() for _ in range(200)], shape=(1600, 8))
    relu = g.op("relu", O2O, concat, shape=(1600, 8))
    plan = planned(g.finish())
    assert groups(plan) == {(concat,), (relu,)}
    assert reasons(plan)[concat, relu] == "the kernel would take 201 arguments, the limit is 128"


def test_plan_refuses_recompute_above_the_limit() -> None:
    g = Graph()
    exp = g.op("exp", O2O, g.leaf(shape=(8,)), shape=(8,))
    g.op("broadcast_to", O2M, exp)
    assert len(planned(g.finish()).groups) == 1
    plan = planned(g.finish(), Limits(max_recompute=0.5))
    assert "FLOPs again" in reasons(plan)[exp, exp + 1]


def test_plan_zero_size_tensors() -> None:
    g = Graph()
    relu = g.op("relu", O2O, g.leaf(shape=(0, 10)), shape=(0, 10))
    g.op("expand", O2M, relu, shape=(4, 0, 10))
    assert len(planned(g.finish(), Limits(max_recompute=0.5)).groups) == 1


def test_plan_empty_graph() -> None:
    assert planned(ECG((), ())) == Plan((), ())


def random_graph(rng: random.Random) -> ECG:
    """A small graph with broadcast operands, constants, opaque nodes, several results, empty tensors."""
    g = Graph()
    for _ in range(rng.randint(1, 3)):
        g.leaf(rng.choice(["source", "source", "constant"]), rng.choice([(), (8,), (8, 8), (0, 8)]))
    for _ in range(rng.randint(1, 24)):
        count = rng.choice([1, 1, 2, 2, 3])
        recent = range(max(0, len(g.nodes) - 6), len(g.nodes))
        inputs = [rng.choice(recent) for _ in range(count)]
        values = [Value(n, rng.randrange(len(g.nodes[n].outputs))) for n in inputs]
        main = rng.choice([O2O, O2O, O2O, O2M, M2M, REORGANIZE, SHUFFLE])
        types = [main, *(main if main is M2M else rng.choice([O2O, O2M]) for _ in inputs[1:])]
        g.op(
            main.value,
            types,
            *values,
            shape=rng.choice([(8,), (8, 8), (8, 8), (0, 8)]),
            results=rng.choice([1, 1, 1, 2]),
            kind=rng.choice(["op"] * 11 + ["opaque"]),
        )
    read = {value.node for node in g.nodes for value in node.inputs}
    sinks = [n.id for n in g.nodes if n.id not in read]
    return g.finish(*sinks, *rng.sample(range(len(g.nodes)), k=min(2, len(g.nodes))))


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
        plan = planned(ecg, limits, profit, producers_first=producers_first)
        group_of = {n: group for group in plan.groups for n in group.nodes}
        for refusal in plan.refusals:
            ends = [(refusal.producer, refusal.consumer), (refusal.consumer, refusal.producer)]
            pairs = [(group_of.get(a), b) for a, b in ends if b in group_of and len(group_of[b].nodes) == 1]
            for group, alone in pairs:
                if group is not None:
                    held = objections(ecg, plan, group, alone, limits, profit)
                    print(f"seed {seed + case}: {group} {alone} {refusal.reason} {held}")
                    assert any(words in refusal.reason for words in held)


def chain(length: int) -> ECG:
    g = Graph()
    last = g.leaf()
    for _ in range(length):
        last = g.op("relu", O2O, last)
    return g.finish()


def balanced_sum(branches: int) -> ECG:
    """Sum of independent branches in a balanced tree."""
    g = Graph()
    level = [g.op("relu", O2O, g.leaf()) for _ in range(branches)]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [g.op("add", O2O, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return g.finish()


def fan_out(consumers: int) -> ECG:
    g = Graph()
    hub = g.op("relu", O2O, g.leaf())
    return g.finish(*[g.op("exp", O2O, hub) for _ in range(consumers)])


def fan_out_and_in(consumers: int) -> ECG:
    """One operator with many consumers whose results are all concatenated."""
    g = Graph()
    hub = g.op("relu", O2O, g.leaf())
    g.op("concatenate", O2O, *[g.op("exp", O2O, hub) for _ in range(consumers)])
    return g.finish()


def nested_skips(operators: int) -> ECG:
    """U-Net: every level's result skips everything below it."""
    g = Graph()
    last, skips = g.leaf(), []
    for i in range(operators // 2):
        last = g.op("conv", M2M, last) if i % 2 else g.op("relu", O2O, last)
        skips.append(last)
    for skip in reversed(skips):
        last = g.op("concatenate", O2O, last, skip)
    return g.finish()


def residual(operators: int) -> ECG:
    g = Graph()
    last = g.leaf()
    for _ in range(operators // 5):
        skip = last
        for _ in range(2):
            last = g.op("relu", O2O, g.op("conv", M2M, last))
        last = g.op("add", O2O, last, skip)
    return g.finish()


def alternating(operators: int) -> ECG:
    """A yellow cell at every edge."""
    g = Graph()
    last = g.leaf()
    for i in range(operators):
        last = g.op("gather", O2M, last) if i % 2 else g.op("transpose", SHUFFLE, last)
    return g.finish()


SCALED = [chain, balanced_sum, fan_out, fan_out_and_in, nested_skips, residual, alternating]


@pytest.mark.parametrize("build", SCALED)
def test_plan_time_is_not_quadratic(build: Callable[[int], ECG]) -> None:
    def seconds(size: int) -> float:
        ecg = build(size)
        times = []
        for _ in range(2):
            start = time.process_time()
            plan_fusion(ecg, Limits(), Always())
            times.append(time.process_time() - start)
        return min(times)

    small, medium, large = seconds(750), seconds(1500), seconds(3000)
    print(f"{build.__name__}: {small:.3f} {medium:.3f} {large:.3f} s")
    assert large < 9 * small + 0.05  # linear is 4 times, quadratic 16


@pytest.mark.parametrize("build", [chain, nested_skips, residual])
def test_plan_ten_thousand_operators(build: Callable[[int], ECG]) -> None:
    ecg = build(10_000)
    start = time.process_time()
    plan = planned(ecg)
    assert time.process_time() - start < 10
    assert sum(len(group.nodes) for group in plan.groups) == 10_000
    assert build is not chain or len(plan.groups) == -(-10_000 // 128)


def test_plan_is_deterministic(seed: int) -> None:
    ecg = random_graph(random.Random(seed))
    assert planned(ecg, profitability=Coin()) == planned(ecg, profitability=Coin())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: Plan(p.groups[:1], p.refusals), "groups instead of 1"),
        (lambda p: Plan(p.groups[::-1], p.refusals), "cannot run in the order"),
        (lambda p: Plan(p.groups, ()), "refusals and open edges differ"),
        (lambda p: Plan((Group((1, 2, 3, 4, 5, 6), M2M, 1),), ()), "two Many-to-Many"),
        (
            lambda p: Plan((p.groups[0], Group((2, 3, 4, 5, 6), O2O, 2)), p.refusals),
            "not MappingType.ONE_TO_ONE",
        ),
    ],
)
def test_verify_plan_refuses_damage(damage: Callable[[Plan], Plan], message: str) -> None:
    ecg = figure_3()
    with pytest.raises(AssertionError, match=re.escape(message)):
        verify_plan(ecg, damage(planned(ecg)), Limits())


def test_verify_plan_refuses_cycle_and_limits() -> None:
    g = Graph()
    top = g.op("relu", O2O, g.leaf())
    middle = g.op("exp", O2O, top)
    g.op("add", O2O, top, middle)
    ecg = g.finish()
    cyclic = Plan((Group((1, 3), O2O, 1), Group((2,), O2O, 2)), ())
    with pytest.raises(AssertionError, match="cannot run"):
        verify_plan(ecg, cyclic, Limits())
    with pytest.raises(AssertionError, match="too many operators"):
        verify_plan(ecg, planned(ecg), Limits(max_operators=2))
    with pytest.raises(AssertionError, match="takes 2 arguments"):
        verify_plan(ecg, planned(ecg), Limits(max_arguments=1))
