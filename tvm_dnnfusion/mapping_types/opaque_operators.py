"""Operators outside the five mapping types, each with the reason why."""

from __future__ import annotations

from .registry import opaque

_REASONS: dict[str, str] = {
    "the output shape depends on the data": (
        "arange argwhere unique dyn.broadcast_to dyn.expand_dims dyn.full dyn.image.resize2d dyn.nn.pad "
        "dyn.nn.upsampling dyn.nn.upsampling3d dyn.one_hot dyn.ones dyn.reshape dyn.sparse_to_dense "
        "dyn.squeeze dyn.strided_slice dyn.tile dyn.topk dyn.zeros sparse_fill_empty_rows"
    ),
    "it orders whole rows by calls into the runtime": "argsort sort topk",
    "it writes where the data says, by an imperative loop that cannot be computed inside another": (
        "invert_permutation scatter_elements scatter_nd sparse_to_dense sparse_reshape"
    ),
    "it searches by an imperative loop that cannot be computed inside another": "searchsorted",
    "which elements of a sparse operand are read depends on the data": (
        "nn.internal.sparse_dense_padded nn.sparse_add nn.sparse_conv2d nn.sparse_dense nn.sparse_transpose"
    ),
    "it selects boxes by an imperative loop that cannot be computed inside another": (
        "vision.all_class_non_max_suppression vision.get_valid_counts vision.multibox_prior "
        "vision.multibox_transform_loc vision.non_max_suppression vision.proposal "
        "vision.regular_non_max_suppression"
    ),
    "it draws random numbers": (
        "nn.dropout random.multinomial random.normal random.threefry_generate random.threefry_split "
        "random.uniform"
    ),
    "it reads the shape and not the elements": "ndarray_size shape_of vm.shape_of",
    "it places tensors on devices": "device_copy on_device",
    "it manages memory or calls lowered code": (
        "call_lowered memory.alloc_storage memory.alloc_tensor memory.kill vm.invoke_tvm_op vm.reshape_tensor"
    ),
    "it calls a Python function for debugging": "debug",
    "it marks a place in the graph and computes nothing": (
        "annotation.bitpack_end annotation.bitpack_start annotation.cast_hint annotation.checkpoint "
        "annotation.compiler_begin annotation.compiler_end annotation.stop_fusion annotation.with_funcid "
        "relay.op.annotation.simulated_quantize"
    ),
    "it stands for an object of a text file that is being parsed": "parser.MetaRef",
    "only its name is registered: it has no type relation and cannot be called": "hardswish scatter",
}

for _reason, _ops in _REASONS.items():
    for _op in _ops.split():
        opaque(_op, _reason)
