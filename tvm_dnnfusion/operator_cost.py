"""Arithmetic operations per operator call: the FLOP metric of section 3.

Multiply-adds count 2, other arithmetic 1 per element, whatever the function (``exp`` counts as ``add`` does),
moving data 0. Convolutions count the direct algorithm, also where Winograd or GEMM will compute them, and
count padding as data. Nothing here divides by an extent: zero-size tensors are legal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .ecg import TensorInfo
from .layout_axes import axis_extent, axis_letters, spatial_extent

Tensors = Sequence[TensorInfo]
CostRule = Callable[[Any, Tensors, Tensors], int]


def flops(op: str, attrs: Any, in_types: Tensors, out_types: Tensors) -> int:
    """Arithmetic operations of one call.

    Parameters
    ----------
    op
        Relay's name of the operator.
    attrs
        Its attributes, read as Python attributes; None when it has none.
    in_types, out_types
        Operands and outputs in order, tuples flattened.

    Returns
    -------
    int
        0 for data movement, and for operators whose work the shapes do not tell (opaque or unknown ones).
    """
    if op in _PER_OUTPUT:
        return _PER_OUTPUT[op] * out_types[0].size
    if op in _PER_INPUT:
        return _PER_INPUT[op] * in_types[0].size
    rule = _RULES.get(op)
    return 0 if rule is None else rule(attrs, in_types, out_types)


def _names(text: str) -> list[str]:
    return text.split()


def is_costed(op: str) -> bool:
    """Whether :func:`flops` knows the operator, be it as free of arithmetic."""
    return op in _FREE or op in _PER_OUTPUT or op in _PER_INPUT or op in _RULES


def _product(extents: Iterable[Any]) -> int:
    return math.prod(int(extent) for extent in extents)


def _window(attrs: Any, weight: TensorInfo) -> int:
    if attrs.kernel_size is not None:
        return _product(attrs.kernel_size)
    return spatial_extent(attrs.kernel_layout, weight.shape)


def _groups(attrs: Any) -> int:
    return int(getattr(attrs, "groups", 1))


def _convolution(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """Each output element reads a window of its group's input channels."""
    weight = ins[2] if len(ins) == 3 else ins[1]  # deformable: data, offsets, weight
    channels = axis_extent(attrs.data_layout, ins[0].shape, "C")
    return 2 * outs[0].size * (channels // _groups(attrs)) * _window(attrs, weight)


def _transposed_convolution(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """Each input element writes a window of its group's output channels."""
    channels = axis_extent(attrs.out_layout or attrs.data_layout, outs[0].shape, "C")
    return 2 * ins[0].size * (channels // _groups(attrs)) * _window(attrs, ins[1])


def _weight_gradient(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """``conv2d_backward_weight``: as many multiply-adds as the convolution whose output ``ins[0]`` is."""
    channels = axis_extent(attrs.data_layout, ins[1].shape, "C")
    return 2 * ins[0].size * (channels // _groups(attrs)) * _window(attrs, outs[0])


def _matrix_product(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """The reduced extent is read off the left operand, which is never packed."""
    reduced = ins[0].shape[-2 if getattr(attrs, "transpose_a", False) else -1]
    return 2 * outs[0].size * reduced


def _einsum(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """One pass over all labels: a multiply per further operand, and an add."""
    terms = str(attrs.equation).replace(" ", "").split("->")[0].split(",")
    extents: dict[str, int] = {}
    for term, operand in zip(terms, ins, strict=True):
        named = len(term.replace("...", ""))
        dots = "".join(chr(0x100 + i) for i in reversed(range(len(operand.shape) - named)))
        for label, extent in zip(term.replace("...", dots), operand.shape, strict=True):
            extents[label] = max(extents.get(label, 1), extent) if extent != 0 else 0
    return len(terms) * math.prod(extents.values())


def _correlation(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    channels = axis_extent(attrs.layout, ins[0].shape, "C")
    return 2 * outs[0].size * channels * int(attrs.kernel_size) ** 2


def _winograd_weight(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """Each transformed element is a linear form of one kernel window (``OIHW`` or ``OIDHW``)."""
    return 2 * outs[0].size * _product(ins[0].shape[2:])


def _pool(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    return outs[0].size * _product(attrs.pool_size)


def _pool_gradient(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    return ins[0].size * _product(attrs.pool_size)


_TAPS = {"linear": 2, "bilinear": 2, "trilinear": 2, "cubic": 4, "bicubic": 4}


def _interpolation(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """Multiply-adds over the taps of every resized axis; nearest neighbour only moves data."""
    taps = _TAPS.get(attrs.method, 0)
    axes = sum(letter in "DHW" for letter in axis_letters(attrs.layout))
    return 2 * outs[0].size * taps**axes


def _roi_align(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """Four taps per sample; an adaptive number of samples (``sample_ratio`` <= 0) counts as one."""
    return outs[0].size * max(1, int(attrs.sample_ratio)) ** 2 * 8


def _dilation(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    return 2 * outs[0].size * spatial_extent(attrs.kernel_layout, ins[1].shape)


def _local_response(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """A square and an add per neighbour, then scale, power and division."""
    return outs[0].size * (2 * int(attrs.size) + 3)


def _fourier(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """The direct transform: a complex multiply-add per term."""
    return 8 * outs[0].size * ins[0].shape[-1]


def _short_fourier(attrs: Any, ins: Tensors, outs: Tensors) -> int:
    """A window product and a multiply-add per term, for real and imaginary parts."""
    return 3 * outs[0].size * int(attrs.n_fft)


_RULES: dict[str, CostRule] = {
    **dict.fromkeys(
        [
            *(f"nn.conv{rank}d" for rank in (1, 2, 3)),
            "nn.contrib_conv2d_NCHWc",
            "nn.contrib_depthwise_conv2d_NCHWc",
            "nn.contrib_conv2d_gemm_without_weight_transform",
            "nn.contrib_conv2d_winograd_without_weight_transform",
            "nn.contrib_conv3d_winograd_without_weight_transform",
            "nn.deformable_conv2d",
            "nn.bitserial_conv2d",
            "qnn.conv2d",
        ],
        _convolution,
    ),
    **dict.fromkeys(
        [*(f"nn.conv{rank}d_transpose" for rank in (1, 2, 3)), "qnn.conv2d_transpose"],
        _transposed_convolution,
    ),
    "nn.conv2d_backward_weight": _weight_gradient,
    **dict.fromkeys(
        [
            "nn.dense",
            "nn.matmul",
            "nn.batch_matmul",
            "nn.contrib_dense_pack",
            "nn.bitserial_dense",
            "qnn.dense",
            "qnn.batch_matmul",
            "qnn.contrib_dense_pack",
        ],
        _matrix_product,
    ),
    "einsum": _einsum,
    "nn.correlation": _correlation,
    "nn.contrib_conv2d_winograd_weight_transform": _winograd_weight,
    "nn.contrib_conv2d_winograd_nnpack_weight_transform": _winograd_weight,
    "nn.contrib_conv3d_winograd_weight_transform": _winograd_weight,
    **dict.fromkeys([f"nn.{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)], _pool),
    "qnn.avg_pool2d": _pool,
    "nn.avg_pool2d_grad": _pool_gradient,
    "nn.max_pool2d_grad": _pool_gradient,
    **dict.fromkeys(
        [
            *(f"image.resize{rank}d" for rank in (1, 2, 3)),
            "nn.upsampling",
            "nn.upsampling3d",
            "image.crop_and_resize",
            "image.grid_sample",
        ],
        _interpolation,
    ),
    "vision.roi_align": _roi_align,
    "image.dilation2d": _dilation,
    "nn.lrn": _local_response,
    "dft": _fourier,
    "stft": _short_fourier,
}

# Operations per element of the first output.
_PER_OUTPUT: dict[str, int] = {
    **dict.fromkeys(
        _names(
            "abs acos acosh add asin asinh atan atanh bitwise_and bitwise_not bitwise_or bitwise_xor "
            "cast cast_like ceil clip cos cosh divide equal erf exp fast_erf fast_exp fast_tanh "
            "fixed_point_multiply fixed_point_multiply_per_axis floor floor_divide floor_mod greater "
            "greater_equal isfinite isinf isnan left_shift less less_equal log log10 log2 logical_and "
            "logical_not logical_or logical_xor maximum minimum mod multiply negative nn.bias_add "
            "nn.leaky_relu nn.prelu nn.relu not_equal power right_shift round rsqrt sigmoid sign sin "
            "sinh sqrt subtract tan tanh trunc trunc_divide trunc_mod where qnn.abs qnn.add "
            "qnn.dequantize qnn.erf qnn.exp qnn.hardswish qnn.leaky_relu qnn.log qnn.mul qnn.quantize "
            "qnn.requantize qnn.rsqrt qnn.sigmoid qnn.simulated_dequantize qnn.simulated_quantize "
            "qnn.sqrt qnn.subtract qnn.tanh vision.roi_pool"
        ),
        1,
    ),
    "unravel_index": 2,  # divide, remainder
    "nn.batch_norm": 4,  # minus mean, times reciprocal deviation, times scale, plus shift
    "image.affine_grid": 6,  # three multiply-adds
}

# Operations per element of the first operand.
_PER_INPUT: dict[str, int] = {
    **dict.fromkeys(
        _names(
            "all any argmax argmin collapse_sum_like collapse_sum_to cumprod cumsum max mean min prod "
            "sum nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d "
            "nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d "
            "nn.global_avg_pool2d nn.global_max_pool2d nn.nll_loss"
        ),
        1,
    ),
    "nn.bitpack": 2,  # shift, or
    "nn.cross_entropy_with_logits": 2,  # multiply, add
    "nn.cross_entropy": 3,  # log, multiply, add
    "nn.l2_normalize": 3,  # square, add, scale
    "variance": 3,  # minus mean, square, add
    "nn.softmax": 5,  # maximum, minus it, exp, sum, divide
    "nn.fast_softmax": 5,
    "nn.log_softmax": 5,
    "qnn.softmax": 5,
    "nn.layer_norm": 7,  # sum, minus mean, square, sum, times reciprocal deviation, times scale, plus shift
    "nn.group_norm": 7,
    "nn.instance_norm": 7,
}

_FREE = frozenset(
    _names(
        "adv_index auto_scheduler_layout_transform broadcast_to broadcast_to_like concatenate "
        "contrib_reverse_reshape copy expand_dims full full_like gather gather_nd layout_transform "
        "matrix_set_diag meshgrid meta_schedule_layout_transform nn.batch_flatten nn.batch_to_space_nd "
        "nn.contrib_conv2d_gemm_weight_transform nn.depth_to_space nn.dilate nn.fifo_buffer nn.mirror_pad "
        "nn.pad nn.space_to_batch_nd nn.space_to_depth one_hot ones ones_like qnn.concatenate reinterpret "
        "repeat reshape reshape_like reverse reverse_sequence sequence_mask slice_like sliding_window split "
        "squeeze stack strided_set strided_slice take tile transpose trilu vision.yolo_reorg zeros "
        "zeros_like"
    )
)
