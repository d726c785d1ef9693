"""Target strings: what is accepted, and refusals before LLVM sees them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.target import codegen

from tvm_dnnfusion.errors import TargetError
from tvm_dnnfusion.target import accepted_kinds, host_target, parse_target
from tvm_dnnfusion.threads import cpus_by_core


def test_host_target_names_this_cpu() -> None:
    target = parse_target(None)
    assert str(target) == str(host_target())
    assert target.attrs["mcpu"] == codegen.llvm_get_system_cpu()
    assert int(target.attrs["num-cores"]) == len(cpus_by_core())


def test_host_target_compiles_and_runs(rng: np.random.Generator) -> None:
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(4, 33))))
    array = rng.standard_normal((4, 33)).astype(np.float32)
    output = relay.create_executor("graph", mod, tvm.cpu(), host_target()).evaluate()(array)
    np.testing.assert_array_equal(output.numpy(), np.maximum(array, 0))


@pytest.mark.parametrize(
    "text",
    [
        "llvm",
        "llvm -mcpu=core-avx2",
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76",
        "llvm -mtriple=arm64-apple-darwin",
        "llvm -mtriple=armv7a-linux-gnueabihf",
        "llvm -mtriple=i686-linux-gnu",
        "raspberry-pi/4b-aarch64",
        '{"kind": "llvm", "mcpu": "core-avx2"}',
    ],
)
def test_parse_target_accepts_cpu(text: str) -> None:
    assert str(parse_target(text)) == str(tvm.target.Target(text))


def test_parse_target_gives_devices_a_host() -> None:
    assert str(parse_target("opencl -device=adreno").host) == str(host_target())
    own = parse_target("opencl -host='llvm -mtriple=aarch64-linux-android'")
    assert own.host.attrs["mtriple"] == "aarch64-linux-android"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty", "llvm"]),
        ("abacus", ["abacus", "llvm", "opencl"]),
        ("llvm -speed=high", ["speed"]),
        ("llvm -num-cores=many", ["many"]),
        ("{}", ["kind"]),
        ("llvm -mcpu=abacus", ["abacus", "core-avx2"]),
        ("llvm -mtriple=abacus-linux-gnu", ["abacus", "aarch64"]),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=core-avx2", ["core-avx2", "cortex-a76"]),
        ("opencl -host='llvm -mtriple=abacus'", ["abacus", "aarch64"]),
    ],
)
def test_parse_target_refuses_unknown(text: str, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TargetError) as refusal:
        parse_target(text)
    for word in words:
        assert word in str(refusal.value)
    assert capfd.readouterr().err == ""


def test_parse_target_refuses_kind_without_code_generator() -> None:
    missing = sorted(set(tvm.target.Target.list_kinds()) - set(accepted_kinds()))
    assert missing, "this build generates code for every kind"
    with pytest.raises(TargetError, match=f"no code for kind '{missing[0]}'"):
        parse_target(missing[0])
