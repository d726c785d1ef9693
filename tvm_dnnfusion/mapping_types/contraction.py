"""Convolutions, matrix products and their weight transforms: Many-to-Many in every tensor they multiply.

Also where the reduction happens to have one term: the type follows the loop nest the operator brings.
"""

from __future__ import annotations

from .registry import Operand, mapping
from .rules import MANY_TO_MANY, SHUFFLE

mapping("nn.dense", MANY_TO_MANY, probe=[((2, 3), (4, 3))])
mapping(
    "nn.matmul",
    MANY_TO_MANY,
    probe=[((2, 3), (3, 2)), ((3, 2), (2, 3), {"transpose_a": True, "transpose_b": True})],
)
mapping("nn.batch_matmul", MANY_TO_MANY, probe=[((2, 2, 3), (2, 4, 3))])
mapping(
    "nn.contrib_dense_pack", MANY_TO_MANY, probe=[((2, 3), (1, 3, 4), {"weight_layout": "NC4n", "units": 4})]
)
mapping("einsum", MANY_TO_MANY, probe=[([(2, 3), (3, 2)], {"equation": "ij,jk->ik"})])

mapping("nn.conv1d", MANY_TO_MANY, probe=[((1, 2, 4), (2, 2, 3), {"kernel_size": 3, "channels": 2})])
mapping(
    "nn.conv2d",
    MANY_TO_MANY,
    probe=[
        ((1, 2, 3, 3), (2, 2, 2, 2), {"kernel_size": (2, 2), "channels": 2}),
        ((1, 4, 3, 3), (4, 1, 2, 2), {"kernel_size": (2, 2), "channels": 4, "groups": 4}),
    ],
)
mapping(
    "nn.conv3d",
    MANY_TO_MANY,
    probe=[((1, 2, 2, 3, 2), (1, 2, 2, 2, 2), {"kernel_size": (2, 2, 2), "channels": 1})],
)
mapping(
    "nn.conv1d_transpose", MANY_TO_MANY, probe=[((1, 2, 3), (2, 2, 2), {"kernel_size": (2,), "channels": 2})]
)
mapping(
    "nn.conv2d_transpose",
    MANY_TO_MANY,
    probe=[((1, 2, 2, 2), (2, 2, 2, 2), {"kernel_size": (2, 2), "channels": 2})],
)
mapping(
    "nn.conv3d_transpose",
    MANY_TO_MANY,
    probe=[((1, 2, 1, 2, 2), (2, 1, 2, 2, 2), {"kernel_size": (2, 2, 2), "channels": 1})],
)
mapping(
    "nn.contrib_conv2d_NCHWc",
    MANY_TO_MANY,
    probe=[
        (
            (1, 1, 3, 3, 4),
            (1, 1, 2, 2, 4, 4),
            {
                "kernel_size": (2, 2),
                "channels": 4,
                "data_layout": "NCHW4c",
                "kernel_layout": "OIHW4i4o",
                "out_layout": "NCHW4c",
            },
        )
    ],
)
mapping(
    "nn.contrib_depthwise_conv2d_NCHWc",
    MANY_TO_MANY,
    probe=[
        (
            (1, 1, 3, 3, 4),
            (1, 1, 2, 2, 1, 4),
            {
                "kernel_size": (2, 2),
                "channels": 4,
                "groups": 4,
                "data_layout": "NCHW4c",
                "kernel_layout": "OIHW1i4o",
                "out_layout": "NCHW4c",
            },
        )
    ],
)
mapping(
    "nn.deformable_conv2d",
    MANY_TO_MANY,
    probe=[((1, 2, 3, 3), (1, 8, 2, 2), (1, 2, 2, 2), {"kernel_size": (2, 2), "channels": 1})],
)
mapping(
    "nn.correlation",
    MANY_TO_MANY,
    probe=[
        (
            (1, 2, 3, 3),
            (1, 2, 3, 3),
            {
                "kernel_size": 1,
                "max_displacement": 1,
                "stride1": 1,
                "stride2": 1,
                "padding": 1,
                "is_multiply": True,
                "layout": "NCHW",
            },
        )
    ],
)
mapping(
    "nn.conv2d_backward_weight",
    MANY_TO_MANY,
    probe=[((1, 1, 2, 2), (1, 1, 3, 3), {"kernel_size": (2, 2), "channels": 1})],
)

mapping("nn.contrib_conv2d_winograd_weight_transform", MANY_TO_MANY, probe=[((1, 1, 3, 3), {"tile_size": 2})])
mapping(
    "nn.contrib_conv2d_winograd_without_weight_transform",
    MANY_TO_MANY,
    unprobed="only GPU targets have a schedule for it",
)
mapping(
    "nn.contrib_conv3d_winograd_weight_transform", MANY_TO_MANY, probe=[((1, 1, 3, 3, 3), {"tile_size": 2})]
)
mapping(
    "nn.contrib_conv3d_winograd_without_weight_transform",
    MANY_TO_MANY,
    unprobed="only GPU targets have a schedule for it",
)
mapping(
    "nn.contrib_conv2d_winograd_nnpack_weight_transform",
    MANY_TO_MANY,
    unprobed="it calls NNPACK, which is not part of ordinary builds",
)
mapping(
    "nn.contrib_conv2d_gemm_weight_transform", SHUFFLE, probe=[((2, 2, 2, 5), {"tile_N": 4, "tile_K": 4})]
)
mapping(
    "nn.contrib_conv2d_gemm_without_weight_transform",
    MANY_TO_MANY,
    unprobed="only the AArch64 target has a schedule for it",
)

mapping("nn.bitpack", MANY_TO_MANY, probe=[(Operand((1, 8), "uint8", 0, 2), {"pack_type": "uint8"})])
mapping(
    "nn.bitserial_conv2d",
    MANY_TO_MANY,
    probe=[
        (
            Operand((1, 8, 3, 3), "uint8", 0, 2),
            Operand((2, 8, 2, 2), "uint8", 0, 2),
            {"kernel_size": (2, 2), "channels": 2, "pack_dtype": "uint8"},
        )
    ],
)
mapping(
    "nn.bitserial_dense",
    MANY_TO_MANY,
    probe=[
        (Operand((2, 8), "uint8", 0, 2), Operand((4, 8), "uint8", 0, 2), {"units": 4, "pack_dtype": "uint8"})
    ],
)
