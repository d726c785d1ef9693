"""Time of the fusion planner on graphs that are deep, wide or full of skip connections."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tvm_dnnfusion.ecg import ECG, Node, TensorInfo, Value
from tvm_dnnfusion.fusion_legality import Limits
from tvm_dnnfusion.fusion_plan import plan_fusion
from tvm_dnnfusion.fusion_verify import verify_plan
from tvm_dnnfusion.mapping_type import MappingType
from tvm_dnnfusion.profitability import StaticProfitability

O2O, O2M, M2M = MappingType.ONE_TO_ONE, MappingType.ONE_TO_MANY, MappingType.MANY_TO_MANY
INFO = (TensorInfo((8, 8), "float32"),)


class Graph:
    """Builds an ECG of equal tensors node by node; methods return the new node's id."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def leaf(self) -> int:
        self.nodes.append(Node(len(self.nodes), "source", "input", outputs=INFO))
        return len(self.nodes) - 1

    def op(self, name: str, kind: MappingType, *inputs: int) -> int:
        values, types = tuple(map(Value, inputs)), (kind,) * len(inputs)
        self.nodes.append(Node(len(self.nodes), "op", name, values, INFO, types, kind, kind, flops=64))
        return len(self.nodes) - 1

    def finish(self, *outputs: int) -> ECG:
        return ECG(tuple(self.nodes), tuple(map(Value, outputs or (len(self.nodes) - 1,))))


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
        last = g.op("gather", O2M, last) if i % 2 else g.op("transpose", MappingType.SHUFFLE, last)
    return g.finish()


SCALED = [balanced_sum, fan_out, fan_out_and_in, nested_skips, alternating]


def seconds(ecg: ECG) -> float:
    ecg.users  # noqa: B018  (cached; not the planner's work)
    start = time.process_time()
    plan_fusion(ecg, Limits(), StaticProfitability())
    return time.process_time() - start


@pytest.mark.parametrize("build", SCALED)
def test_plan_time_is_not_quadratic(build: Callable[[int], ECG]) -> None:
    small = min(seconds(build(750)) for _ in range(2))
    medium, large = seconds(build(1500)), seconds(build(3000))
    print(f"{build.__name__}: {small:.3f} {medium:.3f} {large:.3f} s")
    assert large < 9 * small + 0.05  # linear is 4 times, quadratic 16


@pytest.mark.parametrize(("build", "size"), [(chain, 10_000), (residual, 10_000), (nested_skips, 5_000)])
def test_plan_deep_graph(build: Callable[[int], ECG], size: int) -> None:
    ecg = build(size)
    spent = seconds(ecg)
    plan = plan_fusion(ecg, Limits(), StaticProfitability())
    verify_plan(ecg, plan, Limits())
    print(f"{build.__name__}: {spent:.3f} s, {len(plan.groups)} groups")
    assert spent < 5
    assert sum(len(group.nodes) for group in plan.groups) == size
    assert build is not chain or len(plan.groups) == -(-size // Limits().max_operators)
