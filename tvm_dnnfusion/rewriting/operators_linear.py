"""Operators that are linear in each of their two operands: matrix products and convolutions."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from ..ecg import TensorInfo
from .operators import Array, Attributes, declare, require

CONTRACTIONS = ("nn.dense", "nn.matmul", "nn.batch_matmul")
CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
TRANSPOSED = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")


def _transposes(name: str, attributes: Attributes) -> tuple[bool, bool]:
    if name == "nn.dense":
        return False, True
    return attributes["transpose_a"], attributes["transpose_b"]


def _swapped(shape: tuple[int, ...], transpose: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if transpose else shape


def _declare_product(name: str, rank: int) -> None:
    def infer(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
        by_a, by_b = _transposes(name, attributes)
        a, b = inputs
        require(a.dtype == b.dtype, "operands of different types")
        fits = len(b.shape) == rank and (len(a.shape) == rank or (name == "nn.dense" and len(a.shape) >= 2))
        require(fits, f"ranks {len(a.shape)} and {len(b.shape)}")
        left, right = _swapped(a.shape, by_a), _swapped(b.shape, by_b)
        require(left[-1] == right[-2], f"inner extents {left[-1]} and {right[-2]}")
        batch = left[:-2]
        if rank == 3:
            require(left[0] == right[0] or 1 in (left[0], right[0]), "different numbers of matrices")
            batch = (max(left[0], right[0]),)
        return TensorInfo((*batch, left[-2], right[-1]), a.dtype)

    def evaluate(attributes: Attributes, arrays: list[Array]) -> Array:
        by_a, by_b = _transposes(name, attributes)
        left = arrays[0].swapaxes(-1, -2) if by_a else arrays[0]
        return left @ (arrays[1].swapaxes(-1, -2) if by_b else arrays[1])

    def flops(attributes: Attributes, inputs: list[TensorInfo], output: TensorInfo) -> int:
        by_a, _ = _transposes(name, attributes)
        return 2 * output.size * inputs[0].shape[-2 if by_a else -1]

    declare(name, infer, evaluate, flops)


_declare_product("nn.dense", 2)
_declare_product("nn.matmul", 2)
_declare_product("nn.batch_matmul", 3)


def _pads(attributes: Attributes, rank: int) -> list[tuple[int, int]]:
    padding = attributes["padding"]
    return [(padding[axis], padding[rank + axis]) for axis in range(rank)]


def _window(tap: tuple[int, ...], attributes: Attributes, extents: tuple[int, ...]) -> tuple[slice, ...]:
    """Where a tap of the kernel reads the data of a convolution, or writes that of a transposed one."""
    strides, dilation = attributes["strides"], attributes["dilation"]
    spatial = (
        slice(t * d, t * d + (n - 1) * s + 1, s)
        for t, d, n, s in zip(tap, dilation, extents, strides, strict=True)
    )
    return (slice(None), slice(None), *spatial)


def _declare_convolution(name: str, rank: int) -> None:
    def infer(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
        data, kernel = inputs
        require(data.dtype == kernel.dtype, "operands of different types")
        require(len(data.shape) == len(kernel.shape) == rank + 2, "a convolution of another rank")
        require(kernel.shape[2:] == attributes["kernel_size"], "a kernel of another size")
        require(kernel.shape[1] * attributes["groups"] == data.shape[1], "other input channels")
        require(kernel.shape[0] % attributes["groups"] == 0, "output channels that groups do not divide")
        extents = []
        for n, k, (low, high), stride, dilation in zip(
            data.shape[2:], kernel.shape[2:], _pads(attributes, rank), attributes["strides"],
            attributes["dilation"], strict=True,
        ):  # fmt: skip
            extents.append((n + low + high - dilation * (k - 1) - 1) // stride + 1)
        require(min(extents) > 0, "a kernel larger than the data")
        return TensorInfo((data.shape[0], kernel.shape[0], *extents), data.dtype)

    def evaluate(attributes: Attributes, arrays: list[Array]) -> Array:
        data, kernel = arrays
        padded = np.pad(data, [(0, 0), (0, 0), *_pads(attributes, rank)])
        infos = [TensorInfo(a.shape, str(a.dtype)) for a in arrays]
        out = np.zeros(infer(attributes, infos).shape, data.dtype)
        groups = attributes["groups"]
        inputs, outputs = kernel.shape[1], kernel.shape[0] // groups
        for tap in product(*map(range, kernel.shape[2:])):
            window = _window(tap, attributes, out.shape[2:])
            for g in range(groups):
                weights = kernel[g * outputs : (g + 1) * outputs].transpose(*range(2, rank + 2), 0, 1)[tap]
                part = padded[:, g * inputs : (g + 1) * inputs][window]
                out[:, g * outputs : (g + 1) * outputs] += np.einsum("oi,ni...->no...", weights, part)
        return out

    def flops(attributes: Attributes, inputs: list[TensorInfo], output: TensorInfo) -> int:
        return 2 * output.size * math.prod(inputs[1].shape[1:])

    declare(name, infer, evaluate, flops)


def _declare_transposed(name: str, rank: int) -> None:
    def infer(attributes: Attributes, inputs: list[TensorInfo]) -> TensorInfo:
        data, kernel = inputs
        require(data.dtype == kernel.dtype, "operands of different types")
        require(len(data.shape) == len(kernel.shape) == rank + 2, "a convolution of another rank")
        require(kernel.shape[2:] == attributes["kernel_size"], "a kernel of another size")
        require(attributes["groups"] == 1 and kernel.shape[0] == data.shape[1], "other input channels")
        extents = [
            (n - 1) * stride - low - high + dilation * (k - 1) + extra + 1
            for n, k, (low, high), stride, dilation, extra in zip(
                data.shape[2:], kernel.shape[2:], _pads(attributes, rank), attributes["strides"],
                attributes["dilation"], attributes["output_padding"], strict=True,
            )
        ]  # fmt: skip
        require(min(extents) > 0, "no output")
        return TensorInfo((data.shape[0], kernel.shape[1], *extents), data.dtype)

    def evaluate(attributes: Attributes, arrays: list[Array]) -> Array:
        data, kernel = arrays
        infos = [TensorInfo(a.shape, str(a.dtype)) for a in arrays]
        shape = infer(attributes, infos).shape
        pads = [(0, 0), (0, 0), *_pads(attributes, rank)]
        full = np.zeros([n + low + high for n, (low, high) in zip(shape, pads, strict=True)], data.dtype)
        for tap in product(*map(range, kernel.shape[2:])):
            weights = kernel.transpose(*range(2, rank + 2), 0, 1)[tap]
            part = np.einsum("io,ni...->no...", weights, data)
            full[_window(tap, attributes, data.shape[2:])] += part
        return full[tuple(slice(low, low + n) for n, (low, _) in zip(shape, pads, strict=True))]

    def flops(attributes: Attributes, inputs: list[TensorInfo], output: TensorInfo) -> int:
        return 2 * inputs[0].size * math.prod(inputs[1].shape[1:])

    declare(name, infer, evaluate, flops)


for _rank in (1, 2, 3):
    _declare_convolution(f"nn.conv{_rank}d", _rank)
    _declare_transposed(f"nn.conv{_rank}d_transpose", _rank)
