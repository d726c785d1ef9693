"""Element-wise operators: One-to-One, and One-to-Many for each operand that is broadcast."""

from __future__ import annotations

import math

from .registry import Operand, mapping
from .rules import ONE_TO_ONE, by_broadcast, unread

_BOOL = Operand((2, 3), "bool")
_INT = Operand((2, 3), "int32", 1, 8)
_NAN = Operand((2, 3), perturbed=(math.nan,))
_INF = Operand((2, 3), perturbed=(math.inf,))

for _op in [
    "abs",
    "acos",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "ceil",
    "copy",
    "cos",
    "cosh",
    "erf",
    "exp",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "floor",
    "log",
    "log10",
    "log2",
    "negative",
    "nn.relu",
    "nn.leaky_relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]:
    mapping(_op, ONE_TO_ONE, probe=[((2, 3),)])

mapping("acosh", ONE_TO_ONE, probe=[(Operand((2, 3), low=1.1, high=1.9),)])
mapping("bitwise_not", ONE_TO_ONE, probe=[(_INT,)])
mapping("logical_not", ONE_TO_ONE, probe=[(_BOOL,)])
mapping("isnan", ONE_TO_ONE, probe=[(_NAN,)])
mapping("isinf", ONE_TO_ONE, probe=[(_INF,)])
mapping("isfinite", ONE_TO_ONE, probe=[(_NAN,), (_INF,)])
mapping("cast", ONE_TO_ONE, probe=[((2, 3), {"dtype": "int32"}), (_INT, {"dtype": "float16"})])
mapping("reinterpret", ONE_TO_ONE, probe=[((2, 3), {"dtype": "int32"})])
mapping("clip", ONE_TO_ONE, probe=[((2, 3), {"a_min": 0.0, "a_max": 1.0})])
mapping("fixed_point_multiply", ONE_TO_ONE, probe=[(_INT, {"multiplier": 1 << 30, "shift": 3})])
mapping(
    "fixed_point_multiply_per_axis",
    ONE_TO_ONE,
    by_broadcast,
    probe=[
        (
            _INT,
            Operand((3,), "int32", 1 << 28, 1 << 30),
            Operand((3,), "int32", 3, 6),
            Operand((3,), "int32", 1, 4),
            {"is_lshift_required": True, "is_rshift_required": True, "axes": [1]},
        )
    ],
)

mapping("add", by_broadcast, probe=[((2, 3), (2, 3)), ((2, 3), (3,)), ((), (2, 1)), ((1, 3), (3,))])
for _op in [
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "power",
    "subtract",
    "floor_divide",
]:
    mapping(_op, by_broadcast, probe=[((2, 3), (2, 3)), ((2, 3), (3,))])


# Above the divisor also when that is perturbed: the remainder of a small number is the number.
_DIVIDEND = Operand((2, 3), low=5, high=9)
for _op in ["mod", "floor_mod"]:
    mapping(_op, by_broadcast, probe=[(_DIVIDEND, (2, 3)), (_DIVIDEND, (3,))])

for _op in ["greater", "greater_equal", "less", "less_equal"]:
    mapping(_op, by_broadcast, probe=[((2, 3), (2, 3)), ((2, 1), (1, 3))])

_FEW = Operand((2, 3), "int32", 0, 2)
for _op in ["equal", "not_equal"]:
    mapping(_op, by_broadcast, probe=[(_FEW, _FEW), (_FEW, Operand((3,), "int32", 0, 2))])

for _op in ["logical_and", "logical_or", "logical_xor"]:
    mapping(_op, by_broadcast, probe=[(_BOOL, _BOOL), (_BOOL, Operand((2, 1), "bool"))])

for _op in [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
    "trunc_divide",
    "trunc_mod",
]:
    mapping(_op, by_broadcast, probe=[(_INT, _INT), (_INT, Operand((3,), "int32", 1, 4))])

_CHOICE = Operand((4, 1), "bool", values=(1, 1, 0, 0))
mapping("where", by_broadcast, probe=[(_BOOL, (2, 3), (2, 3)), (_CHOICE, (3,), (3,))])
mapping("nn.bias_add", by_broadcast, probe=[((2, 3, 2), (3,)), ((1, 3), (3,))])
mapping("nn.prelu", by_broadcast, probe=[(Operand((2, 3, 2), low=-0.9, high=-0.1), (3,))])

mapping("full", by_broadcast, probe=[((), {"shape": (2, 3)})])
mapping("full_like", unread, by_broadcast, probe=[((2, 3), ())])
mapping("zeros", unread, probe=[({"shape": (2, 3), "dtype": "float32"},)])
mapping("ones", unread, probe=[({"shape": (2, 3), "dtype": "float32"},)])
mapping("zeros_like", unread, probe=[((2, 3),)])
mapping("ones_like", unread, probe=[((2, 3),)])
mapping("cast_like", ONE_TO_ONE, unread, probe=[((2, 3), _INT)])
