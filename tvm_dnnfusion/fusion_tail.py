"""Which Many-to-Many operator an operator continues: the block schedules compute such a tail at its tile.

An element-wise operator between two convolutions may join either by Table 3. Behind the first it
works on values that are still in registers; before the second it needs a pass over memory. So a
block leaves another operator's tail alone as long as that operator may still take it.
"""

from __future__ import annotations

from .ecg import ECG, Node
from .fusion_block import MANY_TO_MANY, GraphIndex
from .fusion_table import impedance
from .mapping_type import MappingType

_SHAPING = impedance(MappingType.SHUFFLE)


def tail_anchors(ecg: ECG, index: GraphIndex) -> list[int]:
    """Per node the Many-to-Many operator whose results it continues element by element; -1 if there is none.

    A Many-to-Many operator is its own. Where two meet, as in a residual addition, the later one counts.
    """
    anchors: list[int] = []
    for node in ecg.nodes:
        rank = index.types[node.id]
        if rank == MANY_TO_MANY:
            anchors.append(node.id)
        elif 0 <= rank <= _SHAPING:
            found = (anchors[p] for p in index.preds[node.id])
            anchors.append(max((a for a in found if a >= 0 and _keeps_size(node, ecg.nodes[a])), default=-1))
        else:
            anchors.append(-1)
    return anchors


def _keeps_size(node: Node, anchor: Node) -> bool:
    return len(node.outputs) == 1 and node.outputs[0].size == anchor.outputs[0].size
