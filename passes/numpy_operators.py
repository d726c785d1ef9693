"""NumPy evaluators of Relay operators: one declaration per operator, with the probes that test it.

An evaluator computes what the operator's generic ``llvm`` kernel computes, bit for bit, except where ``ulps``
allows a transcendental function the rounding of another mathematical library. Sources: TVM's
``src/relay/op/tensor/{unary,binary,transform}.cc``, ``topi`` and ``src/target/llvm/codegen_llvm.cc``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relay
from tvm_dnnfusion.passes.static_types import OutputType


class Unevaluated(Exception):
    """The call is better left in the graph: its value is undefined (an integer divided by zero)."""


class NoEvaluator(Exception):
    """This form of the operator has no NumPy evaluator: ask stock Relay."""


Evaluator = Callable[[Any, list[Any], Any], Any]


@dataclass(frozen=True)
class Probe:
    """One test of an evaluator.

    Parameters
    ----------
    build
        Makes the Relay expression, whose last call is the operator, of variables.
    inputs
        Shape and dtype of each variable.
    positive
        Whether the data must be positive (arguments of ``log``, divisors, shift counts).
    """

    build: Callable[..., relay.Expr]
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    positive: bool = False


@dataclass(frozen=True)
class NumpyOperator:
    """A Relay operator's evaluator.

    Parameters
    ----------
    name
        Relay's name.
    evaluate
        ``evaluate(attrs, inputs, output)`` with NumPy inputs (a tuple of them for a Tuple argument) and the
        :class:`OutputType` (a tuple of them for a tuple result); returns an array or a tuple of arrays.
    probes
        Tests against stock Relay.
    ulps
        Largest distance from stock Relay's result in units in the last place.
    """

    name: str
    evaluate: Evaluator
    probes: tuple[Probe, ...]
    ulps: int = 0


NUMPY_OPERATORS: dict[str, NumpyOperator] = {}


def numpy_operator(name: str, evaluate: Evaluator, probes: Sequence[Probe], ulps: int = 0) -> None:
    """Declare the evaluator of ``name``; a second declaration is an error of ours."""
    assert name not in NUMPY_OPERATORS, f"{name} has two NumPy evaluators"
    NUMPY_OPERATORS[name] = NumpyOperator(name, evaluate, tuple(probes), ulps)


def constructor(name: str) -> Callable[..., relay.Expr]:
    """Relay's Python constructor of the operator ``name``, such as ``relay.nn.relu``."""
    found: Any = relay
    for part in name.split("."):
        found = getattr(found, part)
    return found


FLOAT = ("float32", "float64")
INTEGER = ("int64", "uint8")
NUMBER = ("float32", *INTEGER)


def _unary(
    name: str, function: Callable[..., Any], dtypes: Sequence[str], ulps: int = 0, positive: bool = False
) -> None:
    def evaluate(attrs: Any, inputs: list[np.ndarray], output: OutputType) -> np.ndarray:
        return function(inputs[0])

    probes = [Probe(constructor(name), (((3, 5), dtype),), positive) for dtype in dtypes]
    numpy_operator(name, evaluate, probes, ulps)


def _binary(
    name: str, function: Callable[..., Any], dtypes: Sequence[str], ulps: int = 0, positive: bool = False
) -> None:
    def evaluate(attrs: Any, inputs: list[np.ndarray], output: OutputType) -> np.ndarray:
        return function(*inputs)

    shapes = (((3, 5), (3, 5)), ((2, 1, 5), (3, 1)), ((4,), ()))
    probes = [
        Probe(constructor(name), ((left, dtype), (right, dtype)), positive)
        for dtype, (left, right) in zip(dtypes, shapes * len(dtypes), strict=False)
    ]
    numpy_operator(name, evaluate, probes, ulps)


def _round(x: np.ndarray) -> np.ndarray:
    """Halves away from zero, as C's ``round``; NumPy's goes to the even neighbour."""
    whole = np.trunc(x)
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)


def _maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a > b ? a : b``: the second operand when either is NaN, as the generated code does."""
    return np.where(a > b, a, b)


def _minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a < b, a, b)


def _nonzero_divisor(a: np.ndarray, b: np.ndarray) -> None:
    if a.dtype.kind in "iu" and not np.all(b):
        raise Unevaluated


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integers truncate towards zero, without a detour through floating point."""
    if a.dtype.kind not in "iu":
        return a / b
    _nonzero_divisor(a, b)
    quotient = np.floor_divide(a, b)
    inexact = quotient * b != a
    return quotient + (inexact & ((a < 0) != (b < 0))).astype(a.dtype)


def _floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    _nonzero_divisor(a, b)
    return np.floor_divide(a, b) if a.dtype.kind in "iu" else np.floor(a / b)


def _mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """C's remainder: the sign of the dividend."""
    _nonzero_divisor(a, b)
    return np.fmod(a, b)


def _floor_mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    _nonzero_divisor(a, b)
    return np.mod(a, b) if a.dtype.kind in "iu" else a - np.floor(a / b) * b


def _clip(attrs: Any, inputs: list[np.ndarray], output: OutputType) -> np.ndarray:
    low, high = output.dtype.type(attrs.a_min), output.dtype.type(attrs.a_max)
    return _maximum(_minimum(inputs[0], high), low)


def _cast(attrs: Any, inputs: list[np.ndarray], output: OutputType) -> np.ndarray:
    """A float outside the integer type's range has no defined value: such a cast stays in the graph."""
    data = inputs[0]
    if data.dtype.kind == "f" and output.dtype.kind in "iu":
        limits = np.iinfo(output.dtype)
        whole = np.trunc(data.astype(np.float64))
        if not np.all((whole >= limits.min) & (whole < float(limits.max) + 1.0)):
            raise Unevaluated
    return data.astype(output.dtype)


