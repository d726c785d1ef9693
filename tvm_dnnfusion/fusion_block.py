"""A block while it grows: its members, its type and its kernel arguments, kept up to date.

The planner's inner loop touches nothing but integers: mapping types are their ranks in
:data:`~tvm_dnnfusion.fusion_table.IMPEDANCE`, so combining two types is ``max``, and tensors are
numbered.
"""

from __future__ import annotations

from .ecg import ECG, Node
from .fusion_table import IMPEDANCE, fusion_cell, impedance
from .mapping_type import MappingType

MANY_TO_MANY = impedance(MappingType.MANY_TO_MANY)

COLOURS = [[int(fusion_cell(first, second).colour) for second in IMPEDANCE] for first in IMPEDANCE]
"""Colours of Table 3 by ranks of impedance."""


def groupable(node: Node) -> bool:
    """Whether the planner may put ``node`` into a block."""
    return bool(node.kind == "op" and node.outputs and node.mapping_type is not MappingType.OPAQUE)


def computed(node: Node) -> bool:
    """Whether ``node`` runs as a kernel or a call, unlike graph inputs and constants."""
    return node.kind not in ("source", "constant")


def block_type(node: Node) -> MappingType:
    """Type of the block that consists of ``node`` alone.

    The type through its largest operand, except that an operator with any Many-to-Many operand is
    Many-to-Many: a block may hold one such operator only.
    """
    many = MappingType.MANY_TO_MANY
    return many if many in (node.mapping_type, node.entry_type) else node.entry_type


class GraphIndex:
    """Flat arrays of an ECG.

    Attributes
    ----------
    types
        Per node the rank of its type as a block of one; -1 if it is not groupable.
    preds, succs
        Per node the computed nodes it reads and those that read it, ascending, each once.
    operands
        Per node the tensors it reads, in the order of its inputs, and the rank of how it reads them:
        the highest if it reads one twice. A Many-to-Many operator reads all its operands that way.
    results
        Per node the tensors it produces.
    producer
        Per tensor its node.
    readers
        Per tensor how many nodes read it, plus one if the graph returns it.
    inputs
        Per node how many kernel arguments its operands are.
    is_argument
        Per tensor whether a kernel that reads it needs a parameter: scalar constants are inlined.
    """

    def __init__(self, ecg: ECG) -> None:
        self.ecg = ecg
        nodes = ecg.nodes
        self.types = [impedance(block_type(n)) if groupable(n) else -1 for n in nodes]
        self.preds = [
            sorted({v.node for v in n.inputs if computed(nodes[v.node])}) if computed(n) else []
            for n in nodes
        ]
        self.succs = [[u for u in users if computed(nodes[u])] for users in ecg.users]
        self._number_tensors(ecg)

    def _number_tensors(self, ecg: ECG) -> None:
        counts = [max(1, len(node.outputs)) for node in ecg.nodes]
        for value in [*ecg.outputs, *(v for node in ecg.nodes for v in node.inputs)]:
            counts[value.node] = max(counts[value.node], value.index + 1)
        first: list[int] = []
        self.producer: list[int] = []
        self.results: list[range] = []
        for node_id, count in enumerate(counts):
            first.append(len(self.producer))
            self.results.append(range(first[node_id], first[node_id] + count))
            self.producer += [node_id] * count
        self.readers = [0] * len(self.producer)
        self.operands: list[dict[int, int]] = []
        for node in ecg.nodes:
            tensors = [first[v.node] + v.index for v in node.inputs]
            self.operands.append(self._ranked(node, tensors))
            for tensor in set(tensors):
                self.readers[tensor] += 1
        for tensor in {first[v.node] + v.index for v in ecg.outputs}:
            self.readers[tensor] += 1
        self.is_argument = [not _is_scalar_constant(ecg.nodes[n]) for n in self.producer]
        self.inputs = [sum(self.is_argument[t] for t in tensors) for tensors in self.operands]

    def _ranked(self, node: Node, tensors: list[int]) -> dict[int, int]:
        grouped, many = self.types[node.id] >= 0, self.types[node.id] == MANY_TO_MANY
        ranks: dict[int, int] = {}
        for tensor, operand_type in zip(tensors, node.operand_types, strict=grouped):
            rank = MANY_TO_MANY if many else impedance(operand_type)
            ranks[tensor] = max(rank, ranks.get(tensor, 0))
        return ranks


def _is_scalar_constant(node: Node) -> bool:
    return bool(node.kind == "constant" and node.outputs and node.outputs[0].shape == ())


class Block:
    """A set of operators that grows one by one.

    Attributes
    ----------
    nodes
        Members in the order in which they joined; the first is the seed.
    rank
        Rank of the block's type.
    readers
        Per tensor read from outside, the members that read it.
    outside
        Per tensor produced inside, how many readers outside it has.
    below
        Per member the type of the paths that lead from its results through the block.
    """

    def __init__(self, index: GraphIndex, seed: int) -> None:
        self.index = index
        self.nodes: list[int] = []
        self.rank = index.types[seed]
        self.readers: dict[int, list[int]] = {}
        self.outside: dict[int, int] = {}
        self.below: dict[int, int] = {}
        self._arguments = 0
        self.absorb(seed, self.rank)

    @property
    def name(self) -> int:
        """The seed, which names the block's vertex in the order of groups."""
        return self.nodes[0]

    @property
    def mapping_type(self) -> MappingType:
        """The block's type by Table 3."""
        return IMPEDANCE[self.rank]

    def consumers_of(self, producer: int) -> list[int]:
        """Members that read a result of ``producer``, which is outside."""
        return [member for t in self.index.results[producer] for member in self.readers.get(t, ())]

    def reads_from(self, consumer: int) -> bool:
        """Whether ``consumer``, which is outside, reads a member."""
        return any(tensor in self.outside for tensor in self.index.operands[consumer])

    def arguments_with(self, node: int) -> int:
        """Parameters of the kernel if ``node`` joined: distinct tensors read and written."""
        index, count = self.index, self._arguments
        for tensor in index.operands[node]:
            if tensor in self.outside:
                count -= self.outside[tensor] == 1
            elif index.is_argument[tensor] and tensor not in self.readers:
                count += 1
        for tensor in index.results[node]:
            inside = len(self.readers.get(tensor, ()))
            count += (index.readers[tensor] > inside) - (inside > 0)
        return count

    def absorb(self, node: int, rank: int) -> None:
        """Take ``node`` in; the block's type becomes that of ``rank``."""
        index = self.index
        self._arguments = self.arguments_with(node)
        self.rank = rank
        below = 0
        for tensor in index.results[node]:
            inside = self.readers.pop(tensor, ())
            self.outside[tensor] = index.readers[tensor] - len(inside)
            for member in inside:
                below = max(below, index.operands[member][tensor], self.below[member])
        self.below[node] = below
        self.nodes.append(node)
        for tensor in index.operands[node]:
            if tensor in self.outside:
                self.outside[tensor] -= 1
            else:
                self.readers.setdefault(tensor, []).append(node)
        self._raise_below(node)

    def _raise_below(self, node: int) -> None:
        """Tell the members above ``node`` what lies below them now; each can rise four times only."""
        index, stack = self.index, [node]
        while stack:
            member = stack.pop()
            for tensor, rank in index.operands[member].items():
                producer = index.producer[tensor]
                if tensor in self.outside and self.below[producer] < max(rank, self.below[member]):
                    self.below[producer] = max(rank, self.below[member])
                    stack.append(producer)
