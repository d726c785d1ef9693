"""Operations per call: hand-counted cases, equal counts for equal work, and totals of whole networks."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tvm_dnnfusion.algebraic_properties import properties
from tvm_dnnfusion.ecg import TensorInfo
from tvm_dnnfusion.mapping import Operand, declared
from tvm_dnnfusion.mapping_probe import ProbeCall, make_call
from tvm_dnnfusion.onnx_import import from_onnx
from tvm_dnnfusion.operator_cost import flops, is_costed
from tvm_dnnfusion.relay_to_ecg import build_ecg

MODELS = Path(__file__).parents[1] / "benchmarks" / "models"
GROUPED = [declaration for declaration in declared() if declaration.reason is None]


def cost(op: str, *shapes: Any, **attrs: Any) -> int:
    """Operations of a call that Relay made and typed."""
    return cost_of(op, make_call(op, (*shapes, attrs)))


def cost_of(op: str, call: ProbeCall) -> int:
    return flops(op, call.attrs, call.in_types, call.out_types)


def emptied(infos: tuple[TensorInfo, ...]) -> tuple[TensorInfo, ...]:
    return tuple(replace(info, shape=(0,) * len(info.shape)) for info in infos)


def test_conv2d_counts_two_per_multiply_add() -> None:
    """The first layer of ResNet-50: 118,013,952 multiply-adds."""
    macs = 64 * 112 * 112 * 3 * 7 * 7
    call = {"strides": (2, 2), "padding": (3, 3)}
    assert cost("nn.conv2d", (1, 3, 224, 224), (64, 3, 7, 7), **call) == 2 * macs
    window = {"kernel_size": (7, 7), "channels": 64}
    assert cost("nn.conv2d", (1, 3, 224, 224), (64, 3, 7, 7), **window, **call) == 2 * macs


def test_conv2d_layouts_cost_the_same() -> None:
    plain = cost("nn.conv2d", (1, 8, 6, 6), (16, 8, 3, 3))
    assert plain == 2 * 16 * 4 * 4 * 8 * 9
    assert cost("nn.conv2d", (1, 6, 6, 8), (3, 3, 8, 16), data_layout="NHWC", kernel_layout="HWIO") == plain
    packed = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i8o", "out_layout": "NCHW8c"}
    window = {"kernel_size": (3, 3), "channels": 16}
    assert cost("nn.contrib_conv2d_NCHWc", (1, 2, 6, 6, 4), (2, 2, 3, 3, 4, 8), **packed, **window) == plain


def test_grouped_convolutions_read_their_group_only() -> None:
    whole = cost("nn.conv2d", (1, 8, 6, 6), (8, 8, 3, 3), kernel_size=(3, 3), channels=8)
    depthwise = {"kernel_size": (3, 3), "channels": 8, "groups": 8}
    assert cost("nn.conv2d", (1, 8, 6, 6), (8, 2, 3, 3), **depthwise | {"groups": 4}) * 4 == whole
    assert cost("nn.conv2d", (1, 8, 6, 6), (8, 1, 3, 3), **depthwise) * 8 == whole
    hwoi = {"data_layout": "NHWC", "kernel_layout": "HWOI"}
    assert cost("nn.conv2d", (1, 6, 6, 8), (3, 3, 8, 1), **depthwise, **hwoi) * 8 == whole
    packed = {"data_layout": "NCHW4c", "kernel_layout": "OIHW1i4o", "out_layout": "NCHW4c"}
    shapes = (1, 2, 6, 6, 4), (2, 1, 3, 3, 1, 4)
    assert cost("nn.contrib_depthwise_conv2d_NCHWc", *shapes, **depthwise, **packed) * 8 == whole


def test_depthwise_multiplier_is_counted_once() -> None:
    """Each of 16 output channels reads one input channel."""
    attrs = {"kernel_size": (3, 3), "channels": 16, "groups": 8}
    hwoi = {"data_layout": "NHWC", "kernel_layout": "HWOI"}
    assert cost("nn.conv2d", (1, 6, 6, 8), (3, 3, 8, 2), **attrs, **hwoi) == 2 * 16 * 4 * 4 * 9


def test_transposed_convolution_costs_what_its_gradient_does() -> None:
    """Transposing swaps input and output, not the number of products."""
    forward = cost("nn.conv2d", (1, 4, 8, 8), (6, 4, 4, 4), strides=(2, 2), padding=(1, 1))
    back = {"kernel_size": (4, 4), "channels": 4, "strides": (2, 2), "padding": (1, 1)}
    assert cost("nn.conv2d_transpose", (1, 6, 4, 4), (6, 4, 4, 4), **back) == forward
    grouped = cost("nn.conv2d_transpose", (1, 6, 4, 4), (6, 2, 4, 4), **back | {"groups": 2})
    assert grouped * 2 == forward


def test_matrix_products_cost_the_same() -> None:
    product = 2 * 5 * 8 * 3
    assert cost("nn.dense", (5, 3), (8, 3)) == product
    assert cost("nn.matmul", (5, 3), (3, 8)) == product
    assert cost("nn.matmul", (3, 5), (8, 3), transpose_a=True, transpose_b=True) == product
    assert cost("nn.contrib_dense_pack", (5, 3), (2, 3, 4), weight_layout="NC4n", units=8) == product
    assert cost("nn.batch_matmul", (7, 5, 3), (7, 8, 3)) == 7 * product
    assert cost("nn.batch_matmul", (7, 3, 5), (7, 3, 8), transpose_a=True, transpose_b=False) == 7 * product
    assert cost("einsum", [(5, 3), (3, 8)], equation="ij,jk->ik") == product
    assert cost("einsum", [(7, 5, 3), (7, 3, 8)], equation="bij,bjk->bik") == 7 * product


def test_einsum_ellipsis_counts_the_axes_it_stands_for() -> None:
    infos = [TensorInfo((7, 5, 3), "float32"), TensorInfo((3, 8), "float32")]
    out = [TensorInfo((7, 5, 8), "float32")]
    attrs = SimpleNamespace(equation="...ij,jk->...ik")
    assert flops("einsum", attrs, infos, out) == 2 * 7 * 5 * 3 * 8


def test_memory_bound_operators() -> None:
    assert cost("add", (4, 6), (6,)) == 24
    assert cost("sum", (4, 6), axis=1) == 24
    assert cost("nn.softmax", (4, 6)) == 5 * 24
    assert cost("nn.max_pool2d", (1, 2, 5, 5), pool_size=(3, 3)) == 2 * 9 * 9
    assert cost("nn.global_avg_pool2d", (1, 2, 5, 5)) == 50
    assert cost("image.resize2d", (1, 1, 2, 3), size=(4, 5), method="linear") == 20 * 2 * 4


def test_moving_data_is_free() -> None:
    assert cost("image.resize2d", (1, 1, 2, 3), size=(4, 5), method="nearest_neighbor") == 0
    assert cost("transpose", (4, 6)) == 0
    assert cost("take", (4, 6), Operand((2,), "int32"), axis=0) == 0
    assert cost("reshape", (4, 6), newshape=(24,)) == 0


def test_cost_is_known_of_exactly_the_grouped_operators() -> None:
    assert {d.op for d in declared() if is_costed(d.op)} == {d.op for d in GROUPED}
    assert flops("somebody.else", None, [], []) == 0


@pytest.mark.parametrize("declaration", [d for d in GROUPED if d.probes], ids=lambda d: d.op)
def test_zero_size_tensors_cost_nothing(declaration: Any) -> None:
    call = make_call(declaration.op, declaration.probes[0])
    ins, outs = emptied(call.in_types), emptied(call.out_types)
    empty = replace(call, in_types=ins, out_types=outs)
    scalars_only = all(not info.shape for info in (*ins, *outs))
    assert cost_of(declaration.op, call) >= 0
    assert cost_of(declaration.op, empty) == 0 or scalars_only


def test_properties_of_the_paper() -> None:
    assert properties("add") == properties("multiply") == {"associative", "commutative", "distributive"}
    assert properties("nn.conv2d") == properties("nn.dense") == {"distributive"}
    assert properties("sum") == {"commutative", "distributive"}
    assert properties("nn.softmax") == properties("reshape") == properties("somebody.else") == frozenset()


def test_associative_operators_are(rng: np.random.Generator) -> None:
    """On small integers (bits for the logical ones), where arithmetic is exact."""
    ops = [d.op for d in GROUPED if "associative" in properties(d.op)]
    outputs = []
    for op in ops:
        dtype, high = ("bool", 2) if op.startswith("logical") else ("int32", 8)
        a, b, c = (relay.const(rng.integers(0, high, 16).astype(dtype)) for _ in range(3))
        combine = getattr(relay, op)
        outputs += [combine(combine(a, b), c), combine(a, combine(b, c)), combine(combine(b, a), c)]
    module = tvm.IRModule.from_expr(relay.Function([], relay.Tuple(outputs)))
    values = [value.numpy() for value in relay.create_executor("vm", module).evaluate()()]
    for op, left, right, swapped in zip(ops, values[::3], values[1::3], values[2::3], strict=True):
        np.testing.assert_array_equal(left, right, err_msg=op)
        np.testing.assert_array_equal(left, swapped, err_msg=op)


def load_zoo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("materialize", MODELS / "materialize.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reported_gflop(name: str) -> float:
    """The model's GFLOP (matrix products and convolutions) in the zoo's README."""
    rows = [
        line.split("|") for line in (MODELS / "README.md").read_text().splitlines() if line.startswith("|")
    ]
    column = next(row.index(" GFLOP ") for row in rows if " GFLOP " in row)
    return next(float(row[column]) for row in rows if row[1].strip() == name)


@pytest.mark.parametrize("name", ["dcgan", "squeezenet1_1"])
def test_network_total_agrees_with_pytorch(name: str) -> None:
    check_network(name)


@pytest.mark.zoo
@pytest.mark.parametrize(
    "name", ["efficientnet_b0", "vgg16", "unet", "bert_base", "swin_t", "s3d", "yolov8n"]
)
def test_larger_network_total_agrees_with_pytorch(name: str) -> None:
    check_network(name)


def check_network(name: str) -> None:
    """Products and convolutions add up to PyTorch's count, as far as the README's two decimals tell."""
    module, _ = from_onnx(load_zoo().load(name))
    graph = build_ecg(relay.transform.InferType()(module)["main"]).ecg
    products = ("nn.conv", "nn.dense", "nn.batch_matmul", "nn.matmul")
    total = sum(node.flops for node in graph.nodes if node.op.startswith(products)) / 1e9
    assert abs(total - reported_gflop(name)) < 0.0051 + 0.001 * total
