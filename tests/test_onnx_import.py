"""The ONNX importer: values against ONNX Runtime and NumPy, structure against TVM's own importer."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relay
from tvm.contrib import graph_executor
from tvm.runtime.vm import VirtualMachine

from tvm_dnnfusion.errors import ImportModelError, ShapeError
from tvm_dnnfusion.onnx_import import from_onnx

MODELS = Path(__file__).resolve().parents[1] / "benchmarks" / "models"
DYNAMIC = {"faster_rcnn", "mask_rcnn", "mixtral_moe_tiny"}
SMALL = ["squeezenet1_1", "mobilenet_v3_large", "tinybert"]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _zoo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("materialize", MODELS / "materialize.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


zoo = _zoo()
STATIC = [name for name in zoo.names() if name not in DYNAMIC]


def tensor(name: str, shape: list[int | str] | None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def make_model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in (initializers or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run_static(
    mod: tvm.IRModule, params: dict, feeds: dict[str, np.ndarray], level: int = 1
) -> list[np.ndarray]:
    with tvm.transform.PassContext(opt_level=level):
        lib = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input(**feeds)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def run_vm(mod: tvm.IRModule, params: dict, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    with tvm.transform.PassContext(opt_level=1):
        executable = relay.vm.compile(mod, "llvm", params=params)
    out = VirtualMachine(executable, tvm.cpu()).run(**feeds)
    return [out.numpy()] if isinstance(out, tvm.nd.NDArray) else [o.numpy() for o in out]


def reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def assert_close(actual: list[np.ndarray], expected: list[np.ndarray], relative: float = 1e-4) -> None:
    assert [a.shape for a in actual] == [e.shape for e in expected]
    assert [a.dtype for a in actual] == [e.dtype for e in expected]
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=relative * max(np.abs(e).max(initial=0), 1e-30))


def calls_of(mod: tvm.IRModule) -> list[relay.Call]:
    found: list[relay.Call] = []
    relay.analysis.post_order_visit(
        mod["main"], lambda e: found.append(e) if isinstance(e, relay.Call) else None
    )
    return found


def operators(mod: tvm.IRModule) -> list[str]:
    return [call.op.name for call in calls_of(mod)]


def check(model: onnx.ModelProto, feeds: dict[str, np.ndarray], **options: object) -> tvm.IRModule:
    """Import, run and compare with ONNX Runtime."""
    mod, params = from_onnx(model, **options)  # type: ignore[arg-type]
    assert_close(run_static(mod, params, feeds), reference(model, feeds))
    return mod


# ---- whole networks


@pytest.mark.parametrize("name", [SMALL[0], SMALL[2]])
def test_small_network_matches_onnxruntime(name: str) -> None:
    model = zoo.load(name)
    check(model, zoo.example_inputs(name, model))


@pytest.mark.zoo
@pytest.mark.parametrize("name", STATIC)
def test_zoo_network_matches_onnxruntime(name: str) -> None:
    model = zoo.load(name)
    mod = check(model, zoo.example_inputs(name, model))
    assert not relay.ty.is_dynamic(mod["main"].ret_type)
    assert not [op for op in operators(mod) if op.startswith("dyn.") or op == "shape_of"]


@pytest.mark.parametrize("name", ["squeezenet1_1", "dcgan"])
def test_network_equals_the_one_tvm_imports(name: str) -> None:
    model = zoo.load(name)
    mod, params = from_onnx(model)
    ours = tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(mod["main"], params))
    theirs, _ = relay.frontend.from_onnx(model)
    tvm.ir.assert_structural_equal(relay.transform.InferType()(ours), relay.transform.InferType()(theirs))


# ---- parameters, constants, spans


def _dense_model(batch: int | str | None = 2) -> onnx.ModelProto:
    """MatMul + bias -> LayerNormalization -> Softmax."""
    rng = np.random.default_rng(3)
    weights = {
        "W": rng.standard_normal((4, 3), np.float32),
        "B": rng.standard_normal(3, np.float32),
        "gamma": rng.standard_normal(3, np.float32),
        "beta": rng.standard_normal(3, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["m"], "project"),
        helper.make_node("Add", ["m", "B"], ["a"], "shift"),
        helper.make_node("LayerNormalization", ["a", "gamma", "beta"], ["n"], "norm", axis=-1),
        helper.make_node("Softmax", ["n"], ["y"], axis=-1),
    ]
    return make_model(nodes, [tensor("x", [batch, 4])], [tensor("y", [batch, 3])], weights)


def test_params_are_the_float_initializers_and_variables_follow_the_inputs() -> None:
    model = _dense_model()
    mod, params = from_onnx(model)
    assert sorted(params) == ["B", "W", "beta", "gamma"]
    assert mod["main"].params[0].name_hint == "x"
    assert {var.name_hint for var in mod["main"].params} == {"x", *params}
    np.testing.assert_array_equal(params["W"].numpy(), numpy_helper.to_array(model.graph.initializer[0]))


def test_spans_name_the_node_and_unnamed_nodes_get_a_name() -> None:
    mod, _ = from_onnx(_dense_model())
    spans = {call.op.name: call.span.source_name.name for call in calls_of(mod)}
    assert spans["nn.dense"] == "project" and spans["nn.softmax"] == "Softmax_0"
    assert {var.span.source_name.name for var in mod["main"].params} == {"x", "W", "B", "gamma", "beta"}


def test_model_in_memory_is_not_changed() -> None:
    model = _dense_model()
    before = model.SerializeToString()
    from_onnx(model)
    assert model.SerializeToString() == before


def test_tvm_importer_stays_as_it_is() -> None:
    importer = relay.frontend.onnx
    before = dict(vars(importer)), dict(vars(relay.frontend.common))
    from_onnx(_dense_model())
    assert (dict(vars(importer)), dict(vars(relay.frontend.common))) == before


def test_shape_arithmetic_on_static_shapes_leaves_no_operator() -> None:
    """reshape(x, concat(shape(x)[0:1], [-1])) with a division and a mask on the way."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["first"]),
        helper.make_node("Mul", ["first", "two"], ["double"]),
        helper.make_node("Div", ["double", "two"], ["half"]),
        helper.make_node("Concat", ["half", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    ints = {"zero": [0], "one": [1], "two": [2], "minus": [-1]}
    stored = {name: np.array(value, np.int64) for name, value in ints.items()}
    model = make_model(nodes, [tensor("x", [2, 3, 4])], [tensor("y", None)], stored)
    mod = check(model, {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)})
    assert operators(mod) == ["reshape"]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_constant_division_rounds_as_onnxruntime_does(dtype: type) -> None:
    a, b = np.array([8, -8, 7, -7], dtype), np.array([-3, 3, -2, 2], dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Div", ["a", "b"], ["q"]), helper.make_node("Add", ["x", "q"], ["y"])]
    model = make_model(nodes, [tensor("x", [4], kind)], [tensor("y", [4], kind)], {"a": a, "b": b})
    check(model, {"x": np.zeros(4, dtype)})


def test_long_chain_is_imported_without_recursion() -> None:
    count = 3000
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    mod, _ = from_onnx(make_model(nodes, [tensor("v0", [4])], [tensor(f"v{count}", [4])]))
    assert tuple(mod["main"].ret_type.shape) == (4,)


def test_threads_import_side_by_side() -> None:
    models = [_dense_model(batch) for batch in (1, 2, 3, 4)]
    done: dict[int, tvm.IRModule] = {}

    def work(index: int) -> None:
        done[index] = from_onnx(models[index])[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int(done[i]["main"].ret_type.shape[0]) for i in range(len(models))] == [1, 2, 3, 4]


# ---- shapes


def test_open_dimension_is_fixed_by_shapes() -> None:
    feeds = {"x": np.random.default_rng(5).standard_normal((3, 4), np.float32)}
    mod = check(_dense_model("batch"), feeds, shapes={"x": (3, 4)})
    assert not relay.ty.is_dynamic(mod["main"].ret_type)


def test_open_dimension_stays_open_without_shapes() -> None:
    model = _dense_model("batch")
    mod, params = from_onnx(model)
    assert isinstance(mod["main"].ret_type.shape[0], tvm.tir.Any)
    assert int(mod["main"].ret_type.shape[1]) == 3
    for batch in (1, 3):
        feeds = {"x": np.random.default_rng(batch).standard_normal((batch, 4), np.float32)}
        assert_close(run_vm(mod, params, feeds), reference(model, feeds))


@pytest.mark.parametrize("batch", ["batch", 0, None])
def test_all_spellings_of_an_open_dimension(batch: int | str | None) -> None:
    mod, _ = from_onnx(_dense_model(batch), shapes={"x": [5, 4]})
    assert tuple(mod["main"].ret_type.shape) == (5, 3)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"y": (1, 4)}, "no input 'y'; its inputs are: 'x'"),
        ({"W": (4, 3)}, "no input 'W'"),
        ({"x": (1, 2, 4)}, "rank 2, shape \\(batch, 4\\).*has rank 3"),
        ({"x": (1, 5)}, "contradicts extent 4 of axis 1"),
        ({"x": (-1, 4)}, "Axis 0.*-1"),
        ({"x": (1.5, 4)}, "Axis 0.*1.5"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        from_onnx(_dense_model("batch"), shapes=shapes)


def test_input_without_rank_needs_a_shape() -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", None)], [tensor("y", None)])
    with pytest.raises(ImportModelError, match="Input 'x' has no rank"):
        from_onnx(model)
    mod, _ = from_onnx(model, shapes={"x": (2, 3)})
    assert tuple(mod["main"].ret_type.shape) == (2, 3)


# ---- files


def test_external_data_is_read(tmp_path: Path) -> None:
    model = _dense_model()
    file = tmp_path / "model.onnx"
    onnx.save(model, file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    feeds = {"x": np.ones((2, 4), np.float32)}
    mod, params = from_onnx(file)
    assert_close(run_static(mod, params, feeds), reference(_dense_model(), feeds))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ImportModelError, match=r"External data of .*model\.onnx"):
        from_onnx(str(file))


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    whole = _dense_model().SerializeToString()
    contents = {"empty": b"", "cut": whole[: len(whole) // 2], "text": b"hello, I am not a model\n"}
    for name, content in contents.items():
        file = tmp_path / f"{name}.onnx"
        file.write_bytes(content)
        with pytest.raises(ImportModelError, match=f"{name}.onnx"):
            from_onnx(file)
    with pytest.raises(ImportModelError, match="does not exist"):
        from_onnx(tmp_path / "absent.onnx")
    with pytest.raises(ImportModelError, match="is a directory"):
        from_onnx(tmp_path)
    with pytest.raises(ImportModelError, match="not int"):
        from_onnx(3)  # type: ignore[arg-type]


# ---- nodes that cannot be converted


def test_unsupported_operator_is_named() -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], "strange", domain="my.domain")
    with pytest.raises(ImportModelError, match=r"'strange' has operator my\.domain\.Frobnicate"):
        from_onnx(make_model([node], [tensor("x", [2])], [tensor("y", [2])]))


def test_failing_conversion_is_named() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "fine"),
        helper.make_node("Add", ["r", "z"], ["y"], "mismatch"),
    ]
    inputs = [tensor("x", [2, 3]), tensor("z", [4, 5])]
    with pytest.raises(ImportModelError, match=r"'mismatch' \(Add\)") as caught:
        from_onnx(make_model(nodes, inputs, [tensor("y", None)]))
    assert "\n" not in str(caught.value)


