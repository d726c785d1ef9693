"""NumPy evaluators of Relay's data-movement and constant-making operators.

They read shapes from the inferred output type wherever it decides them, so Relay's special values
(``reshape`` with 0, -1, ...) need no second interpretation. Views are returned where NumPy has one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relay
from tvm_dnnfusion.passes.blocked_layout import transform_layout
from tvm_dnnfusion.passes.numpy_operators import NoEvaluator, Probe, numpy_operator
from tvm_dnnfusion.passes.static_types import OutputType

Arrays = list[Any]


def _reshape(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return inputs[0].reshape(output.shape)


def _transpose(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    axes = None if attrs.axes is None else [int(axis) for axis in attrs.axes]
    return np.transpose(inputs[0], axes or None)


def _layout_transform(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return transform_layout(inputs[0], str(attrs.src_layout), str(attrs.dst_layout))


def _broadcast_to(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return np.broadcast_to(inputs[0], output.shape)


def _filled(value: int) -> Any:
    def evaluate(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
        return np.broadcast_to(output.dtype.type(value), output.shape)

    return evaluate


def _full(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return np.broadcast_to(inputs[-1].astype(output.dtype), output.shape)


def _arange(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    """``start + step * i``, each operation rounded in the output's dtype as the kernel's is."""
    start, _, step = (value.astype(output.dtype) for value in inputs)
    return start + step * np.arange(output.shape[0]).astype(output.dtype)


def _concatenate(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return np.concatenate(inputs[0], axis=int(attrs.axis))


def _stack(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return np.stack(inputs[0], axis=int(attrs.axis))


def _split(attrs: Any, inputs: Arrays, output: tuple[OutputType, ...]) -> tuple[np.ndarray, ...]:
    axis = int(attrs.axis)
    extents = [part.shape[axis] for part in output]
    return tuple(np.split(inputs[0], np.cumsum(extents)[:-1], axis=axis))


def _take(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    """Modes ``clip`` and ``wrap``; ``fast`` promises indices inside the axis, so it needs no mode."""
    data, indices = inputs
    if int(attrs.batch_dims):
        raise NoEvaluator
    axis = None if attrs.axis is None else int(attrs.axis)
    extent = data.size if axis is None else data.shape[axis]
    mode = str(attrs.mode)
    if mode == "wrap":
        indices = np.mod(indices, extent)
    elif mode == "clip":
        indices = np.clip(indices, 0, extent - 1)
    elif indices.size and (indices.min() < 0 or indices.max() >= extent):
        raise NoEvaluator
    return np.take(data, indices, axis=axis)


def _gather(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return np.take_along_axis(inputs[0], inputs[1].astype(np.int64), axis=int(attrs.axis))


def _strided_slice(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    """Only the form whose bounds Python's slices understand alike: positive strides, mode ``end``."""
    data = inputs[0]
    begins, ends = ([int(i) for i in bound] for bound in (attrs.begin, attrs.end))
    strides = [int(stride) for stride in attrs.strides] or [1]
    if str(attrs.slice_mode) != "end" or min(strides) < 1 or len(ends) != len(begins):
        raise NoEvaluator
    strides += [1] * (len(begins) - len(strides))
    axes = range(len(begins)) if attrs.axes is None else [int(axis) for axis in attrs.axes]
    index = [slice(None)] * data.ndim
    for axis, bounds in zip(axes, zip(begins, ends, strides, strict=True), strict=True):
        index[axis] = slice(*bounds)
    return data[tuple(index)]


