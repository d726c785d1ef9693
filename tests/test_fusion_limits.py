"""Hard limits of a group, and the check that finds plans which break a promise."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tvm_dnnfusion.ecg import ECG, Node, TensorInfo, Value
from tvm_dnnfusion.fusion_legality import Limits
from tvm_dnnfusion.fusion_plan import plan_fusion
from tvm_dnnfusion.fusion_verify import kernel_arguments, verify_plan
from tvm_dnnfusion.mapping_type import MappingType
from tvm_dnnfusion.plan import Group, Plan
from tvm_dnnfusion.profitability import StaticProfitability

O2O, O2M, M2M = MappingType.ONE_TO_ONE, MappingType.ONE_TO_MANY, MappingType.MANY_TO_MANY


class Graph:
    """Builds an ECG of operators that share one type unless told; methods return the new node's id."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def leaf(self, kind: str = "source", shape: tuple[int, ...] = (8, 8)) -> int:
        self.nodes.append(Node(len(self.nodes), kind, kind, outputs=(TensorInfo(shape, "float32"),)))
        return len(self.nodes) - 1

    def op(self, *inputs: int, kind: MappingType = O2O, shape: tuple[int, ...] = (8, 8)) -> int:
        info, types = TensorInfo(shape, "float32"), (kind,) * len(inputs)
        values = tuple(map(Value, inputs))
        self.nodes.append(
            Node(len(self.nodes), "op", kind.value, values, (info,), types, kind, kind, info.size)
        )
        return len(self.nodes) - 1

    def ecg(self) -> ECG:
        return ECG(tuple(self.nodes), (Value(len(self.nodes) - 1),))


def planned(ecg: ECG, limits: Limits | None = None) -> Plan:
    limits = limits or Limits()
    plan = plan_fusion(ecg, limits, StaticProfitability())
    verify_plan(ecg, plan, limits)
    return plan


def reason(plan: Plan) -> str:
    (refusal,) = plan.refusals
    return refusal.reason


@pytest.mark.parametrize("swapped", [False, True])
def test_plan_operator_limit_is_strict_and_order_free(swapped: bool) -> None:
    """Sum of five products, at most four operators: three groups whichever way the adds are written."""
    g = Graph()

    def chain(depth: int) -> int:
        if depth == 0:
            return g.op(g.leaf())
        first, second = (0, depth - 1) if swapped else (depth - 1, 0)
        return g.op(chain(first), chain(second))

    chain(4)
    plan = planned(g.ecg(), Limits(max_operators=4))
    assert max(len(group.nodes) for group in plan.groups) <= 4
    assert len(plan.groups) == 3


@pytest.mark.parametrize("kind", ["source", "constant"])
def test_plan_argument_limit_counts_inputs_constants_and_outputs(kind: str) -> None:
    g = Graph()
    total = g.leaf(kind)
    for _ in range(199):
        total = g.op(total, g.leaf(kind))
    ecg = g.ecg()
    plan = planned(ecg, Limits(max_operators=1000))
    assert max(kernel_arguments(ecg, group) for group in plan.groups) == 128
    assert len(plan.groups) == 2


def test_plan_scalar_constants_are_no_arguments() -> None:
    g = Graph()
    total = g.leaf()
    for _ in range(199):
        total = g.op(total, g.leaf("constant", ()))
    assert len(planned(g.ecg(), Limits(max_operators=1000)).groups) == 1


def test_plan_leaves_an_operator_wider_than_the_limit_alone() -> None:
    g = Graph()
    concat = g.op(*[g.leaf() for _ in range(200)], shape=(1600, 8))
    relu = g.op(concat, shape=(1600, 8))
    plan = planned(g.ecg())
    assert [group.nodes for group in plan.groups] == [(concat,), (relu,)]
    assert reason(plan) == "the kernel would take 201 arguments, the limit is 128"


def test_plan_refuses_recompute_above_the_limit() -> None:
    g = Graph()
    g.op(g.op(g.leaf(shape=(8,)), shape=(8,)), kind=O2M)
    assert len(planned(g.ecg()).groups) == 1
    plan = planned(g.ecg(), Limits(max_recompute=0.5))
    assert reason(plan) == "the kernel would compute 56 of 72 FLOPs again, the limit is 0.5 of them"


def test_plan_zero_size_tensors() -> None:
    g = Graph()
    g.op(g.op(g.leaf(shape=(0, 10)), shape=(0, 10)), kind=O2M, shape=(4, 0, 10))
    assert len(planned(g.ecg(), Limits(max_recompute=0.5)).groups) == 1


def dense_relu_dense() -> ECG:
    """Two groups, (1,) and (2, 3, 4), whatever the order of growth."""
    g = Graph()
    relu = g.op(g.op(g.leaf(), kind=M2M))
    g.op(g.op(relu, kind=M2M))
    return g.ecg()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: Plan(p.groups[:1], p.refusals), "groups instead of 1"),
        (lambda p: Plan(p.groups[::-1], p.refusals), "cannot run in the order"),
        (lambda p: Plan(p.groups, ()), "refusals and open edges differ"),
        (lambda p: Plan((Group((1, 2, 3, 4), M2M, 1),), ()), "two Many-to-Many"),
        (lambda p: Plan((p.groups[0], Group((2, 3, 4), O2O, 2)), p.refusals), "not MappingType.ONE_TO_ONE"),
        (lambda p: Plan((p.groups[0], Group((2, 3, 4), M2M, 1)), p.refusals), "the seed 1 is not among"),
    ],
)
def test_verify_plan_refuses_damage(damage: Callable[[Plan], Plan], message: str) -> None:
    ecg = dense_relu_dense()
    with pytest.raises(AssertionError, match=re.escape(message)):
        verify_plan(ecg, damage(planned(ecg)), Limits())


def test_verify_plan_refuses_expansion_before_many_to_many() -> None:
    g = Graph()
    g.op(g.op(g.op(g.leaf(shape=(8,)), kind=O2M)), kind=M2M)
    with pytest.raises(AssertionError, match="reads a One-to-Many result"):
        verify_plan(g.ecg(), Plan((Group((1, 2, 3), M2M, 1),), ()), Limits())


def test_verify_plan_refuses_cycle_and_limits() -> None:
    g = Graph()
    top = g.op(g.leaf())
    g.op(top, g.op(top))
    ecg = g.ecg()
    cyclic = Plan((Group((1, 3), O2O, 1), Group((2,), O2O, 2)), ())
    with pytest.raises(AssertionError, match="cannot run"):
        verify_plan(ecg, cyclic, Limits())
    with pytest.raises(AssertionError, match="too many operators"):
        verify_plan(ecg, planned(ecg), Limits(max_operators=2))
    with pytest.raises(AssertionError, match="takes 2 arguments"):
        verify_plan(ecg, planned(ecg), Limits(max_arguments=1))
