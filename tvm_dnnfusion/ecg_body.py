"""Nodes of a plain-data ECG -> the text of the block that they would be, without their Relay expressions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .ecg import ECG, Node, Value
from .errors import BlockError


def operator_attributes(attributes: list[Any] | None, tuples: Sequence[int]) -> str:
    """Text of ``Node.attributes``: attributes, and per argument the length of a tuple (0: a tensor)."""
    return json.dumps([attributes, list(tuples)], separators=(",", ":"))


def body_of_nodes(ecg: ECG, nodes: Sequence[int]) -> tuple[str, tuple[Value, ...]]:
    """Body text of a group and the values that it reads from outside, constants included.

    Parameters
    ----------
    nodes
        Ids of operators, ascending.

    Raises
    ------
    BlockError
        A node is not an operator with recorded attributes.
    """
    members = {n: position for position, n in enumerate(nodes)}
    external: dict[Value, str] = {}
    operators = [_operator(ecg, ecg.nodes[n], members, external) for n in nodes]
    read_outside = {v for node in ecg.nodes if node.id not in members for v in node.inputs}
    leaving = [
        _name(ecg, Value(n, i), members)
        for n in nodes
        for i in range(len(ecg.nodes[n].outputs))
        if Value(n, i) in read_outside or Value(n, i) in ecg.outputs
    ]
    inputs = [[list(info.shape), info.dtype] for info in (_info(ecg, v) for v in external)]
    body = {"inputs": inputs, "operators": operators, "outputs": leaving}
    return json.dumps(body, separators=(",", ":")), tuple(external)


def _operator(ecg: ECG, node: Node, members: dict[int, int], external: dict[Value, str]) -> list[Any]:
    if node.kind != "op" or not node.attributes:
        raise BlockError(f"node {node.id} ({node.op}) is not an operator with recorded attributes")
    attributes, tuples = json.loads(node.attributes)
    names = []
    for value in node.inputs:
        if value.node not in members:
            external.setdefault(value, f"x{len(external)}")
        names.append(external.get(value) or _name(ecg, value, members))
    rest = iter(names)
    operands = [[next(rest) for _ in range(length)] if length else next(rest) for length in tuples]
    return [node.op, operands, *([attributes] if attributes is not None else [])]


def _name(ecg: ECG, value: Value, members: dict[int, int]) -> str:
    position = members[value.node]
    return f"{position}.{value.index}" if len(ecg.nodes[value.node].outputs) > 1 else str(position)


def _info(ecg: ECG, value: Value) -> Any:
    return ecg.nodes[value.node].outputs[value.index]
