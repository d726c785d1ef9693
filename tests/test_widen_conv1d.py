"""One-dimensional convolutions as two-dimensional ones: structure, numbers against NumPy, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm_dnnfusion.passes.canonicalize import operator_names
from tvm_dnnfusion.passes.widen_conv1d import WidenConv1d


def _conv1d(data: tuple[int, ...], kernel: tuple[int, ...], **attributes: object) -> tvm.IRModule:
    x, w = relay.var("x", shape=data), relay.var("w", shape=kernel)
    attributes.setdefault("kernel_size", kernel[2])
    attributes.setdefault("channels", kernel[0])
    return tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.conv1d(x, w, **attributes)))


def _reference(
    x: np.ndarray, w: np.ndarray, stride: int, padding: tuple[int, int], dilation: int, groups: int
) -> np.ndarray:
    x = np.pad(x.astype("float64"), ((0, 0), (0, 0), padding))
    out_channels, in_group, taps = w.shape
    width = (x.shape[2] - dilation * (taps - 1) - 1) // stride + 1
    out = np.zeros((x.shape[0], out_channels, width))
    for o in range(out_channels):
        first = o // (out_channels // groups) * in_group
        for t in range(taps):
            part = x[:, first : first + in_group, t * dilation :][:, :, : (width - 1) * stride + 1 : stride]
            out[:, o] += np.einsum("ncw,c->nw", part, w[o, :, t].astype("float64"))
    return out


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, (0, 0), 1, 1), (2, (1, 1), 1, 1), (1, (2, 0), 2, 1), (3, (1, 2), 1, 2), (1, (1, 1), 1, 4)],
)
def test_widened_convolution_computes_the_same(
    stride: int, padding: tuple[int, int], dilation: int, groups: int
) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((2, 4, 13)).astype("float32")
    w = rng.standard_normal((8, 4 // groups, 3)).astype("float32")
    mod = _conv1d(x.shape, w.shape, strides=stride, padding=list(padding), dilation=dilation, groups=groups)
    widened = WidenConv1d()(mod)
    assert operator_names(widened) == {"reshape", "nn.conv2d"}
    found = relay.create_executor("graph", mod=widened, target="llvm").evaluate()(x, w).numpy()
    expected = _reference(x, w, stride, padding, dilation, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_widened_convolution_keeps_a_single_padding() -> None:
    widened = WidenConv1d()(_conv1d((1, 2, 9), (2, 2, 3), padding=1))
    [call] = [c for c in _calls(widened) if c.op.name == "nn.conv2d"]
    assert [int(p) for p in call.attrs.padding] == [0, 1, 0, 1]


def test_other_layouts_and_dynamic_shapes_are_left() -> None:
    nwc = _conv1d((1, 9, 2), (3, 2, 2), data_layout="NWC", kernel_layout="WIO", channels=2, kernel_size=3)
    dynamic = _conv1d((relay.Any(), 2, 9), (2, 2, 3))
    for mod in (nwc, dynamic):
        typed = relay.transform.InferType()(mod)
        assert tvm.ir.structural_equal(WidenConv1d()(typed), typed)


def _calls(mod: tvm.IRModule) -> list[relay.Call]:
    found: list[relay.Call] = []
    relay.analysis.post_order_visit(
        mod["main"], lambda e: found.append(e) if isinstance(e, relay.Call) else None
    )
    return found
