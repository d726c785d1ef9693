"""Fusion planning: Listing 1 of DNNFusion (section 4.3) with its gaps closed.

From each seed a block takes its consumers in, recursively, then its producers, as far as Table 3, the
limits, the absence of cycles and, in yellow cells, the profitability model allow. Beyond the paper:

* the type of the block decides, see :mod:`~tvm_dnnfusion.fusion_legality`;
* no group ever closes a cycle, see :mod:`~tvm_dnnfusion.topological_order`;
* after the One-to-One operators all others become seeds too, and an operator left alone stays a
  candidate for later blocks, so that none is lost;
* a refusal that growth may lift (arguments, recomputation, profit) is tried again once the block has
  grown. Hence the plan is maximal in this sense: no group can take in a neighbour that is alone;
* a Many-to-Many block leaves the tail of another Many-to-Many operator to that one, see
  :mod:`~tvm_dnnfusion.fusion_tail`, and takes in the end what nobody else took;
* a producer that only the block reads and that leaves the block's type as it is joins right after its
  consumer: it would be stranded if the block reached its limits first.
"""

from __future__ import annotations

from typing import NamedTuple

from .ecg import ECG
from .fusion_block import MANY_TO_MANY, Block, GraphIndex, groupable
from .fusion_legality import Limits, Objection, joining, too_wide, why_not
from .fusion_table import Colour, impedance
from .fusion_tail import tail_anchors
from .mapping_type import MappingType
from .plan import Group, Plan, Refusal
from .profitability import Profitability
from .topological_order import QuotientOrder

_ONE_TO_ONE = impedance(MappingType.ONE_TO_ONE)


def plan_fusion(
    ecg: ECG, limits: Limits, profitability: Profitability, *, producers_first: bool = False
) -> Plan:
    """Partition the operators of ``ecg`` into groups, each to become one kernel.

    Parameters
    ----------
    ecg
        The graph; nodes of kind ``"op"`` are grouped, all others stay outside.
    limits
        Bounds on a group.
    profitability
        Decides the yellow cells.
    producers_first
        Take producers in before consumers: the paper notes that the two steps may be swapped.
        Consumers first makes an operator join the next Many-to-Many operator (as its prologue),
        producers first the one before it.

    Returns
    -------
    Plan
        Every operator in one group, groups in an order in which they can run; one refusal per pair of
        nodes whose edge joins two groups, or a group and an opaque node.
    """
    return _Planner(ecg, limits, profitability, producers_first).run()


class _Refused(NamedTuple):
    """A node that a block refused, and how many operators the block held."""

    objection: Objection
    size: int


