"""The extended computational graph (ECG) of DNNFusion, section 3: plain data, no TVM objects.

The planner reads it and nothing else, so plans can be tested without a compiler and another
intermediate representation could feed it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from .mapping_type import MappingType

_BITS = {"bool": 8}


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of a TVM dtype such as ``float32`` (sub-byte types round up)."""
    bits = _BITS.get(dtype)
    if bits is None:
        digits = dtype.split("x")[0].lstrip("abcdefghijklmnopqrstuvwxyz_").split("_")[0]
        bits = int(digits) if digits.isdigit() else 64
    return max(1, bits // 8)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Static shape and dtype of one tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return self.size * dtype_bytes(self.dtype)


@dataclass(frozen=True, slots=True)
class Value:
    """The ``index``-th output of node ``node``."""

    node: int
    index: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """One vertex: an operator call, or a source (graph input, constant, anything not grouped).

    Attributes
    ----------
    id
        Position in ``ECG.nodes``.
    kind
        ``"op"`` may be grouped; ``"source"`` is a graph input; ``"constant"`` a constant tensor;
        ``"opaque"`` is computed but never grouped (unknown, stateful, dynamic, control flow).
    op
        Operator name, or a description for the other kinds.
    inputs
        Operands in order, tuples flattened.
    outputs
        One entry per output tensor; empty when the shape is not static.
    operand_types
        Mapping type per operand, in the order of ``inputs``.
    mapping_type
        The operator's type: the most complex of its operands' (Table 2, footnote 1).
    entry_type
        Type of the largest operand: what the operator does to its main data when the other
        operands come from memory. A block of one operator has this type.
    flops
        Floating point (or integer) operations, 2 per multiply-add.
    properties
        Those of ``associative``, ``commutative``, ``distributive`` that hold.
    span
        Where the operator came from in the source, for reports.
    attributes
        Canonical text of the operator's attributes, part of the key of measured latencies.
    """

    id: int
    kind: str
    op: str
    inputs: tuple[Value, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    operand_types: tuple[MappingType, ...] = ()
    mapping_type: MappingType = MappingType.OPAQUE
    entry_type: MappingType = MappingType.OPAQUE
    flops: int = 0
    properties: frozenset[str] = frozenset()
    span: str = ""
    attributes: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of all outputs: the intermediate result size (IRS) of the paper."""
        return sum(t.nbytes for t in self.outputs)


@dataclass(frozen=True)
class ECG:
    """Nodes in topological order (operands before users) and the graph's outputs."""

    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...] = field(default=())

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Per node, the ids of the nodes that read it: ascending, each once."""
        found: list[dict[int, None]] = [{} for _ in self.nodes]
        for node in self.nodes:
            for value in node.inputs:
                found[value.node][node.id] = None
        return tuple(tuple(users) for users in found)

    @cached_property
    def output_nodes(self) -> frozenset[int]:
        """Ids of nodes that the graph returns."""
        return frozenset(value.node for value in self.outputs)
