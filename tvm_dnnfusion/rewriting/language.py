"""Names in which equations are written: variables, operators, and calculations on attributes."""

from __future__ import annotations

from .operators import ARITHMETIC, BITWISE, COMPARISONS, LOGICAL, REDUCTIONS, SHIFTS, UNARY_FLOAT
from .pattern import OperatorVariable, attributes, constants, operator, variables

A, B, C, D = variables("A B C D")
X, Y, W, V, M, I = variables("X Y W V M I")  # noqa: E741  (data, weights, a mask, indices)
c, d = constants("c d")
P, Q, K, N, S, T = attributes("P Q K N S T")

exp, log, sqrt, rsqrt = operator("exp"), operator("log"), operator("sqrt"), operator("rsqrt")
absolute, negative, relu, sigmoid = (operator(n) for n in ("abs", "negative", "nn.relu", "sigmoid"))
tanh, erf, sin, cos = (operator(n) for n in ("tanh", "erf", "sin", "cos"))
floor, ceil, trunc, rounded = (operator(n) for n in ("floor", "ceil", "trunc", "round"))
power, maximum, minimum = operator("power"), operator("maximum"), operator("minimum")
left_shift, right_shift = operator("left_shift"), operator("right_shift")
bitwise_and, bitwise_or, bitwise_xor = (operator(f"bitwise_{n}") for n in ("and", "or", "xor"))
bitwise_not, logical_not = operator("bitwise_not"), operator("logical_not")
logical_and, logical_or, logical_xor = (operator(f"logical_{n}") for n in ("and", "or", "xor"))
where, cast, clip, softmax = operator("where"), operator("cast"), operator("clip"), operator("nn.softmax")
total, product, highest, lowest, mean = (operator(n) for n in ("sum", "prod", "max", "min", "mean"))
every, some = operator("all"), operator("any")
transpose, reshape, broadcast_to = operator("transpose"), operator("reshape"), operator("broadcast_to")
strided_slice, concatenate = operator("strided_slice"), operator("concatenate")
pad, take = operator("nn.pad"), operator("take")
dense, matmul, batch_matmul = operator("nn.dense"), operator("nn.matmul"), operator("nn.batch_matmul")

# Element-wise operators of one operand that never look at another element.
f = OperatorVariable(
    "f", frozenset((*UNARY_FLOAT, "bitwise_not", "logical_not", "clip", "cast", "nn.leaky_relu"))
)
# Of two operands, broadcast against each other.
g = OperatorVariable("g", frozenset((*ARITHMETIC, *COMPARISONS, *LOGICAL, *BITWISE, *SHIFTS)))
reduce = OperatorVariable("reduce", frozenset(REDUCTIONS))
conv = OperatorVariable("conv", frozenset({"nn.conv1d", "nn.conv2d", "nn.conv3d"}))
conv_transpose = OperatorVariable(
    "conv_transpose", frozenset({"nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"})
)
