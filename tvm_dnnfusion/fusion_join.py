"""Past the paper: groups joined across red cells when what passes between them is small.

Table 3 never fuses two Many-to-Many operators: the second would read its operand in an order that the
first's registers and caches do not serve. When the tensors between two kernels fit in a corner of the
L1 cache, neither matters, and the launch is all there is to save: the means of a layer norm, the gates
of squeeze-and-excitation, the softmax behind a classifier.
"""

from __future__ import annotations

from collections.abc import Iterable

from .ecg import ECG, Value
from .fusion_block import computed
from .fusion_legality import Limits
from .fusion_verify import kernel_arguments
from .mapping_type import most_complex
from .plan import Group, Plan
from .topological_order import QuotientOrder


def join_small(ecg: ECG, plan: Plan, limits: Limits, small_bytes: int) -> Plan:
    """Join producers with consumers while all the tensors between two groups have few bytes together.

    Parameters
    ----------
    ecg, plan
        A graph and a plan of it.
    limits
        Bounds that joint groups keep as well.
    small_bytes
        Most bytes between two groups that are joined; 0 joins nothing.

    Returns
    -------
    Plan
        Coarser than ``plan``; as runnable, and linear in the number of edges to make.
    """
    joiner = _Joiner(ecg, plan, limits, small_bytes)
    joiner.run()
    return joiner.result()


class _Joiner:
    """Groups and opaque nodes as vertices, numbered in an order in which they can run."""

    def __init__(self, ecg: ECG, plan: Plan, limits: Limits, small_bytes: int) -> None:
        self.ecg, self.plan, self.limits, self.small_bytes = ecg, plan, limits, small_bytes
        units = _units_in_order(ecg, plan)
        self.unit_of = {n: i for i, unit in enumerate(units) for n in _nodes(unit)}
        self.groups = {i: unit for i, unit in enumerate(units) if isinstance(unit, Group)}
        self.members = {i: [i] for i in self.groups}
        self.preds = [sorted(self._read(unit) - {i}) for i, unit in enumerate(units)]
        self.order = QuotientOrder(self.preds)

    def _read(self, unit: Group | int) -> set[int]:
        reads = {v.node for n in _nodes(unit) for v in self.ecg.nodes[n].inputs}
        return {self.unit_of[n] for n in reads if n in self.unit_of}

    def run(self) -> None:
        for high in sorted(self.groups):
            for low in reversed(self.preds[high]):
                self._try(self.order.owner[low], self.order.owner[high])

    def _try(self, low: int, high: int) -> None:
        if low == high or low not in self.groups or high not in self.groups:
            return
        if not 0 < self._bytes_between(low, high) <= self.small_bytes:
            return
        joint = self._joint(low, high)
        if len(joint.nodes) > self.limits.max_operators:
            return
        if kernel_arguments(self.ecg, joint) > self.limits.max_arguments:
            return
        consumers = [u for u in self.members[high] if any(self.order.owner[p] == low for p in self.preds[u])]
        contraction = self.order.query(low, high, consumers)
        if contraction.witness is not None:
            return
        self.order.contract(low, high, contraction, low)
        for unit in self.members[high]:
            self.order.owner[unit] = low
        self.members[low] += self.members.pop(high)
        del self.groups[high]
        self.groups[low] = joint

    def _bytes_between(self, low: int, high: int) -> int:
        produced = set(self.groups[low].nodes)
        values = {v for n in self.groups[high].nodes for v in self.ecg.nodes[n].inputs if v.node in produced}
        return sum(self._nbytes(v) for v in values)

    def _nbytes(self, value: Value) -> int:
        return self.ecg.nodes[value.node].outputs[value.index].nbytes

    def _joint(self, low: int, high: int) -> Group:
        first, second = self.groups[low], self.groups[high]
        nodes = tuple(sorted((*first.nodes, *second.nodes)))
        return Group(nodes, most_complex((first.mapping_type, second.mapping_type)), first.seed)

    def result(self) -> Plan:
        """The joined plan; refusals of edges that are now inside a group are gone."""
        names = sorted(self.groups, key=self.order.position)
        vertex = {n: name for name in names for n in self.groups[name].nodes}
        refusals = tuple(
            r
            for r in self.plan.refusals
            if r.producer not in vertex or vertex[r.producer] != vertex.get(r.consumer)
        )
        return Plan(tuple(self.groups[name] for name in names), refusals)


def _nodes(unit: Group | int) -> Iterable[int]:
    return unit.nodes if isinstance(unit, Group) else (unit,)


def _units_in_order(ecg: ECG, plan: Plan) -> list[Group | int]:
    """Groups and the computed nodes outside them, operands first."""
    grouped = {n: g for g in plan.groups for n in g.nodes}
    alone = [n.id for n in ecg.nodes if computed(n) and n.id not in grouped]
    units: list[Group | int] = [*plan.groups, *alone]
    number = {n: i for i, unit in enumerate(units) for n in _nodes(unit)}
    reads: list[set[int]] = [set() for _ in units]
    readers: list[list[int]] = [[] for _ in units]
    for i, unit in enumerate(units):
        sources = {v.node for n in _nodes(unit) for v in ecg.nodes[n].inputs}
        reads[i] = {number[s] for s in sources if s in number} - {i}
        for source in reads[i]:
            readers[source].append(i)
    waiting = [len(r) for r in reads]
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[Group | int] = []
    for i in ready:  # grows while it is read
        order.append(units[i])
        for reader in readers[i]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    return order
