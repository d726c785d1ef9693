"""Constant scales of a convolution's or dense layer's output, folded into its constant weights.

    conv(x, W) * s           -> conv(x, W * s)
    (conv(x, W) + b) * s     -> conv(x, W * s) + b * s

with one factor per output channel, or one for all: what batch norm leaves behind. Stock ``FoldScaleAxis``
also pushes scales that are computed at run time into the weights: in a squeeze-excite block the weights are
then no longer constants, and are scaled and packed again in every inference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relay
from tvm_dnnfusion.passes.fold_constants import ConstantFolder

from tvm_dnnfusion.node_fields import copy_call
from tvm_dnnfusion.relay_graph import key_of

# Axis of the output channels in the data's and the kernel's layout.
_CONVOLUTIONS = frozenset({"nn.conv1d", "nn.conv2d", "nn.conv3d"})
_TRANSPOSED = frozenset({"nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"})
SCALED_OPERATORS = _CONVOLUTIONS | _TRANSPOSED | {"nn.dense"}


class ScaleFolder(ConstantFolder):
    """Rewrites a multiply by a constant behind a linear operator; to be run after equal calls were merged."""

    def rewrite_call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        if name == "multiply":
            for position in (0, 1):
                if isinstance(args[1 - position], relay.Constant):
                    return self._scaled(call, position, args)
            return None
        return super().rewrite_call(call, name, args)

    def _scaled(self, call: relay.Call, position: int, args: list[relay.Expr]) -> relay.Expr | None:
        """``call`` without its multiply, whose operand ``position`` is the scaled one."""
        scale, scaled = self.value(args[1 - position]), args[position]
        original = call.args[position]
        if not self._is_only_use(original, scaled):
            return None
        name = self.op_name(scaled.op)
        if name in SCALED_OPERATORS:
            return self._scaled_weights(scaled, name, scale)
        if name != "add":
            return None
        return self._scaled_sum(call, original, scaled, scale)

    def _scaled_sum(
        self, call: relay.Call, original: relay.Call, total: relay.Call, scale: np.ndarray
    ) -> relay.Expr | None:
        for position, term in enumerate(total.args):
            bias = total.args[1 - position]
            inner = original.args[position]
            if not isinstance(bias, relay.Constant) or not self._is_only_use(inner, term):
                continue
            name = self.op_name(term.op)
            # The sum must have the operator's shape, or the scale's axes would not be the operator's.
            same = self.types.of(inner.checked_type) == self.types.of(call.checked_type)
            product = self._scaled_weights(term, name, scale) if same and name in SCALED_OPERATORS else None
            shift = None if product is None else self._product(self.value(bias), scale)
            if shift is None:
                return None
            return copy_call(call, total.op, [product, self.constant(shift, bias.span)], total.attrs)
        return None

    def _is_only_use(self, original: relay.Expr, rewritten: relay.Expr) -> bool:
        return isinstance(rewritten, relay.Call) and self.uses[key_of(original)] == 1

    def _scaled_weights(self, linear: relay.Call, name: str, scale: np.ndarray | None) -> relay.Expr | None:
        """``linear`` with its weights times ``scale``; None if they vary or it is not by channel."""
        data, weights = linear.args
        out = self.types.of(linear.checked_type)
        value = self.value(weights) if isinstance(weights, relay.Constant) else None
        if out is None or value is None or scale is None or value.dtype.kind != "f":
            return None
        axes = _channel_axes(linear.attrs, name)
        if axes is None or scale.dtype != value.dtype:
            return None
        factors = _per_channel(scale, out.shape, axes[0])
        if factors is None:
            return None
        shape = [1] * value.ndim
        if factors.size > 1:
            shape[axes[1]] = factors.size
        product = self._product(value, factors.reshape(shape))
        return None if product is None else copy_call(linear, linear.op, [data, self.constant(product, None)])

    @staticmethod
    def _product(values: np.ndarray | None, factors: np.ndarray) -> np.ndarray | None:
        """None where the product leaves the range of normal numbers, which the original need not do."""
        if values is None:
            return None
        with np.errstate(all="ignore"):
            product = values * factors
        tiny = np.finfo(product.dtype).tiny
        nonzero = (values != 0) & (factors != 0)
        normal = np.isfinite(product) & ((np.abs(product) >= tiny) | ~nonzero)
        return product if bool(np.all(normal)) else None


def _channel_axes(attrs: Any, name: str) -> tuple[int, int] | None:
    """The output channels' axis in the result and in the weights; None for blocked layouts."""
    if name == "nn.dense":
        return -1, 0
    layout = str(attrs.out_layout) or str(attrs.data_layout)
    kernel = str(attrs.kernel_layout)
    if not layout.isalpha() or not kernel.isalpha() or not (layout + kernel).isupper():
        return None
    if name in _TRANSPOSED and int(attrs.groups) != 1:
        return None
    if int(attrs.groups) != 1 and kernel[0] != "O":
        # Depthwise kernels of NHWC networks (HWOI) split the output channels over two axes.
        return None
    return layout.index("C"), kernel.index("O")


def _per_channel(scale: np.ndarray, out: tuple[int, ...], axis: int) -> np.ndarray | None:
    """The factors of ``scale`` as a vector, if it broadcasts to ``out`` along the channel ``axis`` alone."""
    if scale.ndim > len(out):
        return None
    extents = [1] * (len(out) - scale.ndim) + list(scale.shape)
    channels = extents[axis]
    extents[axis] = 1
    return scale.reshape(-1) if channels in (1, out[axis]) and set(extents) <= {1} else None


def has_scales(names: set[str]) -> bool:
    """Whether a module with the operators ``names`` may have a scale to fold."""
    return "multiply" in names and not SCALED_OPERATORS.isdisjoint(names)
