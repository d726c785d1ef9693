"""Shapes that are known in part: which extents of a dynamic tensor an ONNX graph still determines.

Networks that detect objects compute shapes such as (boxes, 256, 14, 14), of which only the first extent
is unknown. TVM gives every extent up once one is computed, and has no convolution for what follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from tvm import relay, tir
from tvm.ir import TensorType, Type
from tvm.relay.expr import Constant, RelayExpr

from .onnx_constants import evaluate
from .onnx_relay import address, static_shape, type_of

_ALL = 1 << 30
# Longest vector that is taken for a shape.
_LONGEST = 64
# Operators that move elements of their first operands, by the number of these; the others are indices.
_MOVING = {
    "Cast": 1,
    "Concat": _ALL,
    "Gather": 1,
    "Identity": 1,
    "Reshape": 1,
    "Slice": 1,
    "Squeeze": 1,
    "Unsqueeze": 1,
}
_ELEMENTWISE = frozenset(["Add", "Equal", "Mul", "Sub", "Where"])


@dataclass(frozen=True)
class PartialValue:
    """An integer or boolean tensor; ``values`` (any shape) count where ``known`` (same shape) is true."""

    values: np.ndarray
    known: np.ndarray


class PartialValues:
    """Partial values of the expressions of one import, by address.

    Parameters
    ----------
    type_of
        Type of an expression that the importer has converted; it keeps the expressions alive.
    """

    def __init__(self, type_of: Callable[[RelayExpr], Type]) -> None:
        self._type_of = type_of
        self._found: dict[int, PartialValue] = {}

    def of(self, operand: RelayExpr) -> PartialValue | None:
        """What is known of ``operand``; None unless it is a scalar or vector of known length."""
        if isinstance(operand, Constant):
            values = operand.data.numpy()
            return PartialValue(values, np.ones(values.shape, bool))
        if address(operand) in self._found:
            return self._found[address(operand)]
        ty = self._type_of(operand)
        shape = static_shape(ty)
        if shape is None or len(shape) > 1 or math.prod(shape) > _LONGEST or not ty.dtype.startswith("int"):
            return None
        return PartialValue(np.zeros(shape, ty.dtype), np.zeros(shape, bool))

    def remember(self, expr: RelayExpr, value: PartialValue | None) -> None:
        """Keep the value of ``expr``, if there is one."""
        if value is not None:
            self._found[address(expr)] = value

    def evaluate(
        self, node: onnx.NodeProto, operands: Sequence[RelayExpr | None], opset: int
    ) -> PartialValue | None:
        """Value of the node's only output, None where nothing is known of it.

        Parameters
        ----------
        node
            A node of the default ONNX domain.
        operands
            Its operands as Relay expressions, not all of them constant.
        opset
            Version of the operator set.
        """
        if node.op_type == "Shape" and not node.attribute and operands[0] is not None:
            return self._shape(operands[0])
        if not (node.op_type in _MOVING or node.op_type in _ELEMENTWISE):
            return None
        values = [None if operand is None else self.of(operand) for operand in operands]
        if any(value is None and x is not None for value, x in zip(values, operands, strict=True)):
            return None
        result = _apply(node, values, opset)
        return result if result is not None and result.known.any() else None

    def refine(
        self, node: onnx.NodeProto, operands: Sequence[RelayExpr | None], result: RelayExpr
    ) -> RelayExpr:
        """``result`` of a Reshape, Expand or ConstantOfShape, with the extents that its target fixes."""
        if node.op_type not in ("ConstantOfShape", "Expand", "Reshape") or operands[-1] is None:
            return result
        target, ty = self.of(operands[-1]), type_of(result)
        if target is None or not isinstance(ty, TensorType):
            return result
        given = [int(v) if k else 0 for v, k in zip(target.values, target.known, strict=True)]
        extents = [0] * (len(ty.shape) - len(given)) + given
        smallest = 2 if node.op_type == "Expand" else 1  # expanding to 1 keeps the operand's extent
        added = [
            e if e >= smallest and isinstance(dim, tir.Any) else 0
            for e, dim in zip(extents, ty.shape, strict=True)
        ]
        # In relay.reshape, an extent of 0 is the operand's.
        return relay.reshape(result, added) if any(added) else result

    def _shape(self, operand: RelayExpr) -> PartialValue | None:
        ty = self._type_of(operand)
        if not isinstance(ty, TensorType):
            return None
        known = np.array([isinstance(dim, tir.IntImm) for dim in ty.shape], bool)
        values = np.array([int(dim) if isinstance(dim, tir.IntImm) else 0 for dim in ty.shape], np.int64)
        return PartialValue(values, known) if known.any() else None


def _apply(node: onnx.NodeProto, operands: list[PartialValue | None], opset: int) -> PartialValue | None:
    """The node on the values, and on the masks as if they were values."""
    given = [value for value in operands if value is not None]
    moved = _MOVING.get(node.op_type, 0)
    if node.op_type == "Where":
        chosen = np.where(given[0].values.astype(bool), given[1].known, given[2].known)
        known = given[0].known & chosen
    elif node.op_type in _ELEMENTWISE:
        known = np.logical_and.reduce(np.broadcast_arrays(*(value.known for value in given)))
    elif moved and all(value is None or value.known.all() for value in operands[moved:]):
        masks = [
            value if value is None or i >= moved else PartialValue(value.known.astype(np.int64), value.known)
            for i, value in enumerate(operands)
        ]
        found = evaluate(node, [None if m is None else m.values for m in masks], opset)
        if found is None:
            return None
        known = found[0].astype(bool)
    else:
        return None
    values = evaluate(node, [None if value is None else value.values for value in operands], opset)
    return None if values is None or values[0].shape != known.shape else PartialValue(values[0], known)
