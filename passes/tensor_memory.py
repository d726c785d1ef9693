"""TVM tensors on the CPU as NumPy arrays without copying, and back with one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm

# Transposing strips of one cache line's width reads along memory: three times as fast for large weights.
_STRIP = 16
_LARGE_BYTES = 1 << 20


_CPU = tvm.cpu().device_type


def native_dtype(name: str) -> np.dtype | None:
    """NumPy's own boolean, integer or float dtype of this name; None for bfloat16, custom or vector types."""
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    return dtype if dtype.isbuiltin == 1 and dtype.kind in "biuf" else None


class _Memory:
    """What NumPy needs to see a TVM tensor's memory; keeps the tensor alive."""

    def __init__(self, tensor: tvm.nd.NDArray, dtype: np.dtype) -> None:
        self._tensor = tensor
        data = tensor.handle.contents
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": dtype.str,
            "data": (int(data.data) + int(data.byte_offset), False),
        }


def view(tensor: tvm.nd.NDArray) -> np.ndarray | None:
    """The memory of ``tensor`` as an array; None if it is not on the CPU or its dtype is not NumPy's own.

    Constants are shared by everything that refers to them: do not write to the view of one.
    """
    dtype = native_dtype(tensor.dtype)
    if dtype is None or tensor.device.device_type != _CPU:
        return None
    if 0 in tensor.shape:
        return np.empty(tensor.shape, dtype)
    return np.asarray(_Memory(tensor, dtype))


def tensor_of(array: np.ndarray) -> tvm.nd.NDArray:
    """A TVM tensor with the value of ``array``, whatever its strides."""
    tensor = tvm.nd.empty(array.shape, str(array.dtype))
    target = view(tensor)
    assert target is not None
    transposed = array.ndim == 2 and array.nbytes >= _LARGE_BYTES and array.strides[0] < array.strides[1]
    if not transposed:
        target[...] = array
        return tensor
    for column in range(0, array.shape[1], _STRIP):
        target[:, column : column + _STRIP] = array[:, column : column + _STRIP]
    return tensor
