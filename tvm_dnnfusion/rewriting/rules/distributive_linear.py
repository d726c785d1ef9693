"""Linear operators: what two of them have in common, and factors and summands that weights absorb."""

from __future__ import annotations

from ..language import C, V, W, X, Y
from ..matching import Match
from ..operators_linear import CONTRACTIONS, CONVOLUTIONS, TRANSPOSED
from ..pattern import OperatorVariable, Variable
from ..rule import Probe, Property, rule

# Linear in each of its two operands, data and weights.
bilinear = OperatorVariable("linear", frozenset((*CONTRACTIONS, *CONVOLUTIONS, *TRANSPOSED)))

_CONV1 = ("nn.conv1d", dict(strides=(2,), padding=(1, 1), dilation=(1,), groups=1, kernel_size=(3,)))
_CONV2 = (
    "nn.conv2d",
    dict(strides=(1, 2), padding=(1, 0, 1, 2), dilation=(1, 1), groups=1, kernel_size=(3, 2)),
)
_GROUPED = (
    "nn.conv2d",
    dict(strides=(1, 1), padding=(1, 1, 1, 1), dilation=(1, 1), groups=2, kernel_size=(3, 3)),
)
_CONV3 = (
    "nn.conv3d",
    dict(strides=(1,) * 3, padding=(0,) * 6, dilation=(1, 2, 1), groups=1, kernel_size=(2, 2, 1)),
)
_BACK2 = (
    "nn.conv2d_transpose",
    dict(
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=1,
        kernel_size=(3, 3),
        output_padding=(1, 0),
    ),
)
_BACK1 = (
    "nn.conv1d_transpose",
    dict(strides=(2,), padding=(1, 0), dilation=(1,), groups=1, kernel_size=(3,), output_padding=(0,)),
)
_PRODUCT = dict(transpose_a=False, transpose_b=False)
_KINDS: list[tuple[object, tuple[int, ...], tuple[int, ...]]] = [
    (("nn.dense", {}), (6, 8), (5, 8)),
    (("nn.matmul", _PRODUCT), (6, 8), (8, 5)),
    (("nn.batch_matmul", dict(transpose_a=True, transpose_b=False)), (2, 8, 6), (2, 8, 5)),
    (_CONV1, (1, 4, 9), (6, 4, 3)),
    (_CONV2, (2, 4, 7, 6), (6, 4, 3, 2)),
    (_GROUPED, (1, 4, 6, 6), (6, 2, 3, 3)),
    (_CONV3, (1, 2, 4, 5, 3), (3, 2, 2, 2, 1)),
    (_BACK1, (1, 4, 5), (4, 3, 3)),
    (_BACK2, (1, 4, 5, 5), (4, 3, 3, 3)),
]


def _each_kind(data: str, weights: str, constant: bool = False, **more: object) -> list[dict[str, object]]:
    """A probe per linear operator, for data and weights variables of these names."""
    probes: list[dict[str, object]] = []
    for operator, x, w in _KINDS:
        found: dict[str, object] = {"linear": operator, **more}
        found |= dict.fromkeys(data, x)
        found |= {name: Probe(w, constant=constant) for name in weights}
        probes.append(found)
    return probes


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class AddDataOnce:
    """Two results of the same weights are one of the sum of the data."""

    lhs, rhs = bilinear(X, W) + bilinear(Y, W), bilinear(X + Y, W)
    fires = _each_kind("XY", "W")
    refuses = [(dict(X=(1, 8), Y=(6, 8), W=(5, 8), linear="nn.dense"), "broadcast")]
    integers = True

    @staticmethod
    def why_not(m: Match) -> str | None:
        return _same(m, X, Y)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class SubtractDataOnce:
    """A difference of two results of the same weights is one of the difference of the data."""

    lhs, rhs = bilinear(X, W) - bilinear(Y, W), bilinear(X - Y, W)
    fires = _each_kind("XY", "W")
    integers = True

    @staticmethod
    def why_not(m: Match) -> str | None:
        return _same(m, X, Y)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class AddWeightsOnce:
    """Two results of the same data are one of the sum of the weights, folded if they are constant."""

    lhs, rhs = bilinear(X, W) + bilinear(X, V), bilinear(X, W + V)
    fires = _each_kind("X", "WV")
    integers = True

    @staticmethod
    def why_not(m: Match) -> str | None:
        return _same(m, W, V)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class SubtractWeightsOnce:
    """A difference of two results of the same data is one of the difference of the weights."""

    lhs, rhs = bilinear(X, W) - bilinear(X, V), bilinear(X, W - V)
    fires = _each_kind("X", "WV")
    integers = True

    @staticmethod
    def why_not(m: Match) -> str | None:
        return _same(m, W, V)


def _same(m: Match, first: Variable, second: Variable) -> str | None:
    if m.shape(first) == m.shape(second):
        return None
    return f"broadcast: operands of shapes {m.shape(first)} and {m.shape(second)}"


def _scalar(m: Match) -> str | None:
    return None if m.info(C).size == 1 else "the factor is not one number"


_ONE = Probe((1,), constant=True)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleWeights:
    """One factor for the whole result is one for the weights, which is folded if they are constant."""

    lhs, rhs = bilinear(X, W) * C, bilinear(X, W * C)
    fires = _each_kind("X", "W", constant=True, C=_ONE)
    refuses = [(dict(linear="nn.dense", X=(6, 8), W=(5, 8), C=(5,)), "one number")]
    integers = True
    why_not = staticmethod(_scalar)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleSmallerData:
    """One factor for the result is one for the data, if they are smaller: the scale of attention scores."""

    lhs, rhs = bilinear(X, W) * C, bilinear(X * C, W)
    fires = [
        dict(
            linear=("nn.batch_matmul", dict(transpose_a=False, transpose_b=True)),
            X=(2, 16, 4),
            W=(2, 16, 4),
            C=(),
        )
    ]
    integers = True
    why_not = staticmethod(_scalar)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleWeightsForData:
    """One factor for all data is one for the weights, which is folded if they are constant."""

    lhs, rhs = bilinear(X * C, W), bilinear(X, W * C)
    fires = _each_kind("X", "W", constant=True, C=_ONE)
    integers = True
    why_not = staticmethod(_scalar)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideWeights:
    """One divisor for the whole result is one for the weights."""

    lhs, rhs = bilinear(X, W) / C, bilinear(X, W / C)
    fires = _each_kind("X", "W", constant=True, C=_ONE)
    why_not = staticmethod(_scalar)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideSmallerData:
    """One divisor for the result is one for the data, if they are smaller."""

    lhs, rhs = bilinear(X, W) / C, bilinear(X / C, W)
    fires = [
        dict(
            linear=("nn.batch_matmul", dict(transpose_a=False, transpose_b=True)),
            X=(2, 16, 4),
            W=(2, 16, 4),
            C=(),
        )
    ]
    why_not = staticmethod(_scalar)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideWeightsForData:
    """One divisor for all data is one for the weights."""

    lhs, rhs = bilinear(X / C, W), bilinear(X, W / C)
    fires = _each_kind("X", "W", constant=True, C=_ONE)
    why_not = staticmethod(_scalar)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class NegateWeights:
    """The negative of a result is that of negative weights."""

    lhs, rhs = -bilinear(X, W), bilinear(X, -W)
    fires = _each_kind("X", "W", constant=True)
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class NegateWeightsForData:
    """Negative data with weights are data with negative weights."""

    lhs, rhs = bilinear(-X, W), bilinear(X, -W)
    fires = _each_kind("X", "W", constant=True)
    integers = True
