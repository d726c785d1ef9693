"""Text of a sub-graph that depends on its structure alone, the key of measured latencies.

Two blocks with the same operators, attributes, shapes, dtypes and edges have the same text whatever
their node ids, in this model and later ones. The text holds the whole structure, so different blocks
never share one; should a highly symmetric block get two texts, it is measured twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from .ecg import ECG, Node, TensorInfo, Value
from .recompute import tensor_info

_Colours = dict[int, str]


def canonical_form(ecg: ECG, nodes: Collection[int]) -> str:
    """Describe the block of ``nodes``, one operator per line, results that leave it on the last.

    Operators are numbered in post-order from the block's last operators, which are sorted by a hash
    of everything above and below them.
    """
    members = frozenset(nodes)
    order = _emission_order(ecg, members, _colour(ecg, members))
    number = {node: position for position, node in enumerate(order)}
    external: dict[Value, int] = {}
    lines = []
    for node_id in order:
        node = ecg.nodes[node_id]
        operands = [_operand(ecg, value, number, external) for value in node.inputs]
        results = ", ".join(_tensor(info) for info in node.outputs)
        attributes = f"{{{node.attributes}}}" if node.attributes else ""
        lines.append(f"%{number[node_id]} = {node.op}{attributes}({', '.join(operands)}) -> {results}")
    leaving = sorted((number[value.node], value.index) for value in _leaving(ecg, members))
    lines.append("return " + ", ".join(f"%{node}.{index}" for node, index in leaving))
    return "\n".join(lines)


def _operand(ecg: ECG, value: Value, number: dict[int, int], external: dict[Value, int]) -> str:
    if value.node in number:
        return f"%{number[value.node]}.{value.index}"
    info, kind = tensor_info(ecg, value), ecg.nodes[value.node].kind
    if kind == "constant" and info is not None and info.shape == ():
        return f"scalar: {info.dtype}"  # inlined, so no two uses are the same argument
    name = "weight" if kind == "constant" else "input"
    return f"{name}{external.setdefault(value, len(external))}: {_tensor(info)}"


def _tensor(info: TensorInfo | None) -> str:
    return "?" if info is None else f"{info.dtype}{list(info.shape)}"


def _leaving(ecg: ECG, members: frozenset[int]) -> set[Value]:
    """Values computed in the block that others or the graph's user read."""
    users = {u for node in members for u in ecg.users[node]} - members
    leaving = {v for u in users for v in ecg.nodes[u].inputs if v.node in members}
    if not members.isdisjoint(ecg.output_nodes):
        leaving |= {v for v in ecg.outputs if v.node in members}
    return leaving


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _colour(ecg: ECG, members: frozenset[int]) -> _Colours:
    """Hash of each member that sees all of its ancestors, descendants and shared operands."""
    order = sorted(members)
    leaving = _leaving(ecg, members)
    colours = {
        n: _digest(_label(ecg.nodes[n]), sorted(v.index for v in leaving if v.node == n)) for n in order
    }
    for _ in range(2):  # the second round tells apart what differs in a cousin only
        shared = _operand_colours(ecg, members, colours)
        for n in order:
            inputs = ecg.nodes[n].inputs
            colours[n] = _digest(colours[n], [(colours.get(v.node) or shared[v], v.index) for v in inputs])
        uses: dict[int, list[tuple[str, int, int]]] = {n: [] for n in order}
        for n in reversed(order):
            colours[n] = _digest(colours[n], sorted(uses[n]))
            for position, value in enumerate(ecg.nodes[n].inputs):
                if value.node in members:
                    uses[value.node].append((colours[n], position, value.index))
    return colours


def _label(node: Node) -> tuple[str, str, list[str]]:
    return node.op, node.attributes, [_tensor(info) for info in node.outputs]


def _operand_colours(ecg: ECG, members: frozenset[int], colours: _Colours) -> dict[Value, str]:
    """Hash of each value read from outside: its tensor and who reads it where."""
    uses: dict[Value, list[tuple[str, int]]] = {}
    for n in members:
        for position, value in enumerate(ecg.nodes[n].inputs):
            if value.node not in members:
                uses.setdefault(value, []).append((colours[n], position))
    return {
        v: _digest(ecg.nodes[v.node].kind == "constant", _tensor(tensor_info(ecg, v)), sorted(readers))
        for v, readers in uses.items()
    }


def _emission_order(ecg: ECG, members: frozenset[int], colours: _Colours) -> list[int]:
    """Post-order over operands from the members that no member reads, those sorted by colour."""
    roots = [n for n in members if members.isdisjoint(ecg.users[n])]
    stack = [(n, False) for n in sorted(roots, key=lambda n: (colours[n], n), reverse=True)]
    placed: dict[int, None] = {}
    while stack:
        node, ready = stack.pop()
        if node in placed:
            continue
        if ready:
            placed[node] = None
            continue
        stack.append((node, True))
        stack += [(v.node, False) for v in reversed(ecg.nodes[node].inputs) if v.node in members]
    return list(placed)
