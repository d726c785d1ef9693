"""Equality saturation over one window: all equal forms at once, so that steps that save nothing may lead on.

A compact e-graph on the terms of :mod:`terms`: classes of equal terms, merged by union-find and kept closed
under congruence. Types belong to classes, and so does being constant, which is what conditions of rules look
at. Source: Willsey et al., egg: fast and extensible equality saturation, POPL 2021. The ``egglog`` package
is not used: conditions of our rules look at shapes, attributes and values, which would all have to be
modelled there, and a window takes a millisecond to enter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ecg import TensorInfo
from .greedy import GreedySearch, Rewriting, Step
from .index import RuleIndex
from .licence import Refusal, apply
from .operators import Array, Attributes
from .rule import Licence, Rule
from .terms import NO_COST, Cost, Form, TermGraph

MAX_ROUNDS = 4
MAX_FORMS = 160


class EGraph:
    """Classes of equal terms of a graph; a class is named by one of its terms.

    Parameters
    ----------
    terms
        Where terms are made; a term of it is a class of its own until it is merged.
    """

    def __init__(self, terms: TermGraph) -> None:
        self.terms = terms
        self._parent: dict[int, int] = {}
        self._members: dict[int, list[int]] = {}
        self._canonical: dict[Form, int] = {}
        self._forms: dict[int, list[Form]] = {}  # of classes, until two of them are merged

    def find(self, number: int) -> int:
        """The class of a term."""
        root = number
        while (parent := self._parent.get(root, root)) != root:
            root = parent
        while self._parent.get(number, root) != root:
            self._parent[number], number = root, self._parent[number]
        return root

    def classes(self) -> list[int]:
        """All classes."""
        return list(self._members)

    def members(self, number: int) -> Sequence[int]:
        """The terms of a class."""
        root = self.find(number)
        return self._members.get(root) or [root]  # inside of constants there are no classes

    def insert(self, number: int) -> int:
        """The class of a term and, operands first, of all that it is computed by."""
        stack = [number]
        while stack:
            current = stack[-1]
            if current in self._parent:
                stack.pop()
                continue
            form = self.terms.forms[current]
            inside = () if self.terms.is_constant(current) else form.operands
            fresh = [o for o in inside if o not in self._parent]
            stack.extend(fresh)
            if not fresh:
                self._parent[current] = current
                self._members[current] = [current]
                if form.operator:
                    self._congruent(current)
        return self.find(number)

    def _canonical_form(self, number: int) -> Form:
        form = self.terms.forms[number]
        return Form(form.operator, tuple(self.find(o) for o in form.operands), form.attributes)

    def _congruent(self, number: int) -> bool:
        """Merge a term with an equal one; whether there was one in another class."""
        form = self._canonical_form(number)
        other = self._canonical.setdefault(form, number)
        return self.merge(number, other)

    def merge(self, first: int, second: int) -> bool:
        """Make two terms equal; whether they were not."""
        keep, gone = sorted((self.find(first), self.find(second)))
        if keep == gone:
            return False
        self._forms = {}
        self._parent.setdefault(keep, keep)
        self._parent[gone] = keep
        self._members[keep] = self._members.get(keep, [keep]) + self._members.pop(gone, [gone])
        return True

    def close(self) -> None:
        """Merge what became equal because operands did."""
        changed = True
        while changed:
            self._canonical = {}
            changed = False
            for members in list(self._members.values()):
                for number in members:
                    changed |= self._congruent(number)

    @property
    def size(self) -> int:
        """The number of forms."""
        return sum(map(len, self._members.values()))

    # What matching asks of a graph, see matching.Graph.

    def forms_of(self, number: int) -> Sequence[Form]:
        """All forms of a class, on classes."""
        root = self.find(number)
        if root not in self._forms:
            self._forms[root] = list(dict.fromkeys(self._canonical_form(n) for n in self.members(root)))
        return self._forms[root]

    def info(self, number: int) -> TensorInfo:
        """Shape and dtype."""
        return self.terms.info(number)

    def is_constant(self, number: int) -> bool:
        """Whether it is a constant."""
        return self.terms.is_constant(number)

    def uniform(self, number: int) -> float | None:
        """The common value of a constant's elements."""
        return self.terms.uniform(number)

    def value(self, number: int) -> Array:
        """The value of a constant."""
        return self.terms.value(number)

    def constant(self, value: Array) -> int:
        """A constant."""
        return self.insert(self.terms.constant(value))

    def add(self, operator: str, operands: tuple[int, ...], attributes: Attributes) -> int:
        """The class of an operator on classes."""
        return self.insert(self.terms.add(operator, operands, attributes))