# ---- zero-size, rank 0, quantised


def _unary_chain(ops: list[str], shape: list[int]) -> onnx.ModelProto:
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"]) for i, op in enumerate(ops)]
    return make_model(nodes, [tensor("v0", shape)], [tensor(f"v{len(ops)}", None)])


def test_rank_zero_chain() -> None:
    check(_unary_chain(["Relu", "Exp"], []), {"v0": np.array(-0.5, np.float32)})


def test_rank_zero_operands_of_reductions() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("ReduceMax", ["s"], ["y"], keepdims=0),
    ]
    check(make_model(nodes, [tensor("x", [4])], [tensor("y", [])]), {"x": np.arange(4, dtype=np.float32)})


def test_zero_size_tensors() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Add", ["r", "r"], ["a"]),
        helper.make_node("Transpose", ["a"], ["t"]),
    ]
    model = make_model(nodes, [tensor("x", [0, 10])], [tensor("t", [10, 0])])
    mod, params = from_onnx(model, shapes={"x": (0, 10)})
    (out,) = run_static(mod, params, {"x": np.zeros((0, 10), np.float32)})
    assert out.shape == (10, 0)


def test_concat_with_a_zero_size_tensor() -> None:
    nodes = [helper.make_node("Concat", ["x", "e"], ["y"], axis=0)]
    model = make_model(nodes, [tensor("x", [3, 4])], [tensor("y", None)], {"e": np.zeros((0, 4), np.float32)})
    check(model, {"x": np.arange(12, dtype=np.float32).reshape(3, 4)})


