"""Operators that equations speak of: type, value and cost of each, as functions of plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_dnnfusion.passes.numpy_operators import NUMPY_OPERATORS

from ..ecg import TensorInfo
from .pattern import Inapplicable

Array = np.ndarray
Attributes = dict[str, Any]
Infer = Callable[[Attributes, list[TensorInfo]], TensorInfo]
Evaluate = Callable[[Attributes, list[Array]], Array]
Flops = Callable[[Attributes, list[TensorInfo], TensorInfo], int]


@dataclass(frozen=True)
class TermOperator:
    """One operator.

    Attributes
    ----------
    name
        Relay's.
    infer
        Type of the result; raises :class:`Inapplicable` for operands that do not fit.
    evaluate
        Value by NumPy: what Relay's kernel computes, rounding of transcendental functions aside.
    flops
        Operations as :mod:`tvm_dnnfusion.operator_cost` counts them.
    moves
        Whether it only moves elements, so that its cost is bytes alone.
    """

    name: str
    infer: Infer
    evaluate: Evaluate
    flops: Flops
    moves: bool = False


TERM_OPERATORS: dict[str, TermOperator] = {}


def declare(name: str, infer: Infer, evaluate: Evaluate, flops: Flops | None = None) -> None:
    """Declare an operator; without ``flops`` it only moves data."""
    assert name not in TERM_OPERATORS, f"{name} is declared twice"
    TERM_OPERATORS[name] = TermOperator(name, infer, evaluate, flops or _no_flops, flops is None)


def _no_flops(attributes: Attributes, inputs: list[TensorInfo], output: TensorInfo) -> int:
    return 0


def per_output(attributes: Attributes, inputs: list[TensorInfo], output: TensorInfo) -> int:
    """One operation per element of the result."""
    return output.size


def per_input(attributes: Attributes, inputs: list[TensorInfo], output: TensorInfo) -> int:
    """One operation per element of the first operand."""
    return inputs[0].size


def require(holds: bool, reason: str) -> None:
    """Refuse operands unless ``holds``."""
    if not holds:
        raise Inapplicable(reason)


def broadcast_shape(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape of operands that are broadcast against each other."""
    listed = list(shapes)
    rank = max(map(len, listed))
    found = [1] * rank
    for shape in listed:
        for axis, extent in enumerate(shape, start=rank - len(shape)):
            if extent == found[axis] or extent == 1:
                continue
            require(found[axis] == 1, f"shapes {' and '.join(map(str, listed))} do not broadcast")
            found[axis] = extent
    return tuple(found)


def _same_dtype(inputs: list[TensorInfo]) -> str:
    dtypes = {info.dtype for info in inputs}
    require(len(dtypes) == 1, f"operands of types {' and '.join(sorted(dtypes))}")
    return inputs[0].dtype


