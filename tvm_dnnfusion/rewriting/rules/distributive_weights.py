"""Factors and constant summands per unit, per feature and per channel that weights absorb."""

from __future__ import annotations

from ..calculations import vector_along
from ..language import C, N, T, W, X, batch_matmul, c, conv, conv_transpose, d, dense, matmul, reshape
from ..matching import Match
from ..rule import Probe, Property, rule

_DENSE = Probe((5, 8), constant=True)
_UNITS, _FEATURES = Probe((5,), constant=True), Probe((8,), constant=True)
_ROWS = Probe((6, 1), constant=True)
_PLAIN = dict(T=False, N=False)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleDenseUnits:
    """A factor per unit of a dense layer scales the rows of its weights."""

    lhs, rhs = dense(X, W) * C, dense(X, W * reshape(C, shape=vector_along(C, W, -1, 0)))
    fires = [dict(X=(6, 8), W=_DENSE, C=_UNITS), dict(X=(2, 6, 8), W=_DENSE, C=Probe((1, 5), constant=True))]
    refuses = [(dict(X=(6, 8), W=_DENSE, C=_ROWS), "axis -1 alone")]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideDenseUnits:
    """A divisor per unit of a dense layer divides the rows of its weights."""

    lhs, rhs = dense(X, W) / C, dense(X, W / reshape(C, shape=vector_along(C, W, -1, 0)))
    fires = [dict(X=(6, 8), W=_DENSE, C=_UNITS)]


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleDenseFeatures:
    """A factor per feature, as behind a layer norm, scales the columns of a dense layer's weights."""

    lhs, rhs = dense(X * C, W), dense(X, W * reshape(C, shape=vector_along(C, W, -1, 1)))
    fires = [dict(X=(6, 8), W=_DENSE, C=_FEATURES), dict(X=(2, 6, 8), W=_DENSE, C=_FEATURES)]
    refuses = [(dict(X=(6, 8), W=_DENSE, C=_ROWS), "axis -1 alone")]
    integers = True

    @staticmethod
    def why_not(m: Match) -> str | None:
        return _narrow(m)


def _narrow(m: Match) -> str | None:
    """A broadcast that makes the data larger cannot move to the weights."""
    wide = m.shape(X)
    return None if wide[-1:] == m.shape(W)[1:2] else "broadcast: the features come from the other operand"


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideDenseFeatures:
    """A divisor per feature divides the columns of a dense layer's weights."""

    lhs, rhs = dense(X / C, W), dense(X, W / reshape(C, shape=vector_along(C, W, -1, 1)))
    fires = [dict(X=(6, 8), W=_DENSE, C=_FEATURES)]
    why_not = staticmethod(_narrow)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class MoveShiftBehindDense:
    """A constant summand per feature, as behind a layer norm, joins the constant behind the dense layer."""

    lhs = dense(X + c, W) + d
    rhs = dense(X, W) + (dense(reshape(c, shape=vector_along(c, W, -1, 1)), W) + d)
    fires = [dict(X=(6, 8), W=_DENSE, c=(8,), d=(5,)), dict(X=(6, 8), W=_DENSE, c=(1, 8), d=(1, 5))]
    refuses = [(dict(X=(6, 8), W=_DENSE, c=(6, 1), d=(5,)), "axis -1 alone")]
    integers = True
    why_not = staticmethod(_narrow)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ShiftDenseResult:
    """A constant summand of many features is one of few units."""

    lhs, rhs = dense(X + c, W), dense(X, W) + dense(reshape(c, shape=vector_along(c, W, -1, 1)), W)
    fires = [dict(X=(6, 8), W=_DENSE, c=(8,))]
    integers = True
    why_not = staticmethod(_narrow)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleDenseAndBias:
    """A factor per unit behind a dense layer and its bias scales both."""

    lhs = (dense(X, W) + c) * C
    rhs = dense(X, W * reshape(C, shape=vector_along(C, W, -1, 0))) + c * C
    fires = [
        dict(X=(6, 8), W=_DENSE, c=(5,), C=_UNITS),
        dict(X=(6, 8), W=_DENSE, c=(5,), C=Probe((), constant=True)),
    ]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideDenseAndBias:
    """A divisor per unit behind a dense layer and its bias divides both."""

    lhs = (dense(X, W) + c) / C
    rhs = dense(X, W / reshape(C, shape=vector_along(C, W, -1, 0))) + c / C
    fires = [dict(X=(6, 8), W=_DENSE, c=(5,), C=_UNITS)]


