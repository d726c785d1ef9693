"""QNN operators: the types of what they compute; scales and zero points are broadcast.

``qnn`` operators disappear in canonicalisation, so these types serve graphs that keep them.
"""

from __future__ import annotations

from .registry import Operand, Probe, mapping
from .rules import MANY_TO_MANY, ONE_TO_MANY, by_broadcast, by_placement

_DATA = Operand((2, 3), "uint8", 20, 60)
_SCALE = Operand((), low=0.4, high=0.6, fixed=True)
_ZERO = Operand((), "int32", 0, 4, fixed=True)
_PARAMETERS: Probe = (_SCALE, _ZERO, _SCALE, _ZERO)

for _op in [
    "qnn.abs",
    "qnn.erf",
    "qnn.exp",
    "qnn.hardswish",
    "qnn.log",
    "qnn.rsqrt",
    "qnn.sigmoid",
    "qnn.sqrt",
    "qnn.tanh",
]:
    mapping(_op, by_broadcast, probe=[(_DATA, *_PARAMETERS)])

mapping("qnn.leaky_relu", by_broadcast, probe=[(_DATA, *_PARAMETERS, {"alpha": 0.25})])
for _op in ["qnn.add", "qnn.subtract", "qnn.mul"]:
    mapping(
        _op,
        by_broadcast,
        probe=[
            (_DATA, _DATA, *_PARAMETERS, _SCALE, _ZERO),
            (_DATA, Operand((3,), "uint8", 20, 60), *_PARAMETERS, _SCALE, _ZERO),
        ],
    )

mapping(
    "qnn.quantize",
    by_broadcast,
    probe=[((2, 3), Operand((3,), low=0.01, high=0.02), _ZERO, {"axis": 1, "out_dtype": "uint8"})],
)
mapping("qnn.dequantize", by_broadcast, probe=[(_DATA, Operand((3,)), _ZERO, {"axis": 1})])
mapping(
    "qnn.requantize",
    by_broadcast,
    probe=[(Operand((2, 3), "int32", 20, 60), *_PARAMETERS, {"out_dtype": "int8"})],
)
mapping(
    "qnn.simulated_quantize",
    by_broadcast,
    probe=[((2, 3), Operand((3,), low=0.01, high=0.02), Operand((), "int32", 0, 9))],
)
mapping(
    "qnn.simulated_dequantize",
    by_broadcast,
    probe=[(Operand((2, 3), low=20, high=60), Operand((3,)), Operand((), "int32", 0, 9))],
)

mapping(
    "qnn.softmax",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    probe=[(Operand((2, 3), "int8", 20, 60), *_PARAMETERS, {"axis": 1})],
)
mapping(
    "qnn.concatenate", by_placement, unprobed="it is rewritten into other operators before code generation"
)
mapping(
    "qnn.avg_pool2d",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    unprobed="it is rewritten into other operators before code generation",
)
mapping(
    "qnn.dense",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    unprobed="it is rewritten into other operators before code generation",
)
mapping(
    "qnn.contrib_dense_pack",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    unprobed="it is rewritten into other operators before code generation",
)
mapping(
    "qnn.batch_matmul",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    unprobed="it is rewritten into other operators before code generation",
)
mapping(
    "qnn.conv2d",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    unprobed="it is rewritten into other operators before code generation",
)
mapping(
    "qnn.conv2d_transpose",
    MANY_TO_MANY,
    MANY_TO_MANY,
    ONE_TO_MANY,
    unprobed="it is rewritten into other operators before code generation",
)
