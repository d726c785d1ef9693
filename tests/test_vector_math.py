"""Vector functions against double precision over the whole range of float32, NaN and infinities included."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay, te, tir

import tvm_dnnfusion as dnnfusion

TARGET = tvm.target.Target("llvm -mcpu=core-avx2")
REFERENCES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "erf": (np.vectorize(math.erf), 8),
    "tanh": (np.tanh, 8),
    "exp": (np.exp, 2),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4),
}


def every_kind_of_number() -> np.ndarray:
    """Each sign, exponent and 256 mantissas, finer where the functions bend, and every special value."""
    bits = np.arange(0, 2**32, 2**15 - 19, dtype=np.uint64).astype(np.uint32).view(np.float32)
    bends = [np.linspace(-110, 95, 40_000), np.linspace(-10, 10, 80_000), np.linspace(-1, 1, 20_000)]
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45, 88.72, 88.73, -103.97, -103.98]
    values = np.concatenate([bits, *(np.asarray(v, "float32") for v in (*bends, special))])
    return np.concatenate([values, np.zeros(-len(values) % 8, "float32")])


def evaluate(name: str, values: np.ndarray, lanes: int, target: tvm.target.Target = TARGET) -> tuple:
    x = te.placeholder(values.shape, "float32", name="x")
    operator = tvm.ir.Op.get(f"tir.dnnfusion_{name}")
    y = te.compute(x.shape, lambda i: tir.Call("float32", operator, [x[i]]), name="y")
    schedule = te.create_schedule(y.op)
    if lanes > 1:
        schedule[y].vectorize(schedule[y].split(y.op.axis[0], lanes)[1])
    kernel = tvm.build(schedule, [x, y], target)
    out = tvm.nd.array(np.zeros_like(values))
    kernel(tvm.nd.array(values), out)
    return out.numpy(), kernel


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", REFERENCES)
def test_error_over_the_whole_range(name: str, lanes: int) -> None:
    reference, limit = REFERENCES[name]
    values = every_kind_of_number()
    found, kernel = evaluate(name, values, lanes)
    with np.errstate(all="ignore"):
        right = reference(values.astype("float64"))
        rounded = right.astype("float32")
        unit = np.spacing(np.abs(rounded)).astype("float64")
        error = np.abs(found.astype("float64") - right) / unit
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(found[infinite], rounded[infinite])
    checked = np.isfinite(rounded)
    if name == "sigmoid":  # 1 / inf is 0 where the result would be subnormal
        tiny = rounded < np.finfo("float32").tiny
        assert np.all(found[tiny] <= np.finfo("float32").tiny)
        checked &= ~tiny
    assert np.nanmax(error[checked]) <= limit
    assert f"{name}f" not in kernel.get_source("asm")


@pytest.mark.parametrize("name", ["erf", "tanh"])
def test_sign_of_zero_is_kept(name: str) -> None:
    found, _ = evaluate(name, np.array([0.0, -0.0] * 4, "float32"), 8)
    np.testing.assert_array_equal(np.signbit(found), [False, True] * 4)


@pytest.mark.parametrize("name", ["erf", "tanh", "exp", "sigmoid"])
def test_blocks_call_no_libm(name: str) -> None:
    x = relay.var("x", shape=(4, 16))
    operator = getattr(relay, name)
    lib = dnnfusion.build(tvm.IRModule.from_expr(operator(relay.nn.relu(x))), TARGET).lib
    assert f"{name}f" not in lib.get_lib().get_source("asm")


def test_other_types_keep_libm() -> None:
    x = relay.var("x", shape=(4, 16), dtype="float64")
    lib = dnnfusion.build(tvm.IRModule.from_expr(relay.exp(relay.nn.relu(x))), TARGET).lib
    assert "exp" in lib.get_lib().get_source("asm")