def _elementwise(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    return TensorInfo(broadcast_shape(i.shape for i in inputs), _same_dtype(inputs))


def _comparison(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    return TensorInfo(_elementwise(attributes, inputs).shape, "bool")


def _by_numpy(name: str) -> Evaluate:
    """The evaluator with which constants are folded; it needs neither attributes nor the output's type."""
    evaluator = NUMPY_OPERATORS[name].evaluate
    return lambda attributes, arrays: evaluator(None, arrays, None)


def _unary(function: Callable[[Array], Any]) -> Evaluate:
    return lambda attributes, arrays: np.asarray(function(arrays[0])).astype(arrays[0].dtype)


_erf = np.vectorize(math.erf, otypes=[np.float64])

_NAMES = (
    "abs acos asin atan ceil cos cosh erf exp floor log log10 log2 negative nn.relu rsqrt round sigmoid sign "
    "sin sinh sqrt tan tanh trunc"
)
UNARY_FLOAT = tuple(_NAMES.split())
_MISSING: dict[str, Callable[[Array], Any]] = {
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "cosh": np.cosh,
    "sinh": np.sinh,
    "tan": np.tan,
    "log2": np.log2,
    "log10": np.log10,
    "erf": _erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
for _name in UNARY_FLOAT:
    declare(
        _name, _elementwise, _unary(_MISSING[_name]) if _name in _MISSING else _by_numpy(_name), per_output
    )
for _name in ("bitwise_not", "logical_not"):
    declare(_name, _elementwise, _by_numpy(_name), per_output)

ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
SHIFTS = ("left_shift", "right_shift")
for _name in (*ARITHMETIC, *LOGICAL, *BITWISE, *SHIFTS):
    declare(_name, _elementwise, _by_numpy(_name), per_output)
for _name in COMPARISONS:
    declare(_name, _comparison, _by_numpy(_name), per_output)

BINARY = (*ARITHMETIC, *COMPARISONS, *LOGICAL, *BITWISE, *SHIFTS)
ELEMENTWISE = frozenset((*UNARY_FLOAT, "bitwise_not", "logical_not", *BINARY, "where"))
# For floats, too: NaN payloads aside. maximum and minimum return their second operand beside a NaN.
COMMUTATIVE = frozenset({"add", "multiply", "equal", "not_equal", *LOGICAL, *BITWISE})
COMMUTATIVE_IF_FINITE = COMMUTATIVE | {"maximum", "minimum"}


def _where(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    require(inputs[0].dtype == "bool", "a condition that is not boolean")
    return TensorInfo(broadcast_shape(i.shape for i in inputs), _same_dtype(inputs[1:]))


declare("where", _where, lambda attributes, arrays: np.where(*arrays), per_output)


def _cast(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    return TensorInfo(inputs[0].shape, attributes["dtype"])


def _clip(attributes: Attributes, arrays: list[Array]) -> Array:
    low, high = (arrays[0].dtype.type(attributes[name]) for name in ("a_min", "a_max"))
    capped = np.where(arrays[0] < high, arrays[0], high)
    return np.where(capped > low, capped, low)


def _leaky_relu(attributes: Attributes, arrays: list[Array]) -> Array:
    alpha = arrays[0].dtype.type(attributes["alpha"])
    return np.where(arrays[0] > 0, arrays[0], arrays[0] * alpha)


declare("cast", _cast, lambda attributes, arrays: arrays[0].astype(attributes["dtype"]), per_output)
declare("clip", _elementwise, _clip, per_output)
declare("nn.leaky_relu", _elementwise, _leaky_relu, per_output)


def _reduced(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    shape, axes = inputs[0].shape, attributes["axes"]
    require(all(0 <= axis < len(shape) for axis in axes), "an axis that is not there")
    if attributes["keepdims"]:
        return TensorInfo(tuple(1 if a in axes else n for a, n in enumerate(shape)), inputs[0].dtype)
    return TensorInfo(tuple(n for a, n in enumerate(shape) if a not in axes), inputs[0].dtype)


def _reduction(function: Callable[..., Any]) -> Evaluate:
    def evaluate(attributes: Attributes, arrays: list[Array]) -> Array:
        found = function(arrays[0], axis=attributes["axes"], keepdims=attributes["keepdims"])
        return np.asarray(found).astype(arrays[0].dtype)

    return evaluate


REDUCTIONS = ("sum", "prod", "max", "min", "mean", "any", "all")
for _name in REDUCTIONS:
    declare(_name, _reduced, _reduction(getattr(np, _name)), per_input)


def _softmax(attributes: Attributes, arrays: list[Array]) -> Array:
    axis = attributes["axis"]
    powers = np.exp(arrays[0] - arrays[0].max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _of_floats(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
    require(inputs[0].dtype.startswith("float"), "a softmax of numbers that are no floats")
    return inputs[0]


declare(
    "nn.softmax",
    _of_floats,
    _softmax,
    lambda attributes, inputs, output: 5 * output.size,
)