class SaturationSearch:
    """Greedy search, then all rules at once within limits, then the cheapest of all equal terms.

    The limits, of rounds and of forms, end it whatever the rules are, and depend on nothing but the term.
    What it finds is used only if it is cheaper than what greedy search found, shared terms counted once.

    Parameters
    ----------
    rules
        Those that save nothing themselves as well.
    allowed
        The weakest licence.
    """

    def __init__(self, rules: Iterable[Rule], allowed: Licence) -> None:
        rules = tuple(rules)
        self._greedy = GreedySearch(rules, allowed)
        self._index = RuleIndex(rules)
        self._allowed = allowed

    def rewrite(self, graph: TermGraph, root: int) -> Rewriting:
        """The cheapest form of ``root`` that was found; new terms are added to ``graph``."""
        done = self._greedy.rewrite(graph, root)
        equal = EGraph(graph)
        equal.insert(done.root)
        for _ in range(MAX_ROUNDS):
            changed = [equal.merge(first, second) for first, second in self._matches(equal, done)]
            equal.close()
            if not any(changed) or equal.size > MAX_FORMS:
                break
        best = _extract(equal, done.root)
        before, after = graph.cost([done.root]), graph.cost([best])
        if after < before:
            given = set(graph.reachable([done.root]))
            new = [n for n in graph.reachable([best]) if n not in given]
            names = dict.fromkeys(done.origins[n] for n in new if n in done.origins)
            first, *others = names or ["equal terms"]
            done.steps += [Step(first, before - after), *(Step(name, NO_COST) for name in others)]
            done.root = best
        return done

    def _matches(self, equal: EGraph, done: Rewriting) -> list[tuple[int, int]]:
        merges: list[tuple[int, int]] = []
        for number in equal.classes():
            if equal.size > MAX_FORMS:
                break
            for rule, match in self._index.matches(equal, number):
                if rule.needs_sizes and rule.enables is None and match.is_uniform():
                    continue
                before = len(equal.terms.forms)
                result = apply(rule, match, self._allowed)
                for fresh in range(before, len(equal.terms.forms)):
                    done.origins[fresh] = rule.name
                if not isinstance(result, Refusal):
                    merges.append((number, result))
                elif result.is_notable:
                    done.refusals[result] += 1
        return merges


def _extract(equal: EGraph, root: int) -> int:
    """The cheapest term of a class, each form costing as much as all that it is computed by as a tree."""
    best: dict[int, tuple[Cost, int]] = {}
    changed = True
    while changed:
        changed = False
        for number in equal.classes():
            for member in equal.members(number):
                found = _tree(equal, best, member)
                if found is not None and (number not in best or found[0] < best[number][0]):
                    best[number] = found
                    changed = True
    found = best.get(equal.find(root))
    return root if found is None else found[1]


def _tree(equal: EGraph, best: dict[int, tuple[Cost, int]], member: int) -> tuple[Cost, int] | None:
    """The cost of one form on the best terms of its operands, and that term."""
    terms = equal.terms
    form = terms.forms[member]
    if not form.operator or terms.is_constant(member):
        return NO_COST, member
    operands = [best.get(equal.find(o)) for o in form.operands]
    chosen = [term for term in operands if term is not None]
    if len(chosen) < len(operands):
        return None
    total = sum((cost for cost, _ in chosen), NO_COST)
    term = terms.add(form.operator, tuple(number for _, number in chosen), dict(form.attributes))
    return total + terms.cost_of(term), term