def test_sum_over_an_empty_axis_is_zero() -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    model = make_model(nodes, [tensor("x", [0, 3])], [tensor("y", [3])], {"axes": np.array([0], np.int64)})
    mod, params = from_onnx(model, shapes={"x": (0, 3)})
    (out,) = run_static(mod, params, {"x": np.zeros((0, 3), np.float32)})
    np.testing.assert_array_equal(out, np.zeros(3, np.float32))


def _quantise(source: str, target: str, scale: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [source, scale, "zero"], [target + "_q"]),
        helper.make_node("DequantizeLinear", [target + "_q", scale, "zero"], [target]),
    ]


def _run_quantised(model: onnx.ModelProto, feeds: dict[str, np.ndarray], quantum: float) -> tvm.IRModule:
    mod, params = from_onnx(model)
    bound = tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(mod["main"], params))
    for variant in (bound, relay.transform.FakeQuantizationToInteger()(relay.transform.InferType()(bound))):
        for out, expected in zip(run_static(variant, {}, feeds), reference(model, feeds), strict=True):
            np.testing.assert_allclose(out, expected, rtol=0, atol=1.01 * quantum)
    return mod


@pytest.mark.parametrize("shape", [(1,), ()])
def test_quantised_convolution_with_one_element_scales(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(11)
    stored = {
        "s": np.full(shape, 0.1, np.float32),
        "ws": np.full(shape, 0.02, np.float32),
        "zero": np.zeros(shape, np.int8),
        "w_q": rng.integers(-50, 50, (4, 3, 1, 1)).astype(np.int8),
    }
    nodes = [
        *_quantise("x", "xd", "s"),
        helper.make_node("DequantizeLinear", ["w_q", "ws", "zero"], ["w"]),
        helper.make_node("Conv", ["xd", "w"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        *_quantise("r", "y", "s"),
    ]
    model = make_model(nodes, [tensor("x", [1, 3, 5, 5])], [tensor("y", None)], stored)
    _run_quantised(model, {"x": rng.standard_normal((1, 3, 5, 5), np.float32)}, 0.1)


def test_quantised_split() -> None:
    stored = {"s": np.array([0.1], np.float32), "zero": np.zeros(1, np.int8)}
    nodes = [*_quantise("x", "xd", "s"), helper.make_node("Split", ["xd"], ["a", "b", "c"], axis=1)]
    for name in "abc":
        nodes += _quantise(name, name + "y", "s")
    outputs = [tensor(name + "y", None) for name in "abc"]
    rng = np.random.default_rng(13)
    model = make_model(nodes, [tensor("x", [2, 6])], outputs, stored, opset=13)
    _run_quantised(model, {"x": rng.standard_normal((2, 6), np.float32)}, 0.1)


def test_quantised_convolution_with_a_scale_for_each_channel() -> None:
    rng = np.random.default_rng(17)
    stored = {
        "s": np.float32(0.1),
        "zero": np.int8(0),
        "ws": rng.uniform(0.01, 0.03, 4).astype(np.float32),
        "wz": np.zeros(4, np.int8),
        "w_q": rng.integers(-50, 50, (4, 3, 1, 1)).astype(np.int8),
    }
    nodes = [
        *_quantise("x", "xd", "s"),
        helper.make_node("DequantizeLinear", ["w_q", "ws", "wz"], ["w"], axis=0),
        helper.make_node("Conv", ["xd", "w"], ["c"], kernel_shape=[1, 1]),
        *_quantise("c", "y", "s"),
    ]
    model = make_model(nodes, [tensor("x", [1, 3, 5, 5])], [tensor("y", None)], stored)
    mod = _run_quantised(model, {"x": rng.standard_normal((1, 3, 5, 5), np.float32)}, 0.1)
    assert [var.name_hint for var in mod["main"].params] == ["x"]


def test_quantisation_without_zero_point() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    model = make_model(nodes, [tensor("x", [2, 6])], [tensor("y", None)], {"s": np.array([0.1], np.float32)})
    _run_quantised(model, {"x": np.random.default_rng(19).uniform(0, 2, (2, 6)).astype(np.float32)}, 0.1)


@pytest.mark.parametrize("axes", [[-1], [-1, -2], [0, -1], [-4, 1]])
def test_unsqueeze_counts_negative_axes_from_the_output(axes: list[int]) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Unsqueeze", ["e", "axes"], ["y"])]
    model = make_model(nodes, [tensor("x", [2, 3])], [tensor("y", None)], {"axes": np.array(axes, np.int64)})
    check(model, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})


def test_split_into_one_part_of_open_extent_is_its_operand() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["n"]),
        helper.make_node("Split", ["n", "whole"], ["s"], axis=0),
        helper.make_node("Add", ["s", "s"], ["y"]),
    ]
    model = make_model(
        nodes, [tensor("x", [6])], [tensor("y", [1, "count"], INT64)], {"whole": np.array([1], np.int64)}
    )
    mod, params = from_onnx(model)
    assert "split" not in operators(mod)
    for x in ([0, 1, 0, 2, 3, 0], [0] * 6):
        feeds = {"x": np.array(x, np.float32)}
        assert_close(run_vm(mod, params, feeds), reference(model, feeds))
