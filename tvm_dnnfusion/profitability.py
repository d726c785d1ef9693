"""Profit of the yellow cells of Table 3: one interface, and the model used without measurements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .ecg import ECG, Node, TensorInfo, Value
from .mapping_type import MappingType
from .recompute import reads_per_element, tensor_info


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a fusion pays, and why.

    Attributes
    ----------
    profitable
        The decision.
    reason
        One clause for reports.
    fused_ms, parts_ms
        Measured latency of the fused kernel and the sum of its parts, in milliseconds; None unless
        both were measured.
    """

    profitable: bool
    reason: str
    fused_ms: float | None = None
    parts_ms: float | None = None


class Profitability(Protocol):
    """Decides the yellow cells; green and red ones need no analysis (section 4.2)."""

    def profitable(self, ecg: ECG, block: tuple[int, ...], candidate: int) -> Verdict:
        """Whether ``candidate`` should join ``block``.

        Parameters
        ----------
        ecg
            The graph.
        block
            Node ids of the block, the seed first.
        candidate
            Node id of an operator that reads a result of the block or produces one of its operands.
        """
        ...


class _Edge(NamedTuple):
    """One tensor that would become internal, or at least be read without leaving the kernel."""

    value: Value
    info: TensorInfo
    consumer: Node
    operand_type: MappingType


@dataclass(frozen=True)
class StaticProfitability:
    """Weighs memory traffic saved against traffic and work added, all in bytes of main memory.

    Saved: one kernel launch; per tensor between the two parts its read, and its write too if nobody
    else needs it. An operand that both parts take from outside is not counted: whether it is still in
    cache at its second use depends on the schedule.

    Added: a tensor read several times per element is either computed at every read or stored inside
    the kernel, whichever is cheaper: the block schedules may do both, so recomputation never costs more
    than storing. And a Many-to-Many operator whose results a resize copies along several axes must
    write them in scattered pieces: the paper's example of an unprofitable yellow cell (Conv -> Resize,
    as against Conv -> Expand, which copies along one axis).

    Attributes
    ----------
    launch_bytes
        Traffic worth one kernel launch: 4 us of thread barrier and dispatch at 8 GB/s per core.
    cached_byte
        Cost of a byte stored inside the kernel, which stays in cache.
    bytes_per_flop
        Traffic worth one FLOP recomputed: a core moves 8 GB/s and computes 32 GFLOP/s untuned.
    """

    launch_bytes: float = 32768.0
    cached_byte: float = 0.25
    bytes_per_flop: float = 0.25

    def profitable(self, ecg: ECG, block: tuple[int, ...], candidate: int) -> Verdict:
        """Decide from shapes alone; see the class. Time is linear in the block and the candidate's edges."""
        members = frozenset(block)
        edges = list(_edges_between(ecg, members, candidate))
        infos = {edge.value: edge.info for edge in edges}
        saved = self.launch_bytes
        for value, info in infos.items():
            saved += info.nbytes * (1 if _needed_outside(ecg, members | {candidate}, value) else 2)
        added = self._scatter_cost(ecg, members, candidate, edges)
        for value in infos:
            same = [edge for edge in edges if edge.value == value]
            added += max(self._storage_cost(ecg, members, candidate, edge) for edge in same)
        comparison = f"saves the traffic of {saved:.0f} bytes and adds that of {added:.0f}"
        return Verdict(saved >= added, comparison)

    def _storage_cost(self, ecg: ECG, members: frozenset[int], candidate: int, edge: _Edge) -> float:
        reads = reads_per_element(edge.info, edge.consumer, edge.operand_type)
        if reads == 1.0:
            return 0.0
        producers = members if edge.consumer.id == candidate else (candidate,)
        again = (reads - 1.0) * sum(ecg.nodes[n].flops for n in producers) * self.bytes_per_flop
        return min(again, 2 * edge.info.nbytes * self.cached_byte)

    def _scatter_cost(self, ecg: ECG, members: frozenset[int], candidate: int, edges: list[_Edge]) -> float:
        many = MappingType.MANY_TO_MANY
        if edges and edges[0].consumer.id == candidate:
            if not any(ecg.nodes[n].mapping_type is many for n in members):
                return 0.0
            return sum(_scattered_bytes(edge.info, edge.consumer, edge.operand_type) for edge in edges)
        if ecg.nodes[candidate].mapping_type is not many:
            return 0.0
        return _scattered_below(ecg, members, candidate)


def _needed_outside(ecg: ECG, joint: frozenset[int], value: Value) -> bool:
    returned = value.node in ecg.output_nodes and value in ecg.outputs
    return returned or any(user not in joint for user in ecg.users[value.node])


def _edges_between(ecg: ECG, members: frozenset[int], candidate: int) -> Iterator[_Edge]:
    node = ecg.nodes[candidate]
    consumers = [node, *(ecg.nodes[u] for u in ecg.users[candidate] if u in members)]
    for consumer in consumers:
        for value, operand_type in zip(consumer.inputs, consumer.operand_types, strict=True):
            crosses = value.node in members if consumer is node else value.node == candidate
            info = tensor_info(ecg, value) if crosses else None
            if info is not None:
                yield _Edge(value, info, consumer, operand_type)


def _scattered_below(ecg: ECG, members: frozenset[int], start: int) -> float:
    """Scattered bytes on all paths that lead from ``start`` through ``members``."""
    reached, scattered = {start}, 0.0
    for member in sorted(members):
        node = ecg.nodes[member]
        for value, operand_type in zip(node.inputs, node.operand_types, strict=True):
            info = tensor_info(ecg, value) if value.node in reached else None
            if info is not None:
                reached.add(member)
                scattered += _scattered_bytes(info, node, operand_type)
    return scattered


def _scattered_bytes(operand: TensorInfo, consumer: Node, operand_type: MappingType) -> float:
    """Bytes that a resize writes besides the first copy, 0 when it copies along one axis at most."""
    result = consumer.outputs[0]
    if operand_type is not MappingType.ONE_TO_MANY or len(operand.shape) != len(result.shape):
        return 0.0
    stretched = sum(1 < old < new for old, new in zip(operand.shape, result.shape, strict=True))
    return float(max(0, result.nbytes - operand.nbytes)) if stretched > 1 else 0.0