_MATRIX = Probe((8, 5), constant=True)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleMatrixColumns:
    """A factor per column of a product scales the columns of its right matrix."""

    lhs = matmul(X, W, transpose_a=N, transpose_b=T) * C
    rhs = matmul(X, W * reshape(C, shape=vector_along(C, W, -1, 1, 0, T)), transpose_a=N, transpose_b=T)
    fires = [
        dict(X=(6, 8), W=_MATRIX, C=_UNITS, **_PLAIN),
        dict(X=(6, 8), W=_DENSE, C=_UNITS, N=False, T=True),
    ]
    refuses = [(dict(X=(6, 8), W=_MATRIX, C=_ROWS, **_PLAIN), "axis -1 alone")]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleMatrixRows:
    """A factor per row of a product of few columns scales the rows of its left matrix."""

    lhs = matmul(X, W, transpose_a=N, transpose_b=T) * C
    rhs = matmul(X * reshape(C, shape=vector_along(C, X, -2, 0, 1, N)), W, transpose_a=N, transpose_b=T)
    fires = [dict(X=Probe((6, 4), constant=True), W=(4, 8), C=_ROWS, **_PLAIN)]
    integers = True


_BATCH = Probe((2, 8, 5), constant=True)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleBatchColumns:
    """A factor per column of products of many rows scales the right matrices."""

    lhs = batch_matmul(X, W, transpose_a=N, transpose_b=T) * C
    rhs = batch_matmul(X, W * reshape(C, shape=vector_along(C, W, -1, 2, 1, T)), transpose_a=N, transpose_b=T)
    fires = [dict(X=(2, 6, 8), W=_BATCH, C=_UNITS, **_PLAIN)]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleBatchRows:
    """A factor per row of products of many columns scales the left matrices."""

    lhs = batch_matmul(X, W, transpose_a=N, transpose_b=T) * C
    rhs = batch_matmul(X * reshape(C, shape=vector_along(C, X, -2, 1, 2, N)), W, transpose_a=N, transpose_b=T)
    fires = [dict(X=(2, 6, 4), W=(2, 4, 8), C=(6, 1), **_PLAIN)]
    integers = True


_CONV2 = (
    "nn.conv2d",
    dict(strides=(1, 2), padding=(1, 0, 1, 2), dilation=(1, 1), groups=1, kernel_size=(3, 2)),
)
_GROUPED = (
    "nn.conv2d",
    dict(strides=(1, 1), padding=(1,) * 4, dilation=(1, 1), groups=2, kernel_size=(3, 3)),
)
_CONV1 = ("nn.conv1d", dict(strides=(2,), padding=(1, 1), dilation=(1,), groups=1, kernel_size=(3,)))
_CONV3 = (
    "nn.conv3d",
    dict(strides=(1,) * 3, padding=(0,) * 6, dilation=(1, 2, 1), groups=1, kernel_size=(2, 2, 1)),
)
_BACK = dict(
    strides=(2, 2), padding=(1,) * 4, dilation=(1, 1), groups=1, kernel_size=(3, 3), output_padding=(1, 0)
)
_FACTOR2 = Probe((6, 1, 1), constant=True)
_KERNELS = [
    dict(conv=_CONV2, X=(2, 4, 7, 6), W=Probe((6, 4, 3, 2), constant=True), C=_FACTOR2),
    dict(
        conv=_GROUPED,
        X=(1, 4, 6, 6),
        W=Probe((6, 2, 3, 3), constant=True),
        C=Probe((1, 6, 1, 1), constant=True),
    ),
    dict(conv=_CONV1, X=(1, 4, 9), W=Probe((6, 4, 3), constant=True), C=Probe((6, 1), constant=True)),
    dict(
        conv=_CONV3,
        X=(1, 2, 4, 5, 3),
        W=Probe((3, 2, 2, 2, 1), constant=True),
        C=Probe((3, 1, 1, 1), constant=True),
    ),
]
_TRANSPOSED = dict(
    conv_transpose=("nn.conv2d_transpose", _BACK), X=(1, 4, 5, 5), W=Probe((4, 3, 3, 3), constant=True)
)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleConvolutionChannels:
    """A factor per output channel of a convolution scales its kernels."""

    lhs, rhs = conv(X, W) * C, conv(X, W * reshape(C, shape=vector_along(C, W, 1, 0)))
    fires = _KERNELS
    refuses = [(dict(_KERNELS[0], C=Probe((7, 1), constant=True)), "axis 1 alone")]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideConvolutionChannels:
    """A divisor per output channel of a convolution divides its kernels."""

    lhs, rhs = conv(X, W) / C, conv(X, W / reshape(C, shape=vector_along(C, W, 1, 0)))
    fires = _KERNELS


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleConvolutionAndBias:
    """A factor per output channel behind a convolution and its bias scales both."""

    lhs = (conv(X, W) + c) * C
    rhs = conv(X, W * reshape(C, shape=vector_along(C, W, 1, 0))) + c * C
    fires = [dict(_KERNELS[0], c=(6, 1, 1)), dict(_KERNELS[2], c=(6, 1))]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideConvolutionAndBias:
    """A divisor per output channel behind a convolution and its bias divides both."""

    lhs = (conv(X, W) + c) / C
    rhs = conv(X, W / reshape(C, shape=vector_along(C, W, 1, 0))) + c / C
    fires = [dict(_KERNELS[0], c=(6, 1, 1))]


