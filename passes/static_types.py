"""Static types as plain Python data, read from Relay as rarely as possible.

Reading one extent of one shape takes three calls into TVM, a structural hash of the whole type takes one;
and a network has few distinct types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm_dnnfusion.passes.tensor_memory import native_dtype

from tvm_dnnfusion.node_fields import static_shape
from tvm_dnnfusion.structural_memo import StructuralMemo


@dataclass(frozen=True)
class OutputType:
    """A tensor type with static ``shape`` and a ``dtype`` that NumPy has."""

    shape: tuple[int, ...]
    dtype: np.dtype


# A tensor's type, or a tuple of such for a tuple; None for types that are dynamic or not NumPy's.
StaticType = Any


class StaticTypes:
    """Converts types and remembers each distinct one."""

    def __init__(self) -> None:
        self._known: StructuralMemo[StaticType] = StructuralMemo(self._converted)

    def of(self, type_: relay.Type | None) -> StaticType:
        """The :class:`OutputType` of ``type_``, a tuple of them for a tuple; None if it has none."""
        return None if type_ is None else self._known.of(type_)

    def shape(self, type_: relay.Type | None) -> tuple[int, ...] | None:
        """The static shape of a tensor type without empty axes; None for anything else."""
        static = self.of(type_)
        return static.shape if isinstance(static, OutputType) and all(static.shape) else None

    def _converted(self, type_: relay.Type) -> StaticType:
        if isinstance(type_, relay.TupleType):
            fields = tuple(self.of(field) for field in type_.fields)
            return None if any(field is None for field in fields) else fields
        if not isinstance(type_, relay.TensorType):
            return None
        shape, dtype = static_shape(type_), native_dtype(type_.dtype)
        return None if dtype is None or shape is None else OutputType(shape, dtype)


def constant_type(data: tvm.nd.NDArray) -> relay.TensorType:
    """The type of a constant with value ``data``."""
    return relay.TensorType(data.shape, data.dtype)