def _where(attrs: Any, inputs: list[np.ndarray], output: OutputType) -> np.ndarray:
    return np.where(inputs[0].astype(bool), inputs[1], inputs[2])


def _integer_reduction(function: Callable[..., np.ndarray]) -> Evaluator:
    """Integers only: the order in which floats are summed is the kernel's own."""

    def evaluate(attrs: Any, inputs: list[np.ndarray], output: OutputType) -> np.ndarray:
        data = inputs[0]
        if data.dtype.kind not in "iub":
            raise NoEvaluator
        axes = range(data.ndim) if attrs.axis is None else [int(axis) % data.ndim for axis in attrs.axis]
        chosen = set(axes)
        if bool(attrs.exclude):
            chosen = set(range(data.ndim)) - chosen
        result = function(data, axis=tuple(sorted(chosen)), keepdims=bool(attrs.keepdims))
        return np.asarray(result).astype(output.dtype)

    return evaluate


_unary("negative", np.negative, ("float32", "int64"))
_unary("abs", np.abs, ("float32", "int64"))
_unary("sign", np.sign, ("float32", "int64"))
_unary("ceil", np.ceil, ("float32",))
_unary("floor", np.floor, ("float32",))
_unary("trunc", np.trunc, ("float32",))
_unary("round", _round, ("float32",))
_unary("isnan", np.isnan, ("float32",))
_unary("isfinite", np.isfinite, ("float32",))
_unary("isinf", np.isinf, ("float32",))
_unary("exp", np.exp, FLOAT, ulps=4)
_unary("sin", np.sin, FLOAT, ulps=4)
_unary("cos", np.cos, FLOAT, ulps=4)
_unary("tanh", np.tanh, FLOAT, ulps=4)
_unary("log", np.log, FLOAT, ulps=4, positive=True)
_unary("sqrt", np.sqrt, FLOAT, positive=True)
_unary("rsqrt", lambda x: x.dtype.type(1) / np.sqrt(x), FLOAT, positive=True)
_unary("nn.relu", lambda x: _maximum(x, x.dtype.type(0)), ("float32", "int32"))
_unary("copy", lambda x: x, ("float32", "int64"))
_unary("logical_not", np.logical_not, ("bool",))
_unary("bitwise_not", np.bitwise_not, INTEGER)

_binary("add", np.add, NUMBER)
_binary("subtract", np.subtract, NUMBER)
_binary("multiply", np.multiply, NUMBER)
_binary("maximum", _maximum, NUMBER)
_binary("minimum", _minimum, NUMBER)
_binary("divide", _divide, NUMBER, positive=True)
_binary("floor_divide", _floor_divide, NUMBER, positive=True)
_binary("mod", _mod, NUMBER, positive=True)
_binary("floor_mod", _floor_mod, NUMBER, positive=True)
_binary("power", np.power, FLOAT, positive=True, ulps=2)
_binary("equal", np.equal, ("float32", "int64"))
_binary("not_equal", np.not_equal, ("float32", "int64"))
_binary("less", np.less, ("float32", "int64"))
_binary("less_equal", np.less_equal, ("float32", "int64"))
_binary("greater", np.greater, ("float32", "int64"))
_binary("greater_equal", np.greater_equal, ("float32", "int64"))
_binary("logical_and", np.logical_and, ("bool", "bool"))
_binary("logical_or", np.logical_or, ("bool", "bool"))
_binary("logical_xor", np.logical_xor, ("bool", "bool"))
_binary("bitwise_and", np.bitwise_and, INTEGER)
_binary("bitwise_or", np.bitwise_or, INTEGER)
_binary("bitwise_xor", np.bitwise_xor, INTEGER)
_binary("left_shift", np.left_shift, INTEGER, positive=True)
_binary("right_shift", np.right_shift, INTEGER, positive=True)

numpy_operator(
    "clip", _clip, [Probe(lambda x: relay.clip(x, -0.7, 0.9), (((4, 5), d),)) for d in ("float32", "float64")]
)
numpy_operator(
    "cast",
    _cast,
    [
        Probe(lambda x, to=to: relay.cast(x, to), (((4, 5), source),))
        for source, to in (
            ("float32", "float64"),
            ("float32", "int32"),
            ("float32", "bool"),
            ("float64", "float32"),
            ("float64", "int8"),
            ("int64", "float32"),
            ("int64", "int8"),
            ("int32", "uint8"),
            ("bool", "float32"),
            ("bool", "int64"),
            ("float32", "float16"),
            ("float16", "float32"),
        )
    ],
)
numpy_operator(
    "where",
    _where,
    [
        Probe(relay.where, (((3, 4), "bool"), ((3, 4), "float32"), ((3, 4), "float32"))),
        Probe(relay.where, (((3, 1), "bool"), ((), "float32"), ((2, 3, 4), "float32"))),
        Probe(relay.where, (((5,), "int32"), ((5,), "int64"), ((5,), "int64"))),
    ],
)


def _reduction(name: str, function: Callable[..., np.ndarray]) -> None:
    make = constructor(name)
    probes = [
        Probe(lambda x: make(x, axis=[0, -1]), (((2, 3, 4), "int64"),)),
        Probe(lambda x: make(x, keepdims=True), (((2, 3), "int32"),)),
        Probe(lambda x: make(x, axis=1, exclude=True), (((2, 3, 2), "int32"),)),
    ]
    numpy_operator(name, _integer_reduction(function), probes)


_reduction("sum", np.sum)
_reduction("prod", np.prod)
_reduction("max", np.max)
_reduction("min", np.min)