def _one_group(m: Match) -> str | None:
    attributes = dict(m.bindings["conv"][1])
    if attributes["groups"] != 1:
        return "a grouped convolution"
    return (
        None if m.shape(X)[1:2] == m.shape(W)[1:2] else "broadcast: the channels come from the other operand"
    )


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleConvolutionInputs:
    """A factor per input channel of a convolution scales its kernels; padding is zero either way."""

    lhs, rhs = conv(X * C, W), conv(X, W * reshape(C, shape=vector_along(C, W, 1, 1)))
    fires = [
        dict(_KERNELS[0], C=Probe((4, 1, 1), constant=True)),
        dict(_KERNELS[2], C=Probe((4, 1), constant=True)),
    ]
    refuses = [(dict(_KERNELS[1], C=Probe((4, 1, 1), constant=True)), "grouped")]
    integers = True
    why_not = staticmethod(_one_group)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class DivideConvolutionInputs:
    """A divisor per input channel of a convolution divides its kernels."""

    lhs, rhs = conv(X / C, W), conv(X, W / reshape(C, shape=vector_along(C, W, 1, 1)))
    fires = [dict(_KERNELS[0], C=Probe((4, 1, 1), constant=True))]
    why_not = staticmethod(_one_group)


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleTransposedChannels:
    """A factor per output channel of a transposed convolution scales its kernels along their second axis."""

    lhs, rhs = conv_transpose(X, W) * C, conv_transpose(X, W * reshape(C, shape=vector_along(C, W, 1, 1)))
    fires = [dict(_TRANSPOSED, C=Probe((3, 1, 1), constant=True))]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleTransposedAndBias:
    """A factor per output channel behind a transposed convolution and its bias scales both."""

    lhs = (conv_transpose(X, W) + c) * C
    rhs = conv_transpose(X, W * reshape(C, shape=vector_along(C, W, 1, 1))) + c * C
    fires = [dict(_TRANSPOSED, C=Probe((3, 1, 1), constant=True), c=(3, 1, 1))]
    integers = True


@rule(Property.DISTRIBUTIVE, numerics="reassociates")
class ScaleTransposedInputs:
    """A factor per input channel of a transposed convolution scales its kernels along their first axis."""

    lhs, rhs = conv_transpose(X * C, W), conv_transpose(X, W * reshape(C, shape=vector_along(C, W, 1, 0)))
    fires = [dict(_TRANSPOSED, C=Probe((4, 1, 1), constant=True))]
    integers = True

    @staticmethod
    def why_not(m: Match) -> str | None:
        return (
            None
            if m.shape(X)[1:2] == m.shape(W)[:1]
            else "broadcast: the channels come from the other operand"
        )
