"""The tail of an anchor: which stages are computed at its tile, and how."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tvm import te

from .stage_graph import Stage, extents, tensor_shape
from .topi_anchor import tail_of
from .vector_lane import is_linear_in_lanes

# Additions per element up to which a tail is unrolled over the tile, so that accumulators stay in registers.
_UNROLLED_COST = 24.0
# Beyond it, inlining would multiply code: the block is left to another schedule.
_MAX_COST = 400.0
# Cost of an operand up to which it is computed again for every element that reads it.
_CHEAP = 4.0


@dataclass(frozen=True)
class TileTail:
    """Stages at the tile of an anchor.

    Attributes
    ----------
    end
        The last one, whose loops make the tile; the anchor itself when there is no tail.
    inlined
        Computed where they are read.
    pinned
        All that is scheduled with the anchor, itself included.
    unrolls
        Whether the tail is cheap enough to be unrolled over the tile.
    """

    end: te.Tensor
    inlined: tuple[te.Operation, ...]
    pinned: frozenset[te.Operation]
    unrolls: bool

    def inline(self, schedule: te.Schedule) -> None:
        """Inline the stages before the end."""
        for op in self.inlined:
            schedule[op].compute_inline()


def tile_tail(
    anchor: te.Tensor, stages: dict[te.Operation, Stage], outputs: Collection[te.Operation]
) -> TileTail | None:
    """Tail of ``anchor`` with the operands that are cheap to compute at the tile.

    The innermost axis becomes vector lanes: operands that reach it by other than linear indices get a buffer.

    Returns
    -------
    None when even without operands the lanes cannot be kept.
    """
    tail = tail_of(anchor, stages, outputs)
    end = tail[-1] if tail else anchor.op
    inside = {anchor.op, *tail}
    operands = _operands(inside, stages, outputs)
    scalars = [op for op in operands if not tensor_shape(op.output(0))]
    if not tail:
        return TileTail(anchor, (), frozenset([anchor.op]), True)
    lanes = extents([end.axis[-1]])[0]
    for chosen in (operands, scalars):
        inlined = [*tail[:-1], *chosen]
        cost = _expression_cost(end, set(inlined), stages)
        if cost <= _MAX_COST and is_linear_in_lanes(end, inlined, end.axis[-1], lanes):
            pinned = frozenset([*inside, *chosen])
            return TileTail(end.output(0), tuple(inlined), pinned, cost <= _UNROLLED_COST)
    return None


def _operands(
    inside: Collection[te.Operation],
    stages: dict[te.Operation, Stage],
    outputs: Collection[te.Operation],
) -> list[te.Operation]:
    """Injective stages that the tail alone reads and that cost little or are of its size; readers first."""
    found: dict[te.Operation, None] = {}
    size = max(stages[op].size for op in inside)
    for op, stage in reversed(stages.items()):
        if op in inside or op in outputs or not stage.is_injective:
            continue
        scalar = not tensor_shape(op.output(0))
        if not scalar and not (stage.size == size or stage.cost <= _CHEAP):
            continue
        if stage.consumers and all(
            c.op in found or (c.op in inside and not c.is_reduction) for c in stage.consumers
        ):
            found[op] = None
    return list(found)


def _expression_cost(
    end: te.Operation, inlined: Collection[te.Operation], stages: dict[te.Operation, Stage]
) -> float:
    """Arithmetic of one element of ``end``, what is inlined into it included, in additions."""
    cost: dict[te.Operation, float] = {}
    for op, stage in stages.items():
        cost[op] = stage.cost + sum(cost[p] * n for p, n in stage.reads.items() if p in inlined)
        if op == end:
            break
    return cost[end]
