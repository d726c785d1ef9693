"""Which injective stages are computed where they are read, and which get a buffer inside the kernel.

Inlining saves a write and the reads; it costs the stage's arithmetic again for every further read
of an element. Diamonds multiply that, so both the repeated arithmetic and the size of the inlined
expression are bounded: never a recompute blow-up, however the block is shaped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tvm import te

from .stage_graph import Stage

# Additions per element that cost about as much as writing the element and reading it back (L2).
BUFFER_COST = 8.0
# Additions in one inlined expression beyond which compile time and register pressure grow.
MAX_EXPRESSION_COST = 400.0


def choose_inlined(
    stages: dict[te.Operation, Stage], pinned: Collection[te.Operation], outputs: Collection[te.Operation]
) -> list[te.Operation]:
    """Operations to inline, readers first.

    Parameters
    ----------
    stages
        The block's stage graph, readers after what they read.
    pinned
        Operations that another schedule owns: what they read keeps its buffer.
    outputs
        Operations whose tensors the kernel returns.
    """
    weight = _expression_costs(stages)
    evaluations: dict[te.Operation, float] = {}
    inlined: list[te.Operation] = []
    for op, stage in reversed(stages.items()):
        reads = sum(c.reads[op] * evaluations[c.op] for c in stage.consumers)
        evaluations[op] = float(stage.evaluations)
        if op in outputs or op in pinned or weight[op] > MAX_EXPRESSION_COST:
            continue
        repeats = reads / max(1, stage.size)
        if _can_inline(stage, pinned) and (repeats - 1.0) * max(weight[op], 0.5) <= BUFFER_COST:
            inlined.append(op)
            evaluations[op] = reads
    return inlined


def _can_inline(stage: Stage, pinned: Collection[te.Operation]) -> bool:
    return (
        stage.is_injective
        and bool(stage.consumers)
        and all(c.is_compute and c.op not in pinned and c.op.num_outputs == 1 for c in stage.consumers)
    )


def _expression_costs(stages: Mapping[te.Operation, Stage]) -> dict[te.Operation, float]:
    """Cost of one element, all injective stages above it inlined; starts anew where it grew too large."""
    weight: dict[te.Operation, float] = {}
    for op, stage in stages.items():
        weight[op] = stage.cost
        for producer, count in stage.reads.items():
            above = stages.get(producer)
            if above and above.is_injective and weight[producer] <= MAX_EXPRESSION_COST:
                weight[op] += count * weight[producer]
    return weight
