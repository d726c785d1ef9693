"""Tuning logs: told apart, refused when damaged, applied inside a block only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tvm
from tvm import auto_scheduler, autotvm

from tvm_dnnfusion.errors import OptionError
from tvm_dnnfusion.tuning_log import apply_logs, log_kind

AUTOTVM = json.dumps(
    {
        "input": ["llvm", "dense_nopack.x86", [["TENSOR", [1, 8], "float32"]], {}],
        "config": {"index": 0, "code_hash": None, "entity": []},
        "result": [[0.001], 0, 0.1, 1700000000.0],
        "version": 0.2,
        "tvm_version": "0.19.0",
    }
)
ANSOR = json.dumps(
    {
        "i": [['["key", 1, 8]', "llvm", [2, 64, 64, 0, 0, 0, 0, 0], "", 0, []], [[], []]],
        "r": [[0.001], 0, 0.1, 1700000000],
        "v": "v0.6",
    }
)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_log_kind_reads_every_record(tmp_path: Path) -> None:
    assert log_kind(write(tmp_path / "a", AUTOTVM, AUTOTVM)) == "AutoTVM"
    assert log_kind(write(tmp_path / "b", "# comment", "", ANSOR)) == "Ansor"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "holds no record"),
        ([AUTOTVM, ANSOR], "mixes"),
        ([AUTOTVM, AUTOTVM[: len(AUTOTVM) // 2]], "line 2"),
        (['{"hello": 1}'], "line 1"),
        (["[]"], "line 1"),
    ],
)
def test_log_kind_refuses_damaged_log(lines: list[str], reason: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=reason):
        log_kind(write(tmp_path / "log", *lines))


def test_log_kind_refuses_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="No such file"):
        log_kind(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match="not text"):
        log_kind(tmp_path / "binary")


def test_apply_logs_ends_with_the_block(tmp_path: Path) -> None:
    logs = [write(tmp_path / "a", AUTOTVM), write(tmp_path / "b", ANSOR)]
    outside = autotvm.task.DispatchContext.current, auto_scheduler.DispatchContext.current
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_vectorize": True}):
        with apply_logs(logs) as kinds:
            assert kinds == ["AutoTVM", "Ansor"]
            assert isinstance(autotvm.task.DispatchContext.current, autotvm.task.ApplyHistoryBest)
            assert isinstance(auto_scheduler.DispatchContext.current, auto_scheduler.ApplyHistoryBest)
            config = tvm.transform.PassContext.current().config
            assert config["relay.backend.use_auto_scheduler"] and config["tir.disable_vectorize"]
        assert "relay.backend.use_auto_scheduler" not in tvm.transform.PassContext.current().config
    assert (autotvm.task.DispatchContext.current, auto_scheduler.DispatchContext.current) == outside
