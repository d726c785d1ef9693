"""Operators that move elements without arithmetic: Reorganize, Shuffle, placement and copies."""

from __future__ import annotations

from .registry import Operand, mapping
from .rules import (
    MANY_TO_MANY,
    ONE_TO_MANY,
    ONE_TO_ONE,
    SHUFFLE,
    by_broadcast,
    by_diagonal,
    by_layout,
    by_permutation,
    by_placement,
    by_reversal,
    by_stride,
    unread,
)

# Reorganize.
mapping("reshape", by_placement, probe=[((2, 6), {"newshape": (3, 4)}), ((2, 3), {"newshape": (2, 3)})])
mapping("contrib_reverse_reshape", by_placement, probe=[((2, 3, 2), {"newshape": (-1, 0)})])
mapping("reshape_like", by_placement, unread, probe=[((2, 6), (3, 4))])
mapping("squeeze", by_placement, probe=[((2, 1, 3), {"axis": [1]})])
mapping("expand_dims", by_placement, probe=[((2, 3), {"axis": 1})])
mapping("nn.batch_flatten", by_placement, probe=[((2, 3, 2),)])

# Shuffle.
mapping(
    "transpose",
    by_permutation,
    probe=[
        ((2, 3, 4), {"axes": [0, 2, 1]}),
        ((2, 3), {}),
        ((2, 1, 3), {"axes": [1, 0, 2]}),
        ((2, 3, 4), {"axes": [0, -1, 1]}),
        ((2, 3), {"axes": [0, 1]}),
    ],
)
mapping(
    "layout_transform",
    by_layout,
    probe=[
        ((1, 8, 2, 2), {"src_layout": "NCHW", "dst_layout": "NCHW4c"}),
        ((1, 8, 1, 1), {"src_layout": "NCHW", "dst_layout": "NCHW4c"}),
        ((1, 2, 3, 2, 4), {"src_layout": "NCHW4c", "dst_layout": "NCHW"}),
        ((1, 4, 2, 2, 4), {"src_layout": "NCHW4c", "dst_layout": "NCHW8c"}),
        ((1, 3, 2, 4), {"src_layout": "NCHW", "dst_layout": "NHWC"}),
        ((1, 3, 2, 8), {"src_layout": "NHWC", "dst_layout": "NHWC4c"}),
        ((8, 4, 1, 2), {"src_layout": "OIHW", "dst_layout": "OIHW2i4o"}),
    ],
)
mapping(
    "auto_scheduler_layout_transform",
    SHUFFLE,
    unprobed="its layout strings are made by the auto-scheduler; the compute is layout_transform's",
)
mapping(
    "meta_schedule_layout_transform",
    SHUFFLE,
    unprobed="its index map is made by MetaSchedule, which accepts bijections only",
)
mapping("nn.depth_to_space", SHUFFLE, probe=[((1, 8, 2, 2), {"block_size": 2})])
mapping("nn.space_to_depth", SHUFFLE, probe=[((1, 2, 4, 4), {"block_size": 2})])
mapping(
    "nn.space_to_batch_nd",
    SHUFFLE,
    probe=[((1, 4, 3), {"block_shape": [2, 2], "paddings": [[0, 0], [0, 1]]})],
)
mapping(
    "nn.batch_to_space_nd", SHUFFLE, probe=[((4, 2, 2), {"block_shape": [2, 2], "crops": [[0, 0], [0, 1]]})]
)
mapping("vision.yolo_reorg", SHUFFLE, probe=[((1, 8, 4, 4), {"stride": 2})])
mapping("reverse", by_reversal, probe=[((2, 3), {"axis": 1}), ((2, 1), {"axis": 1})])
mapping(
    "reverse_sequence",
    SHUFFLE,
    ONE_TO_MANY,
    probe=[((3, 2, 2), Operand((2,), "int32", 1, 4), {"seq_axis": 0, "batch_axis": 1})],
)

# Placement: One-to-One in Table 2.
mapping("concatenate", by_placement, probe=[([(2, 3), (2, 1), (2, 2)], {"axis": 1}), ([(2, 3)], {"axis": 0})])
mapping("stack", by_placement, probe=[([(2, 3), (2, 3)], {"axis": 1}), ([(3,)], {"axis": 0})])
mapping("split", by_placement, probe=[((2, 6), {"indices_or_sections": [1, 3], "axis": 1})])
mapping(
    "strided_slice",
    by_stride,
    probe=[
        ((3, 6), {"begin": [1, 0], "end": [3, 6], "strides": [1, 2]}),
        ((2, 4), {"begin": [0, 3], "end": [2, -5], "strides": [1, -1]}),
        ((2, 4), {"begin": [1], "end": [2], "strides": [1], "axes": [1], "slice_mode": "size"}),
    ],
)
mapping("slice_like", by_placement, unread, probe=[((3, 4), (2, 3))])
mapping(
    "strided_set",
    ONE_TO_ONE,
    by_placement,
    MANY_TO_MANY,
    probe=[
        (
            (4, 4),
            (2, 2),
            Operand((2,), "int32", values=(1, 1), perturbed=(2,)),
            Operand((2,), "int32", values=(3, 3), perturbed=(2,)),
            Operand((2,), "int32", values=(1, 1), perturbed=(2,)),
        )
    ],
)
mapping("nn.pad", by_placement, ONE_TO_MANY, probe=[((2, 3), (), {"pad_width": [[0, 1], [1, 1]]})])
mapping("nn.dilate", by_placement, probe=[((2, 3), {"strides": [2, 1]})])
mapping("nn.fifo_buffer", by_placement, probe=[((2, 2), (2, 4), {"axis": 1})])
mapping("trilu", ONE_TO_ONE, ONE_TO_MANY, probe=[((3, 4), Operand((), "int32", 0, 2), {"upper": True})])
mapping("matrix_set_diag", ONE_TO_ONE, by_diagonal, probe=[((3, 4), (3,)), ((3, 3), (2, 3), {"k": (0, 1)})])
mapping(
    "sequence_mask", ONE_TO_ONE, ONE_TO_MANY, probe=[((3, 2, 2), Operand((2,), "int32", 0, 4), {"axis": 0})]
)

# Copies.
mapping("broadcast_to", by_broadcast, probe=[((2, 1), {"shape": (2, 3)}), ((2, 3), {"shape": (1, 2, 3)})])
mapping("broadcast_to_like", by_broadcast, unread, probe=[((2, 1), (2, 3))])
mapping("tile", by_broadcast, probe=[((2, 3), {"reps": (1, 2)}), ((2, 3), {"reps": (1, 1, 1)})])
mapping(
    "repeat", by_broadcast, probe=[((2, 3), {"repeats": 2, "axis": 0}), ((2, 3), {"repeats": 1, "axis": 0})]
)
mapping("meshgrid", by_broadcast, probe=[([(2,), (3,)], {"indexing": "ij"})])
mapping("nn.mirror_pad", by_broadcast, probe=[((3, 4), {"pad_width": [[0, 0], [2, 1]]})])
mapping(
    "sliding_window", ONE_TO_MANY, probe=[((2, 4, 3), {"axis": 1, "window_shape": [2, 2], "strides": [1, 1]})]
)
