"""Networks and operators of dynamic shape, through the VM, against ONNX Runtime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.relay import Call

from tvm_dnnfusion.build import build, build_stock
from tvm_dnnfusion.onnx_import import from_onnx
from tvm_dnnfusion.runner import runner_of
from tvm_dnnfusion.target import host_target

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


zoo = _module(BENCHMARKS / "models" / "materialize.py")
zoo_error = _module(BENCHMARKS / "zoo_error.py")


def tensor(name: str, shape: list[int | str] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def make_model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
    initializers: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in (initializers or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, [output], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def run_stock(model: onnx.ModelProto, every_feed: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    """Outputs for each of the feeds of one build by TVM's own passes."""
    mod, params = from_onnx(model)
    built = build_stock(mod, host_target(), params)
    assert built.executor == "vm"
    runner, found = runner_of(built.lib, built.target), []
    for feeds in every_feed:
        runner.set_inputs(feeds)
        runner.run()
        found.append(runner.outputs())
    return found


def operators(mod: tvm.IRModule) -> list[str]:
    found: list[str] = []
    relay.analysis.post_order_visit(
        mod["main"], lambda e: found.append(e.op.name) if isinstance(e, Call) else None
    )
    return found


def test_expand_of_no_rows_and_of_one_row() -> None:
    """An extent of 0 against 1 is 0: an expert of a mixture to which no token goes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Expand", ["i", "s"], ["y"]),
    ]
    model = make_model(nodes, [tensor("x", ["n", 4]), tensor("i", ["k", 1], INT64)], tensor("y", None, INT64))
    feeds = [
        {"x": np.zeros((n, 4), np.float32), "i": np.arange(k, dtype=np.int64).reshape(k, 1)}
        for n, k in [(3, 3), (3, 1), (1, 3), (0, 1), (1, 0), (0, 0)]
    ]
    for feed, (actual,) in zip(feeds, run_stock(model, feeds), strict=True):
        np.testing.assert_array_equal(actual, reference(model, feed)[0], strict=True)


@pytest.mark.parametrize("axis", [0, -2])
def test_gather_of_negative_indices_along_a_dynamic_axis(axis: int) -> None:
    """Two kernels lie between the indices and their use, so that the extent crosses a kernel boundary."""
    nodes = [
        helper.make_node("NonZero", ["c"], ["found"]),
        helper.make_node("Transpose", ["found"], ["column"]),
        helper.make_node("Squeeze", ["column", "one"], ["i"]),
        helper.make_node("Sub", ["i", "shift"], ["j"]),
        helper.make_node("Gather", ["x", "j"], ["y"], axis=axis),
    ]
    model = make_model(
        nodes,
        [tensor("x", ["n", 4]), tensor("c", [5])],
        tensor("y", None),
        {"one": np.array([1]), "shift": np.array([3])},
    )
    x = np.random.default_rng(7).standard_normal((5, 4)).astype(np.float32)
    feeds = [
        {"x": x, "c": np.array(c, np.float32)} for c in ([1, 0, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0])
    ]
    for feed, (actual,) in zip(feeds, run_stock(model, feeds), strict=True):
        np.testing.assert_array_equal(actual, reference(model, feed)[0], strict=True)


def test_convolution_of_a_tensor_whose_channels_a_computed_shape_determines() -> None:
    """ConstantOfShape([n, 4, 8, 8]), n from an input: without its channels TVM has no convolution."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Gather", ["s", "one"], ["channels"]),
        helper.make_node("Concat", ["n", "channels", "plane"], ["t"], axis=0),
        helper.make_node("ConstantOfShape", ["t"], ["z"], value=helper.make_tensor("v", FLOAT, [1], [2.0])),
        helper.make_node("Conv", ["z", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    stored = {
        "zero": np.array([0]),
        "one": np.array([1]),
        "plane": np.array([8, 8]),
        "w": np.random.default_rng(8).standard_normal((2, 4, 3, 3)).astype(np.float32),
    }
    model = make_model(nodes, [tensor("x", ["n", 4])], tensor("y", None), stored)
    mod, _ = from_onnx(model)
    batch, *extents = mod["main"].ret_type.shape
    assert isinstance(batch, tvm.tir.Any) and [int(dim) for dim in extents] == [2, 8, 8]
    feed = {"x": np.zeros((3, 4), np.float32)}
    [(actual,)] = run_stock(model, [feed])
    np.testing.assert_allclose(actual, reference(model, feed)[0], rtol=1e-5, atol=1e-5)


def test_known_extents_of_a_dynamic_tensor_are_constants() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["extent"]),
        helper.make_node("Unsqueeze", ["extent", "zero"], ["y"]),
    ]
    model = make_model(
        nodes,
        [tensor("x", ["n", 4])],
        tensor("y", None, INT64),
        {"one": np.array(1), "zero": np.array([0])},
    )
    mod, _ = from_onnx(model)
    assert operators(mod) == []
    np.testing.assert_array_equal(mod["main"].body.data.numpy(), [4])


def test_bilinear_resize_of_a_dynamic_batch_builds() -> None:
    """Its weights are floats used twice."""
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")]
    model = make_model(
        nodes,
        [tensor("x", ["n", 2, 5, 5])],
        tensor("y", None),
        {"scales": np.array([1, 1, 1.7, 1.7], np.float32)},
    )
    feed = {"x": np.random.default_rng(9).standard_normal((2, 2, 5, 5)).astype(np.float32)}
    [(actual,)] = run_stock(model, [feed])
    np.testing.assert_allclose(actual, reference(model, feed)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["faster_rcnn", "mask_rcnn", "mixtral_moe_tiny"])
def test_dynamic_network_matches_onnxruntime(name: str) -> None:
    model = zoo.load(name)
    feeds = zoo.example_inputs(name, model)
    mod, params = from_onnx(model)
    built = build(mod, host_target(), params)
    runner = runner_of(built.lib, built.target)
    runner.set_inputs(feeds)
    runner.run()
    error = zoo_error.box_error if name.endswith("rcnn") else zoo_error.max_error
    assert error(runner.outputs(), reference(model, feeds)) < 1e-4
