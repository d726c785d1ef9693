"""Compiled models on disk: both executors, replacement within one process, cleaning up."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tvm_dnnfusion import artifact
from tvm_dnnfusion.errors import ImportModelError, OutputError, TargetError
from tvm_dnnfusion.target import host_target
from tvm_dnnfusion.tensor_spec import input_specs, output_specs


def scaled(factor: float) -> tvm.IRModule:
    """Two outputs, one of them in a nested tuple; the first is ``factor * x``."""
    x = relay.var("x", shape=(2, 3))
    body = relay.Tuple([x * relay.const(factor), relay.Tuple([relay.nn.relu(x)])])
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))


def write(path: Path, mod: tvm.IRModule, executor: str) -> None:
    """Compile with stock TVM and save."""
    compile_ = relay.vm.compile if executor == "vm" else relay.build
    fields = {
        "inputs": [spec.to_json() for spec in input_specs(mod)],
        "outputs": [spec.to_json() for spec in output_specs(mod, ["scaled", "positive"])],
    }
    with artifact.output_directory(path) as folder:
        artifact.save(folder, compile_(mod, host_target()), host_target(), fields, None)


def test_save_and_load_replace_a_loaded_model(tmp_path: Path, rng: np.random.Generator) -> None:
    array = rng.standard_normal((2, 3)).astype(np.float32)
    # The loader of shared libraries must not hand out the library that the folder held before.
    runners = []
    for factor, executor in ((2.0, "graph"), (3.0, "vm"), (5.0, "vm"), (7.0, "graph")):
        write(tmp_path / "net", scaled(factor), executor)
        loaded = artifact.load(tmp_path / "net")
        assert [spec.name for spec in loaded.outputs] == ["scaled", "positive"]
        runners.append((factor, loaded.runner()))
    for factor, runner in runners:
        runner.set_inputs({"x": array})
        runner.run()
        first, second = runner.outputs()
        np.testing.assert_allclose(first, factor * array, rtol=1e-6)
        np.testing.assert_array_equal(second, np.maximum(array, 0))


def test_output_directory_vanishes_after_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), artifact.output_directory(tmp_path / "net") as folder:
        (folder / "half").touch()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_output_directory_follows_links_and_umask(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    umask = os.umask(0o027)
    try:
        with artifact.output_directory(tmp_path / "link") as folder:
            (folder / "file").touch()
    finally:
        os.umask(umask)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "file").exists()
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o750


def test_output_directory_refuses_other_content(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "of somebody else"}')
    with (
        pytest.raises(OutputError, match="other content"),
        artifact.output_directory(tmp_path),
    ):
        pytest.fail("the block must not run")


def test_load_refuses_newer_format(tmp_path: Path) -> None:
    newer = artifact.MANIFEST_FORMAT.replace("version 1", "version 2")
    (tmp_path / "manifest.json").write_text(f'{{"format": "{newer}"}}')
    with pytest.raises(ImportModelError, match=r"version 2; this version reads .*version 1"):
        artifact.load(tmp_path)


def test_runner_refuses_missing_device(tmp_path: Path) -> None:
    loaded = artifact.Artifact(tmp_path, {"target": "opencl", "host": "llvm", "executor": "graph"})
    if tvm.opencl().exist:
        pytest.skip("this machine has an OpenCL device")
    with pytest.raises(TargetError, match="no opencl device"):
        loaded.runner()


def test_save_names_the_compiler_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    target = tvm.target.Target("llvm -mtriple=aarch64-linux-android")
    compiled = relay.build(scaled(2.0), target)
    with pytest.raises(OutputError, match=r"aarch64-linux-android .*TVM_NDK_CC"):
        artifact.save(tmp_path, compiled, target, {}, None)
    with pytest.raises(OutputError, match="no-such-compiler"):
        artifact.save(tmp_path, compiled, target, {}, "no-such-compiler")
