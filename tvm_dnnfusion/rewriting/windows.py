"""Cutting a graph of terms into small ones that are searched alone, and putting what was found back.

A window is a term with everything that only it needs. Nothing outside of a window reads its inner terms, so
that a search may drop them, and what is read from outside is never computed from its root, so that no search
can make a cycle. The paper cuts at operators without a property; those are leaves here. Windows of equal
structure, the layers of a network, are searched once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from .greedy import Rewriting
from .licence import bad_constant, is_nonnegative
from .terms import SMALL, AttributeKey, TermGraph

# Terms of a window; what is left begins another one.
MAX_WINDOW = 64

Search = Callable[[TermGraph, int], Rewriting]


@dataclass(frozen=True)
class Window:
    """A term of a graph and what it is computed by, up to ``leaves``.

    Attributes
    ----------
    root
        The term.
    members
        Operators, operands first, the root last.
    leaves
        What they read from outside.
    """

    root: int
    members: tuple[int, ...]
    leaves: tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """What a search found for a window of a graph.

    Attributes
    ----------
    replacement
        The term that replaces its root; the root itself if nothing was found.
    rewriting
        How, in the window's own graph.
    origins
        Per new term of the graph, the rule that made it.
    """

    window: Window
    replacement: int
    rewriting: Rewriting
    origins: Mapping[int, str]


def cut(graph: TermGraph, outputs: Collection[int]) -> list[Window]:
    """The windows of everything that ``outputs`` are computed by, operands first."""
    live = graph.reachable(outputs)
    owner: dict[int, int] = {}
    users: dict[int, set[int]] = {}
    for number in live:
        for operand in graph.forms[number].operands:
            users.setdefault(operand, set()).add(number)
    members: dict[int, list[int]] = {}
    kept = set(outputs)
    for number in reversed(live):
        owners = {owner[user] for user in users.get(number, ())}
        root = next(iter(owners)) if len(owners) == 1 and number not in kept else number
        if len(members.get(root, ())) >= MAX_WINDOW:
            root = number
        owner[number] = root
        members.setdefault(root, []).append(number)
    return [_window(graph, root, members[root][::-1]) for root in live if root in members]


def _window(graph: TermGraph, root: int, members: list[int]) -> Window:
    inside = set(members)
    leaves = {o: None for n in members for o in graph.forms[n].operands if o not in inside}
    return Window(root, tuple(members), tuple(leaves))


@dataclass(frozen=True)
class _Searched:
    """A window's own graph, its members there, and what was found."""

    graph: TermGraph
    members: tuple[int, ...]
    rewriting: Rewriting


class WindowSearch:
    """Searches windows by ``search``, each structure once."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._known: dict[tuple[object, ...], _Searched] = {}

    def improve(self, graph: TermGraph, window: Window) -> Found:
        """The cheaper form of a window's root, added to ``graph``."""
        key = _structure(graph, window)
        if key not in self._known:
            self._known[key] = self._searched(graph, window)
        found = self._transferred(graph, window, self._known[key])
        if found is None:  # the constants of this instance do not bear what those of another one did
            found = self._transferred(graph, window, self._searched(graph, window))
        return found or Found(window, window.root, Rewriting(window.root), {})

    def rewritings(self) -> list[Rewriting]:
        """Results of all searches that were run."""
        return [searched.rewriting for searched in self._known.values()]

    def _searched(self, graph: TermGraph, window: Window) -> _Searched:
        alone = TermGraph()
        number: dict[int, int] = {}
        for position, leaf in enumerate(window.leaves):
            info = graph.infos[leaf]
            if graph.is_constant(leaf):
                number[leaf] = alone.late_constant(position, info, partial(graph.value, leaf))
            else:
                number[leaf] = alone.leaf(position, info)
        for member in window.members:
            form = graph.forms[member]
            operands = tuple(number[o] for o in form.operands)
            number[member] = alone.add(form.operator, operands, dict(form.attributes))
        rewriting = self._search(alone, number[window.root])
        return _Searched(alone, tuple(number[m] for m in window.members), rewriting)

    def _transferred(self, graph: TermGraph, window: Window, searched: _Searched) -> Found | None:
        """What was found for the structure, as terms of ``graph`` on this window's leaves."""
        alone, rewriting = searched.graph, searched.rewriting
        if not rewriting.steps:
            return Found(window, window.root, rewriting, {})
        member = dict(zip(searched.members, window.members, strict=True))
        number: dict[int, int] = {}
        origins: dict[int, str] = {}
        pending = [rewriting.root]
        while pending:
            current = pending[-1]
            form = alone.forms[current]
            missing = [o for o in form.operands if o not in number]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if not form.operator:
                number[current] = self._transferred_leaf(graph, window, alone, current)
                continue
            known = len(graph.forms)
            operands = tuple(number[o] for o in form.operands)
            new = number[current] = graph.add(form.operator, operands, dict(form.attributes))
            if new < known:
                continue
            if current in rewriting.origins:
                origins[new] = rewriting.origins[current]
            elif alone.sources.get(current) in member:
                graph.sources.setdefault(new, member[alone.sources[current]])
        root = number[rewriting.root]
        if bad_constant(graph, root, set(window.leaves)) is not None:
            return None
        return Found(window, root, rewriting, origins)

    @staticmethod
    def _transferred_leaf(graph: TermGraph, window: Window, alone: TermGraph, leaf: int) -> int:
        key = alone.forms[leaf].attributes[0][1]
        return window.leaves[key] if isinstance(key, int) else graph.constant(alone.value(leaf))


def _structure(graph: TermGraph, window: Window) -> tuple[object, ...]:
    """What searches depend on: everything but the values of constants, of which the special ones count."""
    position = {number: i for i, number in enumerate((*window.leaves, *window.members))}
    leaves = tuple(_leaf_structure(graph, leaf) for leaf in window.leaves)
    operators: list[tuple[str, tuple[int, ...], AttributeKey]] = []
    for member in window.members:
        form = graph.forms[member]
        operators.append((form.operator, tuple(position[o] for o in form.operands), form.attributes))
    return (leaves, tuple(operators))


def _leaf_structure(graph: TermGraph, leaf: int) -> tuple[object, ...]:
    info = graph.infos[leaf]
    if not graph.is_constant(leaf):
        return (info.shape, info.dtype)
    nonnegative = info.size <= SMALL and is_nonnegative(graph, leaf)
    return (info.shape, info.dtype, str(graph.uniform(leaf)), nonnegative)
