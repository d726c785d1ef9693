"""Yellow cells decided by measurement, remembered in a database."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tvm_dnnfusion import DNNFusion, Options
from tvm_dnnfusion.ecg_body import body_of_nodes
from tvm_dnnfusion.errors import MeasureError, OptionError
from tvm_dnnfusion.latency_db import LatencyDatabase
from tvm_dnnfusion.measure import block_milliseconds, measured_profitability
from tvm_dnnfusion.relay_to_ecg import build_ecg

TARGET = tvm.target.Target("llvm")


def _module() -> tvm.IRModule:
    """A reduction whose result is expanded: a yellow cell; a concatenation checks tuple operands."""
    x = relay.var("x", shape=(8, 64))
    total = relay.sum(relay.concatenate([x, relay.exp(x)], axis=1), axis=1, keepdims=True)
    return tvm.IRModule.from_expr(relay.Function([x], relay.broadcast_to(total, (8, 32))))


def test_measured_plan_fills_the_database_and_reads_it_back(tmp_path: Path) -> None:
    database = tmp_path / "latencies.sqlite"
    options = Options(profitability="measured", database=database)
    first = DNNFusion(TARGET, options=options)(_module())
    found = LatencyDatabase(database, read_only=True)
    assert len(found) > 0
    count = len(found)
    second = DNNFusion(TARGET, options=options)(_module())
    assert len(LatencyDatabase(database, read_only=True)) == count
    tvm.ir.assert_structural_equal(first, second)


def test_body_of_nodes_is_the_group() -> None:
    mod = relay.transform.InferType()(_module())
    ecg = build_ecg(mod["main"]).ecg
    nodes = [n.id for n in ecg.nodes if n.kind == "op"]
    text, external = body_of_nodes(ecg, nodes)
    assert len(external) == 1
    assert block_milliseconds(text, TARGET) > 0


def test_other_machines_are_refused(tmp_path: Path) -> None:
    target = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu")
    with pytest.raises(MeasureError, match="cannot be measured on this machine"):
        measured_profitability(target, tmp_path / "latencies.sqlite")


def test_measuring_needs_a_database() -> None:
    with pytest.raises(OptionError, match="database"):
        Options(profitability="measured")


def test_results_do_not_depend_on_the_model_of_profit(tmp_path: Path) -> None:
    from tvm_dnnfusion import build
    from tvm_dnnfusion.runner import runner_of

    data = np.random.default_rng(7).standard_normal((8, 64)).astype("float32")
    expected = np.broadcast_to((data + np.exp(data)).sum(1, keepdims=True), (8, 32))
    options = Options(profitability="measured", database=tmp_path / "latencies.sqlite")
    for chosen in (Options(), options):
        runner = runner_of(build(_module(), TARGET, options=chosen).lib, TARGET)
        runner.set_inputs({"x": data})
        runner.run()
        np.testing.assert_allclose(runner.outputs()[0], expected, rtol=1e-5)
