"""Dense layers with an odd number of outputs: structure, numbers against NumPy, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm_dnnfusion.passes.canonicalize import operator_names
from tvm_dnnfusion.passes.pad_columns import PadColumns, padded_columns

import tvm_dnnfusion as dnnfusion

TARGET = tvm.target.Target("llvm -mcpu=core-avx2")


@pytest.mark.parametrize(
    ("columns", "padded"),
    [(50257, 50280), (312, 312), (257, 264), (127, 128), (97, 97), (8, 8), (10, 10), (1, 1)],
)
def test_columns_are_padded_where_that_adds_little(columns: int, padded: int) -> None:
    assert padded_columns(columns, 8) == padded


def _dense(columns: int, constant: bool) -> tuple[tvm.IRModule, np.ndarray]:
    weights = np.random.default_rng(5).standard_normal((columns, 19)).astype("float32")
    x, w = relay.var("x", shape=(7, 19)), relay.var("w", shape=weights.shape)
    body = relay.nn.dense(x, relay.const(weights) if constant else w)
    body = relay.nn.relu(relay.add(body, relay.const(np.ones(columns, "float32"))))
    return tvm.IRModule.from_expr(relay.Function([x] if constant else [x, w], body)), weights


def test_padded_layer_computes_the_same(seed: int) -> None:
    mod, weights = _dense(257, constant=True)
    assert operator_names(PadColumns(TARGET)(mod)) == {"nn.dense", "strided_slice", "add", "nn.relu"}
    x = np.random.default_rng(seed).standard_normal((7, 19)).astype("float32")
    built = dnnfusion.build(mod, TARGET)
    assert built.count.kernels == 1
    runner = tvm.contrib.graph_executor.GraphModule(built.lib["default"](tvm.cpu()))
    runner.run(x=x)
    expected = np.maximum(x.astype("float64") @ weights.T + 1, 0)
    np.testing.assert_allclose(runner.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("columns", "constant"), [(256, True), (97, True), (257, False)])
def test_other_layers_are_left(columns: int, constant: bool) -> None:
    mod = relay.transform.InferType()(_dense(columns, constant)[0])
    assert tvm.ir.structural_equal(PadColumns(TARGET)(mod), mod)