class _Planner:
    """State of one run: the index, the order of groups, and the block of every operator."""

    def __init__(self, ecg: ECG, limits: Limits, profitability: Profitability, producers_first: bool) -> None:
        self.ecg = ecg
        self.limits = limits
        self.profitability = profitability
        self.producers_first = producers_first
        self.index = GraphIndex(ecg)
        self.order = QuotientOrder(self.index.preds)
        self.anchors = tail_anchors(ecg, self.index)
        self.left: list[tuple[int, int]] = []
        self.leave_tails = True
        self.blocks: dict[int, Block] = {}
        self.refused: dict[int, dict[int, _Refused]] = {}

    def run(self) -> Plan:
        for seed in self._seeds():
            if self._is_alone(seed):
                self._grow(seed)
        self.leave_tails = False
        for name, node in self.left:
            if self._is_alone(node):
                block = self.blocks[self.order.owner[name]]
                self._take(block, [node], (self.index.preds, self.index.succs))
                self._retry(block)
        return self._plan()

    def _seeds(self) -> list[int]:
        """Operators by type, One-to-One first, then by intermediate result size, then by id."""
        nodes = [node for node in self.ecg.nodes if groupable(node)]
        nodes.sort(key=lambda n: (n.entry_type.complexity, n.nbytes, n.id))
        return [node.id for node in nodes]

    def _is_alone(self, node: int) -> bool:
        block = self.blocks.get(self.order.owner[node])
        return self.index.types[node] >= 0 and (block is None or len(block.nodes) == 1)

    def _grow(self, seed: int) -> None:
        block = Block(self.index, seed)
        self.blocks[seed] = block
        self.refused[seed] = {}
        succs, preds = self.index.succs, self.index.preds
        first, second = (preds, succs) if self.producers_first else (succs, preds)
        self._take(block, list(reversed(first[seed])), (first,))
        self._take(block, [n for m in block.nodes for n in reversed(second[m])], (preds, succs))
        self._retry(block)

    def _retry(self, block: Block) -> None:
        """Try again what growth may have made possible, until the block stops growing."""
        refused, size = self.refused[block.name], 0
        while len(block.nodes) > size:
            size = len(block.nodes)
            retry = [
                n for n, refusal in refused.items() if refusal.objection.may_pass and refusal.size < size
            ]
            self._take(block, retry, (self.index.preds, self.index.succs))

    def _take(self, block: Block, stack: list[int], neighbours: tuple[list[list[int]], ...]) -> None:
        """Try the nodes on ``stack``, and then the neighbours of each that joined, depth first."""
        refused = self.refused[block.name]
        while stack:
            node = stack.pop()
            if self.order.owner[node] == block.name or not self._is_alone(node):
                continue
            objection = self._try(block, node)
            if objection is not None:
                refused[node] = _Refused(objection, len(block.nodes))
                continue
            refused.pop(node, None)
            for adjacent in neighbours:
                stack += reversed(adjacent[node])
            stack += self._stranded(block, node)

    def _stranded(self, block: Block, node: int) -> list[int]:
        """Producers of ``node`` that only it reads and that leave the block's type as it is."""
        ranks, succs = self.index.types, self.index.succs
        return [
            p
            for p in reversed(self.index.preds[node])
            if ranks[p] == _ONE_TO_ONE and succs[p] == [node] and p not in block.below
        ]

    def _try(self, block: Block, node: int) -> Objection | None:
        """Let ``node`` join ``block`` unless a rule objects."""
        objection = too_wide(block, node, self.limits) or self._tail_objection(block, node)
        if objection is not None:
            return objection
        join = joining(block, node)
        objection = why_not(block, node, join, self.limits)
        if objection is not None:
            return objection
        if block.reads_from(node):
            low, high, consumers = block.name, node, [node]
        else:
            low, high, consumers = node, block.name, block.consumers_of(node)
        contraction = self.order.query(low, high, consumers)
        if contraction.witness is not None:
            between = f"{self.ecg.nodes[contraction.witness].op} (node {contraction.witness})"
            return Objection(f"{between} lies between them: each kernel would wait for the other", False)
        if join.colour == Colour.YELLOW:
            verdict = self.profitability.profitable(self.ecg, tuple(block.nodes), node)
            if not verdict.profitable:
                return Objection(f"not profitable: {verdict.reason}", may_pass=True)
        self.order.contract(low, high, contraction, block.name)
        self.blocks.pop(node, None)
        self.refused.pop(node, None)
        block.absorb(node, join.rank)
        return None

    def _tail_objection(self, block: Block, node: int) -> Objection | None:
        """Object to a producer that continues a Many-to-Many operator outside the block."""
        anchor = self.anchors[node]
        if not self.leave_tails or block.rank != MANY_TO_MANY or anchor in (-1, node):
            return None
        if self.order.owner[anchor] == block.name or block.reads_from(node):
            return None
        self.left.append((block.name, node))
        return Objection(f"left to {self.ecg.nodes[anchor].op} (node {anchor}), whose tail it is", False)

    def _plan(self) -> Plan:
        blocks = sorted(self.blocks.values(), key=lambda block: self.order.position(block.name))
        groups = tuple(Group(tuple(sorted(b.nodes)), b.mapping_type, b.name) for b in blocks)
        return Plan(groups, tuple(self._refusals()))

    def _refusals(self) -> list[Refusal]:
        owner, types = self.order.owner, self.index.types
        return [
            Refusal(producer, consumer, self._reason(producer, consumer))
            for consumer, preds in enumerate(self.index.preds)
            for producer in preds
            if owner[producer] != owner[consumer] and max(types[producer], types[consumer]) >= 0
        ]

    def _reason(self, producer: int, consumer: int) -> str:
        for node_id in (producer, consumer):
            if self.index.types[node_id] < 0:
                node = self.ecg.nodes[node_id]
                why = "it is never grouped" if node.outputs else "its shape is not static"
                return f"{node.op} is opaque: {why}"
        ends = [(self.order.owner[producer], consumer), (self.order.owner[consumer], producer)]
        ends.sort(key=lambda end: -len(self.blocks[end[0]].nodes))
        return next(self.refused[b][n].objection.reason for b, n in ends if n in self.refused[b])
