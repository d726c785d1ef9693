"""Profit of yellow cells: the static model, and measurements kept in the database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tvm_dnnfusion.ecg import ECG, Node, TensorInfo, Value
from tvm_dnnfusion.errors import DatabaseError, MeasureError
from tvm_dnnfusion.fusion_legality import Limits
from tvm_dnnfusion.fusion_plan import plan_fusion
from tvm_dnnfusion.latency_db import LatencyDatabase
from tvm_dnnfusion.mapping_type import MappingType
from tvm_dnnfusion.profit_measured import MeasuredProfitability
from tvm_dnnfusion.profitability import StaticProfitability
from tvm_dnnfusion.recompute import reads_per_element, recomputed_flops

O2O, O2M, M2M = MappingType.ONE_TO_ONE, MappingType.ONE_TO_MANY, MappingType.MANY_TO_MANY
SHUFFLE = MappingType.SHUFFLE
Shape = tuple[int, ...]


def leaf(shape: Shape, kind: str = "source") -> tuple[str, MappingType, Sequence[int], Shape, int]:
    return kind, O2O, (), shape, 0


def graph(*rows: tuple[str, MappingType, Sequence[int], Shape, int], outputs: Sequence[int] = ()) -> ECG:
    """One row per node: name, type, inputs, shape, FLOPs; a row without inputs is a leaf."""
    nodes = []
    for i, (name, kind, inputs, shape, flops) in enumerate(rows):
        info = (TensorInfo(shape, "float32"),)
        if inputs:
            values, types = tuple(map(Value, inputs)), (kind,) * len(inputs)
            nodes.append(Node(i, "op", name, values, info, types, kind, kind, flops))
        else:
            nodes.append(Node(i, name, name, outputs=info))
    return ECG(tuple(nodes), tuple(map(Value, outputs or (len(rows) - 1,))))


def pool_upsample_concat(side: int) -> ECG:
    half: Shape = (1, 16, side // 2, side // 2)
    full: Shape = (1, 16, side, side)
    return graph(
        leaf(full),
        ("max_pool2d", M2M, (0,), half, 4 * 16 * side * side // 4),
        ("upsampling", O2M, (1,), full, 0),
        ("concatenate", O2O, (2, 0), (1, 32, side, side), 0),
    )


def test_static_refuses_resize_behind_many_to_many() -> None:
    """Pool, upsample, concatenate: two kernels, the paper's Conv -> Resize example."""
    ecg = pool_upsample_concat(64)
    plan = plan_fusion(ecg, Limits(), StaticProfitability())
    assert [group.nodes for group in plan.groups] == [(1,), (2, 3)]
    assert plan.refusals[0].reason.startswith("not profitable: saves the traffic of")


def test_static_takes_small_resize() -> None:
    """A kernel launch costs more than scattered writes of a few kilobytes."""
    assert len(plan_fusion(pool_upsample_concat(16), Limits(), StaticProfitability()).groups) == 1


def test_static_verdict_does_not_depend_on_which_part_is_the_block() -> None:
    ecg = pool_upsample_concat(64)
    static = StaticProfitability()
    assert static.profitable(ecg, (1,), 2) == static.profitable(ecg, (2,), 1)
    assert not static.profitable(ecg, (2, 3), 1).profitable


def test_static_takes_expand_along_one_axis_behind_many_to_many() -> None:
    conv = ("conv", M2M, (0,), (1, 64, 56, 1), 10**8)
    ecg = graph(leaf((1, 64, 56, 56)), conv, ("expand", O2M, (1,), (1, 64, 56, 56), 0))
    assert StaticProfitability().profitable(ecg, (1,), 2).profitable


def test_static_takes_reduction_and_its_broadcast() -> None:
    """The middle of a layer norm."""
    ecg = graph(
        leaf((128, 768)),
        ("mean", M2M, (0,), (128, 1), 128 * 768),
        ("broadcast_to", O2M, (1,), (128, 768), 0),
        ("subtract", O2O, (0, 2), (128, 768), 128 * 768),
    )
    verdict = StaticProfitability().profitable(ecg, (2, 3), 1)
    assert verdict.profitable
    saved, added = (float(word) for word in verdict.reason.split() if word.isdigit())
    assert saved == 32768 + 2 * 128 * 4
    assert added == 2 * 128 * 4 * 0.25  # storing the mean, cheaper than 767 more reductions


def test_static_charges_a_tensor_needed_elsewhere_once() -> None:
    rows = [leaf((64,)), ("softmax", M2M, (0,), (64,), 320), ("transpose", SHUFFLE, (1,), (64,), 0)]
    inside = StaticProfitability().profitable(graph(*rows), (1,), 2)
    outside = StaticProfitability().profitable(graph(*rows, outputs=(1, 2)), (1,), 2)
    assert inside.reason == f"saves the traffic of {32768 + 512} bytes and adds that of 0"
    assert outside.reason == f"saves the traffic of {32768 + 256} bytes and adds that of 0"


def test_static_accepts_empty_tensors() -> None:
    ecg = graph(leaf((0, 8)), ("sum", M2M, (0,), (0, 1), 0), ("expand", O2M, (1,), (4, 0, 8), 0))
    assert StaticProfitability().profitable(ecg, (1,), 2).profitable


