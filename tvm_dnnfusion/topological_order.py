"""A topological order of the graph of groups, kept while groups grow.

Fusing a producer with a consumer contracts the edge between them. That closes a cycle exactly when
a second path leads from the one to the other, so every candidate needs a reachability query. The
order bounds the query as in Pearce and Kelly, *A dynamic topological sort algorithm for directed
acyclic graphs* (JEA 11, 2006): only vertices between the two can lie on such a path. Two searches,
forward from the lower and backward from the upper vertex, share the work evenly and stop when
either is exhausted, so a query costs at most twice the cheaper of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_GAP = 1 << 32


@dataclass(slots=True)
class Contraction:
    """Outcome of a query: whether an edge may be contracted, and the part of the order it disturbs.

    Attributes
    ----------
    witness
        A node between the two ends outside both, so that contraction would close a cycle;
        None when it would not.
    moved
        Vertices that must leave the interval between the two ends, in topological order.
    at_low
        Whether the contracted vertex takes the lower end's place (``moved`` go before it) or the
        upper end's (``moved`` go behind it).
    """

    witness: int | None = None
    moved: list[int] = field(default_factory=list)
    at_low: bool = True


class QuotientOrder:
    """Vertices of a directed acyclic graph under contraction, in a topological order.

    A vertex is named by one of its nodes; ``owner[node]`` is the vertex that a node is part of.

    Parameters
    ----------
    preds
        Per node the nodes it depends on; all ids smaller than the node's own.
    """

    def __init__(self, preds: Sequence[Sequence[int]]) -> None:
        size = len(preds)
        self.owner = list(range(size))
        self._node_preds = preds
        self._below: list[list[int]] = [list(p) for p in preds]
        self._above: list[list[int]] = [[] for _ in range(size)]
        for node, sources in enumerate(preds):
            for source in sources:
                self._above[source].append(node)
        self._label = [(i + 1) * _GAP for i in range(size)] + [0]
        self._end = size  # sentinel of the circular list
        self._next = [*range(1, size + 1), 0]
        self._prev = [size, *range(size)]
        self._parent, self._enter, self._leave = _deepest_tree(preds)

    def position(self, vertex: int) -> int:
        """Key that sorts vertices in the present topological order."""
        return self._label[vertex]

    def query(self, low: int, high: int, consumers: Iterable[int]) -> Contraction:
        """Whether the edge from vertex ``low`` to vertex ``high`` may be contracted.

        Parameters
        ----------
        low, high
            Two vertices joined by an edge from ``low`` to ``high``.
        consumers
            The nodes of ``high`` that read a node of ``low``.

        Returns
        -------
        Contraction
            To be passed to :meth:`contract` before any other contraction.
        """
        sides = [(self._below[high], True), (self._above[low], False)]
        for neighbours, at_low in sorted(sides, key=lambda side: len(side[0])):
            if self._only_joins(neighbours, low, high):
                return Contraction(at_low=at_low)
        witness = self._tree_witness(low, high, consumers)
        return Contraction(witness) if witness is not None else self._search(low, high)

    def _only_joins(self, neighbours: list[int], low: int, high: int) -> bool:
        owner = self.owner
        return all(owner[node] == low or owner[node] == high for node in neighbours)

    def _tree_witness(self, low: int, high: int, consumers: Iterable[int]) -> int | None:
        """Find a bypass from the static tree alone, in constant time per edge.

        The tree hangs every node under its latest operand, so a long skip connection around a deep
        path (U-Net) is seen without walking that path.
        """
        owner, enter, leave = self.owner, self._enter, self._leave
        for consumer in consumers:
            latest = self._parent[consumer]
            if owner[latest] in (low, high):
                continue
            moment = enter[latest]
            for source in self._node_preds[consumer]:
                if owner[source] == low and enter[source] <= moment < leave[source]:
                    return latest
        return None

    def _live(self, adjacency: list[list[int]], vertex: int) -> list[int]:
        """Neighbouring vertices, each once; contracted names are resolved and stored back."""
        owner = self.owner
        found = dict.fromkeys([owner[node] for node in adjacency[vertex]])
        found.pop(vertex, None)
        adjacency[vertex] = live = list(found)
        return live

    def _search(self, low: int, high: int) -> Contraction:
        label, floor, ceiling = self._label, self._label[low], self._label[high]
        ahead, behind = {low}, {high}
        forward, backward = [low], [high]
        forward_work, backward_work = len(self._above[low]), len(self._below[high])
        while forward and backward:
            if forward_work < backward_work:
                vertex = forward.pop()
                for other in self._live(self._above, vertex):
                    if other in behind and not (vertex == low and other == high):
                        return Contraction(vertex if other == high else other)
                    if other not in ahead and label[other] < ceiling:
                        ahead.add(other)
                        forward.append(other)
                forward_work += len(self._above[forward[-1]]) + 1 if forward else 0
            else:
                vertex = backward.pop()
                for other in self._live(self._below, vertex):
                    if other in ahead and not (vertex == high and other == low):
                        return Contraction(vertex if other == low else other)
                    if other not in behind and label[other] > floor:
                        behind.add(other)
                        backward.append(other)
                backward_work += len(self._below[backward[-1]]) + 1 if backward else 0
        at_low = not backward
        moved = behind - {high} if at_low else ahead - {low}
        return Contraction(None, sorted(moved, key=label.__getitem__), at_low)

    def contract(self, low: int, high: int, contraction: Contraction, keep: int) -> None:
        """Contract the edge from ``low`` to ``high``; the result keeps the name ``keep``.

        The other end must consist of a single node. Costs its degree plus the vertices moved.
        """
        gone = high if keep == low else low
        for vertex in contraction.moved:
            self._unlink(vertex)
        if contraction.at_low:
            self._insert_after(self._prev[low], contraction.moved)
        else:
            self._insert_after(high, contraction.moved)
        if (keep == low) != contraction.at_low:
            self._replace(gone, keep)
        else:
            self._unlink(gone)
        self.owner[gone] = keep
        self._above[keep] += self._above[gone]
        self._below[keep] += self._below[gone]
        self._above[gone] = self._below[gone] = []

    def _replace(self, gone: int, keep: int) -> None:
        """Let ``keep`` leave its place for that of ``gone``."""
        self._unlink(keep)
        before, after = self._prev[gone], self._next[gone]
        self._next[before] = self._prev[after] = keep
        self._prev[keep], self._next[keep] = before, after
        self._label[keep] = self._label[gone]

    def _unlink(self, vertex: int) -> None:
        before, after = self._prev[vertex], self._next[vertex]
        self._next[before], self._prev[after] = after, before

    def _insert_after(self, anchor: int, vertices: list[int]) -> None:
        if not vertices:
            return
        end = self._next[anchor]
        start = self._label[anchor]
        stop = start + _GAP * (len(vertices) + 1) if end == self._end else self._label[end]
        step = (stop - start) // (len(vertices) + 1)
        previous = anchor
        for index, vertex in enumerate(vertices, 1):
            self._next[previous], self._prev[vertex] = vertex, previous
            self._label[vertex] = start + index * step
            previous = vertex
        self._next[previous], self._prev[end] = end, previous
        if step == 0:
            self._renumber()

    def _renumber(self) -> None:
        """Spread the labels evenly again; needed once in about 32 insertions at one place."""
        vertex, label = self._next[self._end], _GAP
        while vertex != self._end:
            self._label[vertex] = label
            vertex, label = self._next[vertex], label + _GAP


def _deepest_tree(preds: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[int]]:
    """Hang every node under its predecessor of greatest depth; parents and pre-order intervals.

    ``a`` is an ancestor of ``b`` in the tree, hence reaches it in the graph, exactly when
    ``enter[a] <= enter[b] < leave[a]``.
    """
    size = len(preds)
    depth, parent, extent = [0] * size, list(range(size)), [1] * size
    for node, sources in enumerate(preds):
        if sources:
            parent[node] = max(sources, key=depth.__getitem__)
            depth[node] = depth[parent[node]] + 1
    for node in range(size - 1, -1, -1):  # children have larger ids than their parent
        if parent[node] != node:
            extent[parent[node]] += extent[node]
    enter, free, root = [0] * size, [0] * size, 0
    for node in range(size):
        if parent[node] == node:
            enter[node], root = root, root + extent[node]
        else:
            enter[node] = free[parent[node]]
            free[parent[node]] += extent[node]
        free[node] = enter[node] + 1
    return parent, enter, [enter[i] + extent[i] for i in range(size)]
