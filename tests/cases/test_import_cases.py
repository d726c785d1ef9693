"""Cases about importing and shapes: zero extents, dynamic batches, quantised graphs, executors and levels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relay

import tvm_dnnfusion as D
from tvm_dnnfusion.runner import runner_of

from .oracles import F32, assert_bit_equal, assert_close, check, check_dynamic, module, random, run_fused, var

# I01, apache/tvm#19922, #20278, #19676: zero extents divided by, reductions of scalars.

X, SCALAR, FOUR = var("x", 0, 10), var("x"), var("x", 4)
EMPTY, ONES = np.zeros((0, 10), F32), np.ones((3, 4), F32)
CONCAT = relay.concatenate([var("a", 0, 4), var("b", 3, 4)], axis=0)
PARTS = {"a": np.zeros((0, 4), F32), "b": ONES}


@pytest.mark.parametrize(
    ("output", "feeds", "expected"),
    [
        pytest.param(relay.nn.relu(X), {"x": EMPTY}, EMPTY, id="relu"),
        pytest.param(relay.nn.relu(X + X), {"x": EMPTY}, EMPTY, id="add-relu"),
        pytest.param(
            relay.reshape(relay.exp(X), (10, 0), allowzero=True), {"x": EMPTY}, EMPTY.T, id="reshape"
        ),
        pytest.param(relay.nn.relu(CONCAT), PARTS, ONES, id="concatenate-relu"),
        pytest.param(relay.exp(relay.sum(X, axis=0)), {"x": EMPTY}, np.ones(10, F32), id="sum-of-nothing"),
        pytest.param(
            relay.exp(relay.nn.relu(SCALAR) + SCALAR), {"x": F32(-1)}, np.exp(F32(-1)), id="scalars"
        ),
        pytest.param(relay.max(relay.sum(FOUR)), {"x": np.arange(4, dtype=F32)}, F32(6), id="max-of-scalar"),
        pytest.param(
            relay.min(relay.less(SCALAR, relay.const(10.0))), {"x": F32(3)}, np.bool_(True), id="min-less"
        ),
    ],
)
def test_i01_zero_extents_and_scalars(
    output: relay.Expr, feeds: dict[str, np.ndarray], expected: np.ndarray
) -> None:
    check(module(output), {k: np.asarray(v) for k, v in feeds.items()}, [np.asarray(expected)], vm=True)


# I03, apache/tvm PR#15345, #11780: a dimension that is not known.


def dynamic_onnx() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    weights = {
        "W": rng.normal(size=(4, 3)).astype(F32),
        "B": np.array([1, 2, 3], F32),
        "gamma": np.array([1, 1, 2], F32),
        "beta": np.array([0, 1, 0], F32),
    }
    nodes = [
        helper.make_node("MatMul", ["X", "W"], ["m"]),
        helper.make_node("Add", ["m", "B"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "gamma", "beta"], ["l"], axis=-1),
        helper.make_node("Softmax", ["l"], ["Y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), weights


def test_i03_dynamic_batch_from_onnx(rng: np.random.Generator) -> None:
    model, w = dynamic_onnx()
    mod, params = D.from_onnx(model)
    mod = relay.transform.InferType()(mod)
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    mod = relay.transform.InferType()(mod)

    def expected(x: np.ndarray) -> np.ndarray:
        a = x @ w["W"] + w["B"]
        normal = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)
        e = np.exp(normal * w["gamma"] + w["beta"])
        return (e / e.sum(-1, keepdims=True)).astype(F32)

    x = random(rng, 3, 4)
    check_dynamic(mod, {"X": x}, [expected(x)], 1e-4)
    one, _ = run_fused(mod, {"X": x[:1]})
    assert_close(one, [expected(x[:1])], 1e-4)


def test_i03_dynamic_broadcast_beside_static_operators_that_fuse(rng: np.random.Generator) -> None:
    s = var("s", 1, 128, 8)
    d = relay.var("d", shape=(relay.Any(), relay.Any(), 8))
    mod = module(relay.add(relay.nn.relu(relay.exp(s)), d), [s, d])
    feeds = {"s": rng.normal(size=(1, 128, 8)).astype(F32), "d": rng.normal(size=(2, 1, 8)).astype(F32)}
    check_dynamic(mod, feeds, [np.exp(feeds["s"]) + feeds["d"]])
    fusion = D.DNNFusion("llvm")
    fusion(mod)
    assert max(len(group.nodes) for group in fusion.trace.plans[0].plan.groups) == 2


# I05, apache/tvm#13545, #12707, #10506: quantised graphs.

SCALE_IN, SCALE_W, SCALE_OUT = 0.1, 0.02, 0.2


def qdq_onnx(weight: np.ndarray, scale_shape: tuple[int, ...], last: str = "yq") -> onnx.ModelProto:
    def scale(v: float) -> np.ndarray:
        return np.full(scale_shape, v, F32)

    zero = np.zeros(scale_shape, np.int8)
    stored = {"s": scale(SCALE_IN), "sw": scale(SCALE_W), "so": scale(SCALE_OUT), "z": zero, "w": weight}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "z"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "so", "z"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "so", "z"], ["y"]),
    ]
    kind = TensorProto.INT8 if last == "yq" else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])],
        [helper.make_tensor_value_info(last, kind, [1, 4, 6, 6])],
        [numpy_helper.from_array(v, k) for k, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def to_integers(mod: tvm.IRModule) -> tvm.IRModule:
    mod = relay.transform.InferType()(mod)
    return relay.transform.InferType()(relay.transform.FakeQuantizationToInteger()(mod))


def quantised(x: np.ndarray, scale: float) -> np.ndarray:
    return np.clip(np.rint(x / F32(scale)), -128, 127).astype(np.int8)


@pytest.mark.parametrize("scale_shape", [(), (1,)], ids=["scalar", "one-element"])
def test_i05_quantised_convolution(scale_shape: tuple[int, ...], rng: np.random.Generator) -> None:
    weight = rng.integers(-60, 60, (4, 4, 1, 1)).astype(np.int8)
    mod, params = D.from_onnx(qdq_onnx(weight, scale_shape))
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    mod = to_integers(mod)
    x = rng.normal(size=(1, 4, 6, 6)).astype(F32)
    w = weight[:, :, 0, 0].astype(F32) * F32(SCALE_W)
    exact = np.maximum(np.einsum("oi,nihw->nohw", w, quantised(x, SCALE_IN) * F32(SCALE_IN)), 0)
    (found,), built = run_fused(mod, {"x": x})
    assert np.abs(found.astype(int) - quantised(exact, SCALE_OUT)).max() <= 1
    assert built.count.kernels == 1
    unfused = D.build_stock(mod, built.target)
    assert unfused.count.kernels > 1
    runner = runner_of(unfused.lib, unfused.target)
    runner.set_inputs({"x": x})
    runner.run()
    assert_bit_equal([found], runner.outputs())


def test_i05_quantised_convolution_back_in_floats(rng: np.random.Generator) -> None:
    weight = rng.integers(-60, 60, (4, 4, 1, 1)).astype(np.int8)
    mod, params = D.from_onnx(qdq_onnx(weight, (1,), last="y"))
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    x = rng.normal(size=(1, 4, 6, 6)).astype(F32)
    w = weight[:, :, 0, 0].astype(F32) * F32(SCALE_W)
    exact = np.maximum(np.einsum("oi,nihw->nohw", w, quantised(x, SCALE_IN) * F32(SCALE_IN)), 0)
    for module_ in (mod, to_integers(mod)):
        (found,), _ = run_fused(module_, {"x": x})
        assert found.dtype == F32
        assert np.abs(found - quantised(exact, SCALE_OUT) * F32(SCALE_OUT)).max() <= SCALE_OUT * 1.001


def test_i05_quantised_split(rng: np.random.Generator) -> None:
    x = var("x", 1, 6, 4)
    zero, scale = relay.const(0, "int32"), relay.const(SCALE_IN)
    inner = relay.qnn.op.dequantize(relay.qnn.op.quantize(x, scale, zero, out_dtype="int8"), scale, zero)
    parts = relay.split(inner, 3, axis=1)
    outs = [relay.qnn.op.quantize(relay.nn.relu(parts[i]), scale, zero, out_dtype="int8") for i in range(3)]
    data = rng.normal(size=(1, 6, 4)).astype(F32)
    expected = np.split(np.maximum(quantised(data, SCALE_IN), 0), 3, axis=1)
    check(to_integers(module(outs)), {"x": data}, expected, vm=True)


@pytest.mark.parametrize("tail", [lambda y: relay.clip(y, -20, 90), lambda y: relay.cast(y, "int32")])
def test_i05_requantize_is_not_reassociated(
    tail: Callable[[relay.Expr], relay.Expr], rng: np.random.Generator
) -> None:
    x = var("x", 4, 64, dtype="int32")
    scaled = relay.qnn.op.requantize(
        x, relay.const(0.0037), relay.const(0), relay.const(0.11), relay.const(3), axis=1, out_dtype="int8"
    )
    mod = module(tail(scaled))
    data = rng.integers(-3000, 3000, (4, 64)).astype(np.int32)
    exact = np.clip(np.rint(data * (0.0037 / 0.11)) + 3, -128, 127)
    expected = np.clip(exact, -20, 90) if tail(scaled).op.name == "clip" else exact
    (found,), built = run_fused(mod, {"x": data})
    assert np.abs(found - expected).max() <= 1
    assert built.count.kernels == 1
    check(mod, {"x": data}, [found])


# I07, apache/tvm#10347: every executor at every level; at 3 and 4 stock TVM 0.19 fails without kernel sizes.


@pytest.mark.parametrize("executor", ["graph", "vm", "aot"])
def test_i07_executors_and_levels_agree(executor: str, rng: np.random.Generator) -> None:
    def constant(*shape: int) -> relay.Constant:
        return relay.const(rng.normal(size=shape).astype(F32))

    x = var("x", 1, 3, 4, 4)
    conv = relay.nn.conv2d(x, constant(8, 3, 3, 3), padding=(1, 1))
    normal = relay.nn.batch_norm(conv, constant(8), constant(8), constant(8), relay.const(np.ones(8, F32)))[0]
    mod = module(relay.nn.dense(relay.nn.batch_flatten(relay.nn.relu(normal)), constant(10, 128)))
    data = rng.normal(size=(1, 3, 4, 4)).astype(F32)
    with tvm.transform.PassContext(opt_level=1):
        reference = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(data).numpy()
    fused = D.DNNFusion("llvm")(mod)
    for level in range(5):
        with tvm.transform.PassContext(opt_level=level):
            compiled = relay.create_executor(executor, fused, tvm.cpu(), "llvm")
            if (executor, level) == ("vm", 0):  # TVM's own limit, with a message that says what to do
                with pytest.raises(tvm.TVMError, match="set opt_level >= 1"):
                    compiled.evaluate()(data)
                continue
            assert_close([compiled.evaluate()(data).numpy()], [reference], 1e-4, 1e-4)