def test_reads_per_element() -> None:
    info = TensorInfo((1, 8), "float32")
    expand = Node(1, "op", "expand", outputs=(TensorInfo((4, 8), "float32"),))
    dense = Node(1, "op", "dense", outputs=(TensorInfo((1, 16), "float32"),), flops=2 * 8 * 16)
    assert reads_per_element(info, expand, O2M) == 4
    assert reads_per_element(info, dense, M2M) == 16
    assert reads_per_element(info, expand, O2O) == 1
    assert reads_per_element(TensorInfo((0, 8), "float32"), expand, O2M) == 1


def test_recomputed_flops_multiplies_along_the_path() -> None:
    """exp is evaluated once per element of the second expansion, 6 times per element."""
    ecg = graph(
        leaf((4,)),
        ("exp", O2O, (0,), (4,), 4),
        ("expand", O2M, (1,), (2, 4), 0),
        ("tanh", O2O, (2,), (2, 4), 8),
        ("expand", O2M, (3,), (3, 2, 4), 0),
    )
    assert recomputed_flops(ecg, [1, 2, 3, 4]) == (6 - 1) * 4 + (3 - 1) * 8
    assert recomputed_flops(ecg, [1]) == 0


class Stopwatch:
    """Measures by a table of node sets, and remembers what it was asked."""

    def __init__(self, milliseconds: dict[tuple[int, ...], float]) -> None:
        self.milliseconds = milliseconds
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, ecg: ECG, nodes: tuple[int, ...]) -> float:
        self.asked.append(nodes)
        if nodes not in self.milliseconds:
            raise MeasureError("no compiler for this block")
        return self.milliseconds[nodes]


def conv_transpose() -> ECG:
    return graph(
        leaf((8, 8)), ("conv", M2M, (0,), (8, 8), 100), ("transpose", SHUFFLE, (1,), (8, 8), 0), outputs=(2,)
    )


@pytest.mark.parametrize(("fused", "profitable"), [(2.9, True), (3.0, True), (3.1, False)])
def test_measured_compares_fused_with_parts(tmp_path: Path, fused: float, profitable: bool) -> None:
    watch = Stopwatch({(1,): 2.0, (2,): 1.0, (1, 2): fused})
    with LatencyDatabase(tmp_path / "latency.db") as database:
        model = MeasuredProfitability(database, watch, "llvm", "cpu")
        verdict = model.profitable(conv_transpose(), (1,), 2)
        plan = plan_fusion(conv_transpose(), Limits(), model)
    assert verdict.profitable == profitable
    assert (verdict.fused_ms, verdict.parts_ms) == (fused, 3.0)
    assert len(plan.groups) == (1 if profitable else 2)
    assert sorted(watch.asked) == [(1,), (1, 2), (2,)]


def test_measured_reads_the_database_in_a_later_run(tmp_path: Path) -> None:
    path = tmp_path / "latency.db"
    with LatencyDatabase(path) as database:
        watch = Stopwatch({(1,): 2.0, (2,): 1.0, (1, 2): 9.0})
        first = MeasuredProfitability(database, watch, "llvm", "cpu").profitable(conv_transpose(), (1,), 2)
    with LatencyDatabase(path, read_only=True) as database:
        silent = Stopwatch({})
        later = MeasuredProfitability(database, silent, "llvm", "cpu").profitable(conv_transpose(), (2,), 1)
        assert later == first
        assert silent.asked == []
        other = MeasuredProfitability(database, silent, "llvm", "phone").profitable(conv_transpose(), (1,), 2)
        assert "estimated, not measured" in other.reason
        watch = Stopwatch({(1,): 2.0, (2,): 1.0, (1, 2): 2.5})
        unsaved = MeasuredProfitability(database, watch, "llvm", "phone").profitable(
            conv_transpose(), (1,), 2
        )
        assert unsaved.fused_ms == 2.5


def test_measured_falls_back_to_static_and_asks_once(tmp_path: Path) -> None:
    watch = Stopwatch({(1,): 2.0, (2,): float("nan")})
    with LatencyDatabase(tmp_path / "latency.db") as database:
        model = MeasuredProfitability(database, watch, "llvm", "cpu")
        for _ in range(2):
            verdict = model.profitable(conv_transpose(), (1,), 2)
            assert verdict.profitable
            assert verdict.fused_ms is None
            assert verdict.reason.endswith("(estimated, not measured: no compiler for this block)")
        watch.milliseconds[1, 2] = 1.0
        retried = MeasuredProfitability(database, watch, "llvm", "cpu").profitable(conv_transpose(), (1,), 2)
        assert "a kernel cannot take nan ms" in retried.reason
    assert watch.asked.count((1, 2)) == 2


def test_measured_passes_on_faults_of_the_database(tmp_path: Path) -> None:
    database = LatencyDatabase(tmp_path / "latency.db")
    database.close()
    with pytest.raises(DatabaseError):
        MeasuredProfitability(database, Stopwatch({}), "llvm", "cpu").profitable(conv_transpose(), (1,), 2)
