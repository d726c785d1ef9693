"""Groups joined past Table 3 when little passes between them."""

from __future__ import annotations

from tvm_dnnfusion.ecg import ECG, Node, TensorInfo, Value
from tvm_dnnfusion.fusion_join import join_small
from tvm_dnnfusion.fusion_legality import Limits
from tvm_dnnfusion.fusion_plan import plan_fusion
from tvm_dnnfusion.mapping_type import MappingType
from tvm_dnnfusion.plan import Plan
from tvm_dnnfusion.profitability import StaticProfitability

_MANY = MappingType.MANY_TO_MANY


def _reductions(*widths: int, extra: tuple[Value, ...] = ()) -> ECG:
    """A chain of Many-to-Many operators; ``widths`` are the floats that each returns."""
    nodes = [Node(0, "source", "x", outputs=(TensorInfo((1, 100_000), "float32"),))]
    for i, width in enumerate(widths, start=1):
        out = (TensorInfo((1, width), "float32"),)
        nodes.append(Node(i, "op", "sum", (Value(i - 1),), out, (_MANY,), _MANY, _MANY, 1))
    return ECG(tuple(nodes), (Value(len(widths)), *extra))


def _plan(ecg: ECG) -> Plan:
    return plan_fusion(ecg, Limits(), StaticProfitability(), producers_first=True)


def _groups(plan: Plan) -> list[tuple[int, ...]]:
    return [g.nodes for g in plan.groups]


def test_small_tensors_join_and_their_refusals_go() -> None:
    ecg = _reductions(10, 10, 10)
    plan = _plan(ecg)
    assert _groups(plan) == [(1,), (2,), (3,)] and len(plan.refusals) == 2
    joined = join_small(ecg, plan, Limits(), 40)
    assert _groups(joined) == [(1, 2, 3)] and not joined.refusals


def test_large_tensors_stay_between_kernels() -> None:
    ecg = _reductions(10, 1000, 10)
    joined = join_small(ecg, _plan(ecg), Limits(), 40)
    assert _groups(joined) == [(1, 2), (3,)]


def test_nothing_joins_at_zero_bytes() -> None:
    ecg = _reductions(10, 10)
    assert join_small(ecg, _plan(ecg), Limits(), 0) == _plan(ecg)


def test_limits_hold_for_joint_groups() -> None:
    ecg = _reductions(10, 10, 10)
    joined = join_small(ecg, _plan(ecg), Limits(max_operators=2), 40)
    assert _groups(joined) == [(1, 2), (3,)]


def test_no_cycle_through_a_node_between() -> None:
    source = Node(0, "source", "x", outputs=(TensorInfo((1, 100_000), "float32"),))
    small = (TensorInfo((1, 4), "float32"),)
    first = Node(1, "op", "sum", (Value(0),), small, (_MANY,), _MANY, _MANY, 1)
    between = Node(2, "opaque", "sort", (Value(1),), small)
    last = Node(3, "op", "sum", (Value(1), Value(2)), small, (_MANY, _MANY), _MANY, _MANY, 1)
    ecg = ECG((source, first, between, last), (Value(3),))
    assert _groups(join_small(ecg, _plan(ecg), Limits(), 4096)) == [(1,), (3,)]


def test_chain_of_groups_joins_in_linear_time() -> None:
    ecg = _reductions(*[10] * 3000)
    joined = join_small(ecg, _plan(ecg), Limits(max_operators=100), 40)
    assert len(joined.groups) == 30
