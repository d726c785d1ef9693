"""One-dimensional convolutions as two-dimensional ones of height 1.

TVM's kernels for ``nn.conv1d`` have no blocked layout, and on x86 their inner loop is as wide as the data:
LLVM takes minutes to half an hour over it. ``nn.conv2d`` has both, and height 1 costs nothing.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay
from tvm_dnnfusion.passes.fold_constants import rewrite_functions
from tvm_dnnfusion.passes.graph_rewriter import GraphRewriter
from tvm_dnnfusion.passes.static_types import StaticTypes

from tvm_dnnfusion.block_attributes import encode_attributes, make_attributes, plain_attributes
from tvm_dnnfusion.node_fields import field_of, make_call

_HEIGHT = 2  # position of the new axis in NCHW and OIHW


class Conv1dWidener(GraphRewriter):
    """Rewrites ``nn.conv1d`` in layouts ``NCW`` and ``OIW`` of static shape."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__()
        self._types = StaticTypes()

    def rewrite_call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        if name != "nn.conv1d":
            return None
        attrs = plain_attributes(encode_attributes(field_of(call, "attrs")))
        shapes = [self._types.shape(e.checked_type) for e in (*call.args, call)]
        if (attrs.data_layout, attrs.kernel_layout) != ("NCW", "OIW") or None in shapes:
            return None
        span = field_of(call, "span")
        data, kernel = (
            _reshaped(arg, (*shape[:_HEIGHT], 1, *shape[_HEIGHT:]), span)
            for arg, shape in zip(args, shapes[:2], strict=True)
            if shape is not None
        )
        conv = make_call(relay.op.get("nn.conv2d"), [data, kernel], _widened(attrs, shapes[1]), span)
        return _reshaped(conv, shapes[2] or (), span)


def _reshaped(expr: relay.Expr, shape: tuple[int, ...], span: relay.Span) -> relay.Call:
    attrs = make_attributes("relay.attrs.ReshapeAttrs", newshape=list(shape), allowzero=0)
    return make_call(relay.op.get("reshape"), [expr], attrs, span)


def _widened(attrs: Any, kernel: tuple[int, ...] | None) -> tvm.ir.Attrs:
    """Attributes of the two-dimensional convolution."""
    assert kernel is not None
    padding = list(attrs.padding)
    before, after = (padding * 2)[:2] if len(padding) == 1 else padding
    return make_attributes(
        "relay.attrs.Conv2DAttrs",
        strides=[1, *attrs.strides],
        padding=[0, before, 0, after],
        dilation=[1, *attrs.dilation],
        groups=attrs.groups,
        channels=kernel[0],
        kernel_size=[1, kernel[_HEIGHT]],
        data_layout="NCHW",
        kernel_layout="OIHW",
        out_layout="",
        out_dtype=attrs.out_dtype,
    )


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.WidenConv1d")
class WidenConv1d:
    """Pass that writes each static ``nn.conv1d`` as an ``nn.conv2d`` of height 1.

    Parameters
    ----------
    typed
        The module's types are inferred already.
    """

    def __init__(self, typed: bool = False) -> None:
        self.typed = typed

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """``mod`` without static one-dimensional convolutions, types inferred."""
        if not self.typed:
            mod = relay.transform.InferType()(mod)
        return rewrite_functions(mod, Conv1dWidener)
