"""Stages whose extents mix integer types, as ``broadcast_to`` with an int64 shape makes them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

from tvm_dnnfusion import build
from tvm_dnnfusion.runner import runner_of

TARGET = tvm.target.Target("llvm")


def test_int64_extents_inlined_into_int32_ones() -> None:
    mask, data = relay.var("mask", shape=(1, 16), dtype="int64"), relay.var("data", shape=(1, 4, 16, 16))
    shape = [tvm.tir.IntImm("int64", d) for d in (1, 4, 16, 16)]
    hidden = relay.equal(mask, relay.const(0, "int64"))
    wide = relay.broadcast_to(relay.reshape(hidden, (1, 1, 1, 16)), shape)
    masked = relay.where(wide, relay.const(-1e4), relay.exp(data))
    result = build(tvm.IRModule.from_expr(relay.Function([mask, data], masked)), TARGET)
    assert result.count.kernels == 1
    rng = np.random.default_rng(3)
    m, d = rng.integers(0, 2, (1, 16)), rng.standard_normal((1, 4, 16, 16)).astype("float32")
    runner = runner_of(result.lib, TARGET)
    runner.set_inputs({"mask": m, "data": d})
    runner.run()
    expected = np.where(np.broadcast_to(m.reshape(1, 1, 1, 16) == 0, d.shape), np.float32(-1e4), np.exp(d))
    np.testing.assert_allclose(runner.outputs()[0], expected, rtol=1e-5)