def _reverse(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return np.flip(inputs[0], axis=int(attrs.axis))


def _repeat(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    axis = None if attrs.axis is None else int(attrs.axis)
    return np.repeat(inputs[0], int(attrs.repeats), axis=axis)


def _tile(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    return np.tile(inputs[0], [int(r) for r in attrs.reps])


def _pad(attrs: Any, inputs: Arrays, output: OutputType) -> np.ndarray:
    if str(attrs.pad_mode) != "constant":
        raise NoEvaluator
    width = [[int(amount) for amount in pair] for pair in attrs.pad_width]
    return np.pad(inputs[0], width, constant_values=inputs[1].astype(output.dtype))


X, F = ((2, 3, 4), "float32"), "float32"

for _name, _build in {
    "reshape": lambda x: relay.reshape(x, (0, -1)),
    "squeeze": lambda x: relay.squeeze(relay.expand_dims(x, 1), [1]),
    "expand_dims": lambda x: relay.expand_dims(x, -1, 2),
    "nn.batch_flatten": relay.nn.batch_flatten,
}.items():
    numpy_operator(_name, _reshape, [Probe(_build, (X,)), Probe(_build, (((2, 1, 3), "int64"),))])
numpy_operator("reshape_like", _reshape, [Probe(relay.reshape_like, (X, ((6, 4), "int32")))])
numpy_operator(
    "contrib_reverse_reshape",
    _reshape,
    [Probe(lambda x: relay.reverse_reshape(x, (-1, 0)), (X,))],
)
numpy_operator(
    "transpose",
    _transpose,
    [Probe(relay.transpose, (X,))]
    + [Probe(lambda x, a=a: relay.transpose(x, a), (X,)) for a in ((0, 2, 1), (1, -1, 0))],
)
LAYOUTS = (
    ("OIHW", "OIHW8i16o", (32, 16, 3, 1)),
    ("OIHW", "OIHW3i5o", (10, 6, 1, 2)),
    ("OIHW8i16o", "OIHW", (2, 3, 1, 3, 8, 16)),
    ("OIHW", "OHWI16o4i", (32, 8, 2, 2)),
    ("OIHW", "OIHW2i16o4i", (32, 16, 1, 1)),
    ("OIHW4i16o", "OIHW8o8i", (1, 4, 1, 1, 4, 16)),
    ("NCHW", "NCHW8c", (1, 12, 2, 3)),
    ("NCHW16c", "NHWC", (1, 2, 3, 2, 16)),
    ("NCHW", "NHWC", (1, 2, 3, 4)),
    ("NC", "NC16n", (32, 5)),
    ("CN", "NC6n", (4, 12)),
    ("C", "C8c", (24,)),
    ("CHW", "CHW4c", (8, 1, 1)),
    ("NCDHW", "NCDHW4c", (1, 8, 2, 2, 2)),
)
numpy_operator(
    "layout_transform",
    _layout_transform,
    [Probe(lambda x, s=s, t=t: relay.layout_transform(x, s, t), ((shape, F),)) for s, t, shape in LAYOUTS],
)
numpy_operator(
    "broadcast_to",
    _broadcast_to,
    [Probe(lambda x: relay.broadcast_to(x, (2, 3, 4)), ((shape, F),)) for shape in ((3, 1), (), (4,))],
)
numpy_operator("broadcast_to_like", _broadcast_to, [Probe(relay.broadcast_to_like, (((3, 1), F), X))])
numpy_operator("zeros", _filled(0), [Probe(lambda: relay.zeros((2, 3), "int64"), ())])
numpy_operator("ones", _filled(1), [Probe(lambda: relay.ones((2, 3), F), ())])
numpy_operator("zeros_like", _filled(0), [Probe(relay.zeros_like, (X,))])
numpy_operator("ones_like", _filled(1), [Probe(relay.ones_like, (X,))])
numpy_operator(
    "full", _full, [Probe(lambda x, d=d: relay.full(x, (2, 3), d), (((), F),)) for d in (F, "int32")]
)
numpy_operator("full_like", _full, [Probe(relay.full_like, (X, ((), F)))])
numpy_operator(
    "concatenate",
    _concatenate,
    [Probe(lambda a, b, axis=axis: relay.concatenate([a, b], axis), (X, X)) for axis in (0, 1, -1)],
)
numpy_operator(
    "stack", _stack, [Probe(lambda a, b, axis=axis: relay.stack([a, b], axis), (X, X)) for axis in (0, -1)]
)
numpy_operator(
    "split",
    _split,
    [
        Probe(lambda x: relay.split(x, 2, axis=-1).astuple(), (X,)),
        Probe(lambda x: relay.split(x, (1,), axis=1).astuple(), (X,)),
    ],
)
INDICES = ((2, 2), "int64")
numpy_operator(
    "take",
    _take,
    [
        Probe(lambda x, i, a=a, m=m: relay.take(x, i, axis=a, mode=m), (X, INDICES))
        for a, m in ((None, "clip"), (1, "clip"), (-1, "wrap"), (0, "wrap"))
    ],
)
numpy_operator(
    "gather",
    _gather,
    [Probe(lambda x, i: relay.gather(x, 1, relay.clip(i, 0, 2)), (X, ((2, 5, 4), "int64")))],
)
numpy_operator(
    "strided_slice",
    _strided_slice,
    [
        Probe(lambda x: relay.strided_slice(x, [0, 1], [2, -1]), (X,)),
        Probe(lambda x: relay.strided_slice(x, [-2], [100], [2], axes=[2]), (X,)),
        Probe(lambda x: relay.strided_slice(x, [0, 0, 1], [1, 3, 4], [1, 2, 1]), (X,)),
    ],
)
numpy_operator(
    "reverse", _reverse, [Probe(lambda x, axis=axis: relay.reverse(x, axis), (X,)) for axis in (0, -1)]
)
numpy_operator(
    "repeat", _repeat, [Probe(lambda x, axis=axis: relay.repeat(x, 3, axis), (X,)) for axis in (1, -1)]
)
numpy_operator("tile", _tile, [Probe(lambda x: relay.tile(x, (2, 1, 3)), (X,))])
numpy_operator(
    "nn.pad",
    _pad,
    [Probe(lambda x: relay.nn.pad(x, ((0, 0), (1, 2), (0, 3)), -1.5), (X,))],
)
numpy_operator(
    "arange",
    _arange,
    [
        Probe(lambda d=d: relay.arange(relay.const(2, d), relay.const(11, d), relay.const(3, d), d), ())
        for d in ("int32", "int64", F)
    ],
)
