"""The fusion planner on small graphs: the paper's example, types, limits, cycles, opaque nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tvm_dnnfusion.ecg import ECG, Node, TensorInfo, Value
from tvm_dnnfusion.fusion_legality import Limits
from tvm_dnnfusion.fusion_plan import plan_fusion
from tvm_dnnfusion.fusion_verify import kernel_arguments, verify_plan
from tvm_dnnfusion.mapping_type import MappingType, most_complex
from tvm_dnnfusion.plan import Plan
from tvm_dnnfusion.profitability import Profitability, Verdict

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


def test_plan_sees_what_lies_below_a_chain_of_producers() -> None:
    """Small shapes make the last relu the seed: the block grows upwards, conv stays far below expand."""
    g = Graph()
    expand = g.op("expand", O2M, g.leaf(shape=(1, 8)))
    first = g.op("relu", O2O, expand)
    second = g.op("relu", O2O, first, shape=(2, 2))
    conv = g.op("conv", M2M, second)
    plan = planned(g.finish())
    assert plan.groups[1].seed == second
    assert groups(plan) == {(expand,), (first, second, conv)}


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


def conv_transpose_conv_relu() -> ECG:
    """The relu is the smallest One-to-One operator, so the second convolution's block grows first."""
    g = Graph()
    first = g.op("conv", M2M, g.leaf())
    second = g.op("conv", M2M, g.op("transpose", SHUFFLE, first))
    return g.finish(g.op("relu", O2O, second, shape=(2, 2)))


@pytest.mark.parametrize("producers_first", [False, True])
def test_plan_leaves_a_tail_to_its_operator(producers_first: bool) -> None:
    plan = planned(conv_transpose_conv_relu(), producers_first=producers_first)
    assert groups(plan) == {(1, 2), (3, 4)}


def test_plan_takes_a_tail_that_its_operator_refused() -> None:
    class NotBehindTheFirst:
        def profitable(self, ecg: ECG, block: tuple[int, ...], candidate: int) -> Verdict:
            return Verdict(1 not in (*block, candidate), "slow")

    plan = planned(conv_transpose_conv_relu(), profitability=NotBehindTheFirst())
    assert groups(plan) == {(1,), (2, 3, 4)}
    assert reasons(plan) == {(1, 2): "Many-to-Many followed by Many-to-Many is never fused (Table 3)"}


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


def test_plan_empty_graph() -> None:
    assert planned(ECG((), ())) == Plan((), ())
