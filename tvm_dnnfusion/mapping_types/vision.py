"""Image operators: resizing, sampling and morphology."""

from __future__ import annotations

from .registry import Operand, mapping
from .rules import MANY_TO_MANY, ONE_TO_MANY, by_interpolation

for _rank, _extents, _size in ((1, (3,), (5,)), (2, (2, 3), (3, 5)), (3, (2, 2, 2), (3, 3, 4))):
    mapping(
        f"image.resize{_rank}d",
        by_interpolation,
        probe=[
            ((1, 1, *_extents), {"size": _size, "method": "linear"}),
            (
                (1, 1, *_extents),
                {"size": _size, "method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"},
            ),
            (
                (1, 1, *_size),
                {
                    "size": _extents,
                    "method": "nearest_neighbor",
                    "coordinate_transformation_mode": "asymmetric",
                },
            ),
        ],
    )

mapping(
    "nn.upsampling",
    by_interpolation,
    probe=[
        ((1, 1, 2, 3), {"scale_h": 2, "scale_w": 2, "method": "nearest_neighbor"}),
        ((1, 1, 2, 3), {"scale_h": 2, "scale_w": 2, "method": "bilinear"}),
    ],
)
mapping(
    "nn.upsampling3d",
    by_interpolation,
    probe=[
        ((1, 1, 2, 2, 1), {"scale_d": 2, "scale_h": 2, "scale_w": 2, "method": "nearest_neighbor"}),
        ((1, 1, 2, 2, 1), {"scale_d": 2, "scale_h": 2, "scale_w": 2, "method": "trilinear"}),
    ],
)
mapping(
    "image.crop_and_resize",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    probe=[
        (
            (2, 1, 3, 3),
            Operand((2, 4), values=(0.1, 0.2, 0.8, 0.9, 0.0, 0.1, 0.7, 0.6), perturbed=(0.3, 0.5)),
            Operand((2,), "int32", 0, 2),
            {"crop_size": (3, 3), "layout": "NCHW", "method": "bilinear"},
        )
    ],
)
mapping("image.affine_grid", MANY_TO_MANY, probe=[((1, 2, 3), {"target_shape": (2, 3)})])
mapping(
    "image.grid_sample",
    MANY_TO_MANY,
    probe=[
        ((1, 2, 3, 3), Operand((1, 2, 2, 3), low=-0.9, high=0.9), {"method": "bilinear", "layout": "NCHW"})
    ],
)
mapping("image.dilation2d", MANY_TO_MANY, probe=[((1, 1, 3, 3), (1, 2, 2))])

_REGIONS = Operand((2, 5), values=(0, 0, 0, 2, 2, 0, 1, 1, 3, 3), perturbed=(0.0, 1.0, 2.0))
mapping(
    "vision.roi_align",
    MANY_TO_MANY,
    probe=[((1, 1, 4, 4), _REGIONS, {"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 2})],
)
mapping(
    "vision.roi_pool",
    MANY_TO_MANY,
    probe=[((1, 1, 4, 4), _REGIONS, {"pooled_size": (2, 2), "spatial_scale": 1.0})],
)
