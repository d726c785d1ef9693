"""Benchmarks: who takes turns, what is counted, how outputs are compared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import tvm
from tvm import relay

from tvm_dnnfusion import bench
from tvm_dnnfusion.bench import bench_model
from tvm_dnnfusion.bench_peers import OURS, PEERS, Peer, Workload
from tvm_dnnfusion.errors import OptionError
from tvm_dnnfusion.target import host_target


class CountingRunner:
    """Notes each run; answers with a constant."""

    def __init__(self, name: str, log: list[str], output: np.ndarray) -> None:
        self.name, self.log, self.output = name, log, output

    def set_inputs(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.log.append(f"inputs of {self.name}")

    def run(self) -> None:
        self.log.append(self.name)

    def outputs(self) -> list[np.ndarray]:
        return [self.output]


def workload() -> Workload:
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(2, 3))))
    inputs = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    return Workload("relu", mod, {}, inputs, host_target(), threads=2)


def test_bench_model_interleaves_and_rotates(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(bench, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(bench, "_runs_per_turn", lambda runner: 2)
    monkeypatch.setattr(
        bench, "prepare", lambda name, _: CountingRunner(name, log, np.zeros((2, 3), np.float32))
    )
    result = bench_model(workload(), against=["stock"], rounds=2)
    # Two counted runs after one that is not; the second round starts with the other engine.
    assert log == [OURS] * 3 + ["stock"] * 6 + [OURS] * 3
    assert {name: len(runs) for name, runs in result.milliseconds.items()} == {OURS: 4, "stock": 4}


def test_bench_model_measures_difference_to_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = np.array([[0, 0, 0], [0.2, 0.6, 1.5]], np.float32)
    monkeypatch.setitem(PEERS, "wrong", Peer(lambda _: CountingRunner("wrong", [], wrong)))
    result = bench_model(workload(), against=["wrong", "stock"], rounds=1)
    assert result.difference["wrong"] == pytest.approx(0.5 / 2.5, rel=1e-5)
    assert result.difference["stock"] == 0
    fields = result.to_json()
    assert fields["wrong_over_ours"] == result.median("wrong") / result.median(OURS)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([1.0, 2.0], [1.0, np.nan], np.nan),
        ([1.0], [1.0, 1.0], np.inf),
        ([], [], 0.0),
        ([True], [False], 1.0),
    ],
)
def test_difference_of_special_values(ours: list[float], theirs: list[float], expected: float) -> None:
    found = bench._difference([np.array(ours)], [np.array(theirs)])
    np.testing.assert_equal(found, expected)


def test_bench_model_refuses_no_rounds() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        bench_model(workload(), rounds=0)
