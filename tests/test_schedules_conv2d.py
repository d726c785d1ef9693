"""Schedules of blocked convolutions: right on odd shapes with every kind of tail, tiles in registers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm import relay, te
from tvm_dnnfusion.passes.dnnfusion import DNNFusion
from tvm_dnnfusion.schedules import conv2d_nchwc, depthwise_conv2d_nchwc, registry
from tvm_dnnfusion.schedules.conv_tiles import conv2d_blocks

from tvm_dnnfusion.block_body import decode_body, encode_body
from tvm_dnnfusion.block_lowering import LoweredBlock, lower_body
from tvm_dnnfusion.block_operator import block_text, is_block

TARGET = tvm.target.Target("llvm -mcpu=znver1 -num-cores=2")


@dataclass(frozen=True)
class Case:
    """A convolution; ``channels`` out, zero for a depthwise one; padding top, left, bottom, right."""

    data: tuple[int, int, int, int]
    channels: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (1, 1, 1, 1)
    dilation: tuple[int, int] = (1, 1)

    @property
    def depthwise(self) -> bool:
        return not self.channels

    @property
    def out_channels(self) -> int:
        return self.channels or self.data[1]

    @property
    def blocks(self) -> tuple[int, int]:
        return conv2d_blocks(self.data[1], self.out_channels, 8)


def blocked(x: np.ndarray, block: int) -> np.ndarray:
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))


def unblocked(x: np.ndarray) -> np.ndarray:
    n, c, h, w, block = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, c * block, h, w)


def packed_weight(w: np.ndarray, in_block: int, out_block: int) -> np.ndarray:
    o, i, r, s = w.shape
    split = w.reshape(o // out_block, out_block, i // in_block, in_block, r, s)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def reference(case: Case, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution in float64."""
    top, left, bottom, right = case.padding
    x = np.pad(x.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    (r, s), (dy, dx), (sy, sx) = case.kernel, case.dilation, case.strides
    seen = np.lib.stride_tricks.sliding_window_view(x, ((r - 1) * dy + 1, (s - 1) * dx + 1), (2, 3))
    seen = seen[:, :, ::sy, ::sx, ::dy, ::dx]
    if case.depthwise:
        return np.einsum("nchwij,cij->nchw", seen, w[:, 0])
    return np.einsum("nchwij,ocij->nohw", seen, w, optimize=True)


def conv_call(case: Case, x: relay.Expr, w: relay.Expr) -> relay.Expr:
    in_block, out_block = case.blocks
    make = relay.nn.contrib_depthwise_conv2d_nchwc if case.depthwise else relay.nn.contrib_conv2d_nchwc
    return make(
        x,
        w,
        strides=case.strides,
        padding=case.padding,
        dilation=case.dilation,
        groups=case.data[1] if case.depthwise else 1,
        channels=case.out_channels,
        kernel_size=case.kernel,
        data_layout=f"NCHW{in_block}c",
        kernel_layout=f"OIHW{1 if case.depthwise else in_block}i{out_block}o",
        out_layout=f"NCHW{out_block}c",
    )


def f32(value: float) -> relay.Constant:
    return relay.const(value, "float32")


def relu(y: np.ndarray) -> np.ndarray:
    return np.maximum(y, 0)


# Per tail: in Relay and in NumPy over the convolution, a bias (one value per channel) and a residual.
Tail = tuple[Callable[..., relay.Expr], Callable[..., object]]
TAILS: dict[str, Tail] = {
    "none": (lambda c, b, r: c, lambda c, b, r: c),
    "bias, relu": (lambda c, b, r: relay.nn.relu(c + b), lambda c, b, r: relu(c + b)),
    "relu6": (lambda c, b, r: relay.clip(c + b, 0.0, 6.0), lambda c, b, r: np.clip(c + b, 0, 6)),
    "hard-swish": (
        lambda c, b, r: (c + b) * relay.clip(c + b + f32(3.0), 0.0, 6.0) / f32(6.0),
        lambda c, b, r: (c + b) * np.clip(c + b + 3, 0, 6) / 6,
    ),
    "swish": (
        lambda c, b, r: (c + b) * relay.sigmoid(c + b),
        lambda c, b, r: (c + b) / (1 + np.exp(-(c + b))),
    ),
    "residual": (lambda c, b, r: relay.nn.relu(c + b + r), lambda c, b, r: relu(c + b + r)),
    "computed residual": (
        lambda c, b, r: c * relay.exp(b) + relay.tanh(r),
        lambda c, b, r: c * np.exp(b) + np.tanh(r),
    ),
    "two outputs": (
        lambda c, b, r: relay.Tuple([relay.nn.relu(c + b), relay.nn.relu(c + b) + r]),
        lambda c, b, r: (relu(c + b), relu(c + b) + r),
    ),
    "scale also returned": (
        lambda c, b, r: relay.Tuple([c * relay.abs(b), relay.abs(b)]),
        lambda c, b, r: (c * abs(b), abs(b)),
    ),
}
CASES = {
    "3x3": Case((1, 16, 14, 14), 32),
    "prime extents": Case((1, 16, 13, 17), 24),
    "1x1": Case((1, 32, 7, 7), 16, (1, 1), padding=(0, 0, 0, 0)),
    "1x1, stride 2": Case((1, 16, 9, 11), 16, (1, 1), (2, 2), (0, 0, 0, 0)),
    "stem": Case((1, 3, 23, 23), 16, (7, 7), (2, 2), (3, 3, 3, 3)),
    "stride 3": Case((1, 8, 16, 19), 8, (3, 3), (3, 3)),
    "dilation 2": Case((1, 8, 12, 15), 16, dilation=(2, 2), padding=(2, 2, 2, 2)),
    "asymmetric padding": Case((1, 8, 10, 9), 8, (3, 2), (2, 1), (0, 1, 2, 0)),
    "batch 2": Case((2, 8, 6, 5), 40),
    "one pixel": Case((1, 24, 1, 1), 56, (1, 1), padding=(0, 0, 0, 0)),
    "half vectors": Case((1, 12, 5, 5), 44),
    "depthwise 3x3": Case((1, 24, 14, 14), 0),
    "depthwise, stride 2": Case((2, 16, 15, 13), 0, strides=(2, 2)),
    "depthwise 5x5": Case((1, 8, 7, 11), 0, (5, 5), padding=(2, 2, 2, 2)),
    "depthwise, dilation 2": Case((1, 8, 11, 9), 0, dilation=(2, 2), padding=(2, 2, 2, 2)),
    "depthwise, asymmetric": Case((1, 8, 10, 9), 0, (3, 2), (1, 2), (0, 0, 2, 1)),
    "depthwise, no padding": Case((1, 16, 9, 8), 0, padding=(0, 0, 0, 0)),
    "depthwise, wide kernel": Case((1, 8, 3, 26), 0, (1, 11), padding=(0, 5, 0, 5)),
}


def group(
    case: Case, tail: str, prologue: Callable[[relay.Expr], relay.Expr] = lambda x: x
) -> tuple[LoweredBlock, list[tuple[int, ...]]]:
    """The lowered block and the shapes of data, weight, bias and residual, unblocked."""
    weight = (case.out_channels, 1 if case.depthwise else case.data[1], *case.kernel)
    out = reference(case, np.zeros(case.data), np.zeros(weight)).shape
    shapes = [case.data, weight, (1, out[1], 1, 1), out]
    params = [
        relay.var(f"x{i}", shape=p.shape, dtype="float32")
        for i, p in enumerate(packed(case, [np.zeros(s, "float32") for s in shapes]))
    ]
    body = TAILS[tail][0](conv_call(case, prologue(params[0]), params[1]), *params[2:])
    used = [p for p in params if p in set(relay.analysis.free_vars(body))]
    function = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(used, body)))["main"]
    inputs = [
        te.placeholder([int(d) for d in p.checked_type.shape], "float32", p.name_hint)
        for p in function.params
    ]
    with TARGET:
        return lower_body(decode_body(encode_body(function)), inputs, TARGET), shapes


