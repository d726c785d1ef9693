"""Dense layers whose outputs no vector divides, computed with some more and cut back.

A prime number of columns leaves a register tile nothing to be a multiple of, and the inner loop scalar: the
50,257 words of GPT-2 are half of its time that way. The weights are constants, so they are padded with zeros
at compile time; the columns that they add are computed and not read.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay
from tvm.target import Target
from tvm_dnnfusion.passes.fold_constants import rewrite_functions
from tvm_dnnfusion.passes.graph_rewriter import GraphRewriter
from tvm_dnnfusion.passes.static_types import StaticTypes
from tvm_dnnfusion.passes.tensor_memory import tensor_of, view
from tvm_dnnfusion.schedules.gemm_tiles import register_file

from tvm_dnnfusion.block_attributes import encode_attributes, make_attributes, plain_attributes
from tvm_dnnfusion.node_fields import field_of, make_call

# Columns are padded to panels of this many vectors where that adds no more than the share below.
_PANELS = (3, 2, 1)
_MAX_SHARE = 1 / 16


def padded_columns(columns: int, lanes: int) -> int:
    """The number of columns to compute: ``columns`` itself where vectors divide it or padding adds too much.

    Parameters
    ----------
    columns
        Outputs of the dense layer.
    lanes
        Elements of a vector register.
    """
    if columns % lanes == 0:
        return columns
    sizes = (-(-columns // (vectors * lanes)) * vectors * lanes for vectors in _PANELS)
    return next((size for size in sizes if size - columns <= _MAX_SHARE * columns), columns)


class ColumnPadder(GraphRewriter):
    """Rewrites ``nn.dense`` with constant weights, ``x [.., K]`` and ``w [N, K]``."""

    def __init__(self, mod: tvm.IRModule, target: Target) -> None:
        super().__init__()
        self._target = target
        self._types = StaticTypes()

    def rewrite_call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        if name != "nn.dense" or not isinstance(args[1], relay.Constant):
            return None
        shape, weights = self._types.shape(call.checked_type), view(args[1].data)
        if shape is None or weights is None or str(weights.dtype) not in ("float32", "float64"):
            return None
        wide = padded_columns(shape[-1], register_file(self._target, str(weights.dtype)).lanes)
        if wide == shape[-1]:
            return None
        span, attrs = field_of(call, "span"), plain_attributes(encode_attributes(field_of(call, "attrs")))
        panel = relay.Constant(tensor_of(np.pad(weights, ((0, wide - shape[-1]), (0, 0)))))
        dense = make_attributes("relay.attrs.DenseAttrs", units=wide, out_dtype=attrs.out_dtype)
        product = make_call(field_of(call, "op"), [args[0], panel], dense, span)
        cut = make_attributes(
            "relay.attrs.StridedSliceAttrs",
            begin=[0] * len(shape),
            end=list(shape),
            strides=[1] * len(shape),
            slice_mode="end",
            axes=None,
        )
        return make_call(relay.op.get("strided_slice"), [product], cut, span)


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.PadColumns")
class PadColumns:
    """Pass that pads the constant weights of dense layers to whole vectors of outputs.

    Parameters
    ----------
    target
        Its vectors are meant.
    typed
        The module's types are inferred already.
    """

    def __init__(self, target: Target, typed: bool = False) -> None:
        self.target = target
        self.typed = typed

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """``mod`` with padded weights, types inferred."""
        if not self.typed:
            mod = relay.transform.InferType()(mod)
        return rewrite_functions(mod, ColumnPadder, self.target)
