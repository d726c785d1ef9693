"""QNN operators: the types of what they compute; scales and zero points are broadcast.

Canonicalisation rewrites them into ordinary operators, so these types serve graphs that still hold them.
"""

from __future__ import annotations

from typing import Any

from ..ecg import TensorInfo
from ..mapping_type import MappingType
from .registry import Operand, Probe, mapping
from .rules import MANY_TO_MANY, ONE_TO_MANY, by_broadcast, by_placement


def _by_rank(attrs: Any, operand: TensorInfo, output: TensorInfo) -> MappingType:
    """Tensors are placed, scalar parameters are spread."""
    return by_placement(attrs, operand, output) if operand.shape else ONE_TO_MANY


_DATA = Operand((2, 3), "uint8", 20, 60)
# Small, so that no result saturates.
_FACTOR = Operand((2, 3), "uint8", 8, 16)
_SCALE = Operand((), low=0.4, high=0.6, fixed=True)
_ZERO = Operand((), "int32", 0, 4, fixed=True)
_MIDDLE = Operand((), "int32", 100, 101, fixed=True)
_INPUT: Probe = (_SCALE, _ZERO)
_OUTPUT: Probe = (_SCALE, _MIDDLE)

# Fine, so that each step of the data shows in the result.
_FINE = Operand((), values=(0.01,), fixed=True)
for _op in ["abs", "erf", "exp", "hardswish", "log", "rsqrt", "sigmoid", "sqrt", "tanh"]:
    mapping(f"qnn.{_op}", by_broadcast, probe=[(_DATA, _FINE, _ZERO, _FINE, _ZERO)])
mapping("qnn.leaky_relu", by_broadcast, probe=[(_DATA, *_INPUT, *_OUTPUT, {"alpha": 0.25})])

for _op in ["add", "subtract", "mul"]:
    mapping(
        f"qnn.{_op}",
        by_broadcast,
        probe=[
            (_FACTOR, _FACTOR, *_INPUT, *_INPUT, *_OUTPUT),
            (_FACTOR, Operand((3,), "uint8", 8, 16), *_INPUT, *_INPUT, *_OUTPUT),
        ],
    )

_STEPS = Operand((3,), low=0.01, high=0.02)
mapping("qnn.quantize", by_broadcast, probe=[((2, 3), _STEPS, _ZERO, {"axis": 1, "out_dtype": "uint8"})])
mapping("qnn.dequantize", by_broadcast, probe=[(_DATA, _STEPS, _ZERO, {"axis": 1})])
mapping(
    "qnn.requantize",
    by_broadcast,
    probe=[(Operand((2, 3), "int32", 20, 60), *_INPUT, *_INPUT, {"out_dtype": "int8"})],
)
_CODE = Operand((), "int32", 1, 2, fixed=True)
_ZEROS = Operand((3,), "int32", 0, 9)
mapping("qnn.simulated_quantize", by_broadcast, probe=[((2, 3), _CODE, _STEPS, _ZEROS)])
mapping("qnn.simulated_dequantize", by_broadcast, probe=[((2, 3), _CODE, _STEPS, _ZEROS)])

mapping(
    "qnn.softmax",
    MANY_TO_MANY,
    ONE_TO_MANY,
    probe=[
        (
            Operand((1, 3), "int8", 20, 40),
            *_INPUT,
            Operand((), values=(0.01,), fixed=True),
            _ZERO,
            {"axis": 1},
        )
    ],
)
# Data first, then the scales and zero points of each, in one flat list of operands.
mapping(
    "qnn.concatenate",
    _by_rank,
    probe=[
        ([_DATA, Operand((2, 1), "uint8", 20, 60)], [_SCALE, _SCALE], [_ZERO, _ZERO], *_OUTPUT, {"axis": 1})
    ],
)
mapping(
    "qnn.avg_pool2d",
    MANY_TO_MANY,
    ONE_TO_MANY,
    probe=[
        (
            Operand((1, 3, 3, 1), "int8", 20, 60),
            *_INPUT,
            *_INPUT,
            {"pool_size": (2, 2), "strides": (1, 1), "padding": (0, 0), "dilation": (1, 1)},
        )
    ],
)

_PARAMETERS: Probe = (_ZERO, _ZERO, _SCALE, _SCALE)
for _op, _probe in {
    "dense": (_DATA, Operand((4, 3), "int8", 1, 9), *_PARAMETERS, {"units": 4}),
    "batch_matmul": (
        Operand((1, 2, 3), "int8", 1, 9),
        Operand((1, 4, 3), "int8", 1, 9),
        *_PARAMETERS,
    ),
    "conv2d": (
        Operand((1, 2, 3, 3), "uint8", 1, 9),
        Operand((2, 2, 2, 2), "int8", 1, 9),
        *_PARAMETERS,
        {"kernel_size": (2, 2), "channels": 2},
    ),
    "conv2d_transpose": (
        Operand((1, 2, 2, 2), "uint8", 1, 9),
        Operand((2, 2, 2, 2), "int8", 1, 9),
        *_PARAMETERS,
        {"kernel_size": (2, 2), "channels": 2},
    ),
}.items():
    mapping(f"qnn.{_op}", MANY_TO_MANY, MANY_TO_MANY, ONE_TO_MANY, probe=[_probe])
mapping(
    "qnn.contrib_dense_pack",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    unprobed="only the Hexagon target computes it",
)
