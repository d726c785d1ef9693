"""How often a block would evaluate its intermediates if it stored none of them.

A consumer inlined into one loop nest evaluates its operand wherever it reads it. Through a
One-to-One operand that is once per element; One-to-Many and Many-to-Many operands read an element
several times.
"""

from __future__ import annotations

from collections.abc import Collection

from .ecg import ECG, Node, TensorInfo, Value
from .mapping_type import MappingType


def tensor_info(ecg: ECG, value: Value) -> TensorInfo | None:
    """Shape and dtype of ``value``; None when they are not static."""
    outputs = ecg.nodes[value.node].outputs
    return outputs[value.index] if value.index < len(outputs) else None


def reads_per_element(operand: TensorInfo, consumer: Node, operand_type: MappingType) -> float:
    """How often ``consumer`` reads one element of an operand, on average and at least once.

    A One-to-Many operand is read once per output element, a Many-to-Many operand once per
    multiply-add, which is two of the operator's FLOPs. Empty tensors count as read once.
    """
    if operand.size == 0:
        return 1.0
    if operand_type is MappingType.ONE_TO_MANY:
        return max(1.0, consumer.outputs[0].size / operand.size)
    if operand_type is MappingType.MANY_TO_MANY:
        return max(1.0, consumer.flops / 2 / operand.size)
    return 1.0


def recomputed_flops(ecg: ECG, nodes: Collection[int]) -> float:
    """FLOPs that the block of ``nodes`` would execute beyond the first if it stored no intermediate.

    An expression that several members read at the same index counts once: common sub-trees are
    eliminated (section 4.4.1).
    """
    members = set(nodes)
    evaluations = dict.fromkeys(members, 1.0)
    extra = 0.0
    for node_id in sorted(members, reverse=True):
        node, times = ecg.nodes[node_id], evaluations[node_id]
        extra += (times - 1.0) * node.flops
        for value, operand_type in zip(node.inputs, node.operand_types, strict=True):
            info = tensor_info(ecg, value)
            if value.node in members and info is not None:
                reads = times * reads_per_element(info, node, operand_type)
                evaluations[value.node] = max(evaluations[value.node], reads)
    return extra
