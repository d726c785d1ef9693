"""Networks and operators of dynamic shape, through the VM, against ONNX Runtime."""

from __future__ import annotations

import importlib.util
from collections import Counter
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

from tvm_dnnfusion.build import BuildResult, build, build_stock
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
    return run(build_stock(mod, host_target(), params), every_feed)


def run(built: BuildResult, every_feed: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    assert built.executor == "vm"
    runner, found = runner_of(built.lib, built.target), []
    for feeds in every_feed:
        runner.set_inputs(feeds)
        runner.run()
        found.append(runner.outputs())
    return found


def assert_kernels_are_planned(built: BuildResult) -> None:
    """Each group of several operators is one kernel, alone; no operator of unknown shape is in a group."""
    groups = [
        tuple(planned.graph.ecg.nodes[n].op for n in group.nodes)
        for planned in built.trace.plans
        for group in planned.plan.groups
        if len(group.nodes) > 1
    ]
    assert groups
    missing = Counter(map(frozenset_of, groups)) - Counter(map(frozenset_of, built.count.operators))
    assert not missing
    for planned in built.trace.plans:
        grouped = {n for group in planned.plan.groups for n in group.nodes}
        assert not grouped & planned.graph.why_opaque.keys()


def frozenset_of(operators: tuple[str, ...]) -> frozenset[tuple[str, int]]:
    """The operators without their order, of which a graph has several."""
    return frozenset(Counter(operators).items())


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


def test_scalar_index_into_a_dynamic_tensor() -> None:
    """Two Gathers, as loops over detections have them: the first result is as dynamic as its data."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Gather", ["r", "i"], ["row"], axis=0),
        helper.make_node("Gather", ["row", "last"], ["y"], axis=-1),
    ]
    model = make_model(
        nodes,
        [tensor("x", ["n", "m", 3, "k"]), tensor("i", [], INT64)],
        tensor("y", None),
        {"last": np.array(-1)},
    )
    x = np.random.default_rng(10).standard_normal((4, 1, 3, 6)).astype(np.float32)
    feeds = [{"x": x, "i": np.array(i)} for i in (0, 2, -1, -4)]
    for feed, (actual,) in zip(feeds, run_stock(model, feeds), strict=True):
        np.testing.assert_array_equal(actual, reference(model, feed)[0], strict=True)


def test_convolutions_of_an_unknown_batch() -> None:
    """One that Winograd would compute, one of stride 2, and a transposed one."""
    x, rng = relay.var("x", shape=(relay.Any(), 16, 12, 12)), np.random.default_rng(11)
    shapes = {"w1": (16, 16, 3, 3), "w2": (24, 16, 3, 3), "w3": (24, 4, 2, 2)}
    params = {k: rng.standard_normal(s).astype(np.float32) / 10 for k, s in shapes.items()}
    w1, w2, w3 = (relay.var(k, shape=s) for k, s in shapes.items())
    y = relay.nn.relu(relay.nn.conv2d(x, w1, padding=(1, 1), channels=16, kernel_size=(3, 3)))
    y = relay.nn.conv2d(y, w2, strides=(2, 2), padding=(1, 1), channels=24, kernel_size=(3, 3))
    y = relay.nn.conv2d_transpose(y, w3, strides=(2, 2), channels=4, kernel_size=(2, 2))
    mod = tvm.IRModule.from_expr(relay.Function([x, w1, w2, w3], y))
    feeds = [{"x": rng.standard_normal((n, 16, 12, 12)).astype(np.float32)} for n in (1, 3, 0)]
    found = run(build(mod, host_target(), params), feeds)
    expected = run(build_stock(mod, host_target(), params), feeds)
    assert [y.shape for (y,) in found] == [(1, 4, 12, 12), (3, 4, 12, 12), (0, 4, 12, 12)]
    for (actual,), (desired,) in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-5, atol=1e-5)


def test_region_head_of_as_many_boxes_as_score() -> None:
    """A detector in small: static trunk, boxes by score, regions pooled, a head on each of them."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["r1", "c2"], ["features"]),
        helper.make_node("Greater", ["scores", "half"], ["above"]),
        helper.make_node("NonZero", ["above"], ["found"]),
        helper.make_node("Squeeze", ["found", "zero"], ["kept"]),
        helper.make_node("Gather", ["boxes", "kept"], ["regions"], axis=0),
        helper.make_node("Mul", ["kept", "zero"], ["image"]),
        helper.make_node(
            "RoiAlign",
            ["features", "regions", "image"],
            ["pooled"],
            output_height=4,
            output_width=4,
            sampling_ratio=2,
            coordinate_transformation_mode="output_half_pixel",
        ),
        helper.make_node("Conv", ["pooled", "w3"], ["c3"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c3"], ["r3"]),
        helper.make_node("Flatten", ["r3"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w4"], ["y"], transB=1),
    ]
    rng = np.random.default_rng(12)
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3), "w3": (8, 8, 3, 3), "w4": (5, 128)}
    stored = {k: rng.standard_normal(s).astype(np.float32) / 4 for k, s in shapes.items()}
    stored |= {"half": np.array(0.5, np.float32), "zero": np.array([0])}
    model = make_model(
        nodes,
        [tensor("x", [1, 3, 16, 16]), tensor("boxes", [6, 4]), tensor("scores", [6])],
        tensor("y", None),
        stored,
    )
    corners = rng.uniform(0, 8, (6, 2))
    fixed = {
        "x": rng.standard_normal((1, 3, 16, 16)).astype(np.float32),
        "boxes": np.concatenate([corners, corners + rng.uniform(2, 8, (6, 2))], 1).astype(np.float32),
    }
    feeds = [
        {**fixed, "scores": np.array(s, np.float32)}
        for s in ([0.9, 0.1, 0.8, 0.7, 0.2, 0.6], [0.1, 0.1, 0.1, 0.1, 0.1, 0.9], [1, 1, 1, 1, 1, 1])
    ]
    mod, params = from_onnx(model)
    built = build(mod, host_target(), params)
    assert_kernels_are_planned(built)
    for feed, (actual,) in zip(feeds, run(built, feeds), strict=True):
        np.testing.assert_allclose(actual, reference(model, feed)[0], rtol=1e-4, atol=1e-4, strict=True)


def test_loop_around_static_operators() -> None:
    """Rows are appended to a tensor that grows, without a condition; before the loop operators fuse."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "i"], ["row"], axis=0),
            helper.make_node("Unsqueeze", ["row", "zero"], ["rows"]),
            helper.make_node("Concat", ["grown", "rows"], ["longer"], axis=0),
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Identity", ["table"], ["same"]),
        ],
        "body",
        [
            tensor("i", [], INT64),
            tensor("going", [], TensorProto.BOOL),
            tensor("grown", ["m", 6]),
            tensor("table", [5, 6]),
        ],
        [tensor("still", [], TensorProto.BOOL), tensor("longer", ["k", 6]), tensor("same", [5, 6])],
    )
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Tanh", ["square"], ["bounded"]),
        helper.make_node("Add", ["bounded", "x"], ["h"]),
        helper.make_node("Loop", ["count", "", "none", "h"], ["y", "unread"], body=body),
    ]
    model = make_model(
        nodes,
        [tensor("x", [5, 6]), tensor("count", [], INT64)],
        tensor("y", ["rows", 6]),
        {"zero": np.array([0]), "none": np.zeros((0, 6), np.float32)},
    )
    x = np.random.default_rng(13).standard_normal((5, 6)).astype(np.float32)
    feeds = [{"x": x, "count": np.array(n)} for n in (3, 5, 1)]
    mod, params = from_onnx(model)
    built = build(mod, host_target(), params)
    assert_kernels_are_planned(built)
    for feed, (actual,) in zip(feeds, run(built, feeds), strict=True):
        np.testing.assert_allclose(actual, reference(model, feed)[0], rtol=1e-5, atol=1e-5, strict=True)


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["faster_rcnn", "mask_rcnn", "mixtral_moe_tiny"])
def test_dynamic_network_matches_onnxruntime(name: str) -> None:
    model = zoo.load(name)
    feeds = zoo.example_inputs(name, model)
    mod, params = from_onnx(model)
    built = build(mod, host_target(), params)
    assert_kernels_are_planned(built)
    [outputs] = run(built, [feeds])
    error = zoo_error.box_error if name.endswith("rcnn") else zoo_error.max_error
    assert error(outputs, reference(model, feeds)) < 1e-4