def packed(case: Case, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    in_block, out_block = case.blocks
    x, w, b, r = values
    weight = packed_weight(w, 1 if case.depthwise else in_block, out_block)
    return [blocked(x, in_block), weight, blocked(b, out_block), blocked(r, out_block)]


def run(block: LoweredBlock, schedule: te.Schedule, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    kernel = tvm.build(schedule, [*block.inputs, *block.outputs], TARGET)
    outputs = [tvm.nd.empty([int(d) for d in t.shape], t.dtype) for t in block.outputs]
    given = [values[int(t.op.name[1:])] for t in block.inputs]
    kernel(*map(tvm.nd.array, given), *outputs)
    return [unblocked(o.numpy()) for o in outputs]


def check(
    case: Case,
    tail: str,
    rng: np.random.Generator,
    prologue: tuple[Callable[..., relay.Expr], Callable[..., np.ndarray]] = (lambda x: x, lambda x: x),
) -> LoweredBlock:
    block, shapes = group(case, tail, prologue[0])
    with TARGET:
        name, schedule = registry.claim(block)
    assert name == ("depthwise_conv2d_nchwc" if case.depthwise else "conv2d_nchwc")
    x, w, b, r = (rng.standard_normal(s).astype("float32") for s in shapes)
    right = TAILS[tail][1](reference(case, prologue[1](x), w), b, r)
    rights = right if isinstance(right, tuple) else (right,)
    for found, expected in zip(run(block, schedule, packed(case, [x, w, b, r])), rights, strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * scale)
    return block


@pytest.mark.parametrize("name", CASES)
def test_convolution_is_right_on_odd_shapes(name: str, rng: np.random.Generator) -> None:
    check(CASES[name], "bias, relu", rng)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("depthwise", [False, True])
def test_convolution_with_tail(tail: str, depthwise: bool, rng: np.random.Generator) -> None:
    check(Case((1, 16, 6, 9), 0 if depthwise else 24), tail, rng)


@pytest.mark.parametrize("depthwise", [False, True])
def test_convolution_of_computed_data(depthwise: bool, rng: np.random.Generator) -> None:
    prologue = (lambda x: relay.nn.relu(x + f32(1.0)), lambda x: relu(x + 1))
    check(Case((1, 8, 6, 7), 0 if depthwise else 16), "relu6", rng, prologue)


@pytest.mark.parametrize("groups", [1, 16])
def test_lone_convolution_becomes_a_block(groups: int) -> None:
    x, w = relay.var("x", shape=(1, 16, 8, 8)), relay.var("w", shape=(16, 16 // groups, 3, 3))
    conv = relay.nn.conv2d(x, w, padding=(1, 1), groups=groups)
    mod = DNNFusion(TARGET)(tvm.IRModule.from_expr(relay.Function([x, w], conv)))
    blocks: list[str] = []
    relay.analysis.post_order_visit(
        mod["main"], lambda e: blocks.append(block_text(e)) if is_block(e) else None
    )
    assert any("NCHWc" in text for text in blocks)


@pytest.mark.parametrize("depthwise", [False, True])
def test_accumulators_are_addressed_by_constants(depthwise: bool) -> None:
    """Only then does LLVM keep them in registers; the width is one that the tile does not divide."""
    block, _ = group(Case((1, 16, 19, 19), 0 if depthwise else 16), "bias, relu")
    with TARGET:
        _, schedule = registry.claim(block)
    lowered = str(tvm.lower(schedule, [*block.inputs, *block.outputs]))
    found = set(re.findall(r"(?:conv2d_NCHWc|DepthwiseConv2d)_1\[([^\]]*)\]", lowered))
    assert len(found) > 1 and all(index.isdigit() for index in found)


@pytest.mark.parametrize("case", [Case((1, 8, 6, 6), 3), Case((1, 7, 6, 6), 1)], ids=["three", "one"])
def test_conv2d_refuses_channels_that_leave_lanes_idle(case: Case) -> None:
    block, _ = group(case, "none")
    with TARGET:
        assert conv2d_nchwc.conv2d_nchwc(block) is None
        assert depthwise_conv2d_nchwc.depthwise_conv2d_nchwc(block) is None
