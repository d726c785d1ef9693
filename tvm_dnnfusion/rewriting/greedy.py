"""The paper's search: the rewriting that saves most, again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from .index import RuleIndex
from .licence import Refusal, apply
from .rule import Licence, Rule
from .terms import NO_COST, Cost, TermGraph


@dataclass(frozen=True)
class Step:
    """One use of a rule and what it saved."""

    rule: str
    saved: Cost


@dataclass
class Rewriting:
    """What a search did to one term.

    Attributes
    ----------
    root
        The term that replaces it: itself if nothing was found.
    steps
        Uses of rules, in order.
    refusals
        Matches that were not used, with how often.
    origins
        Per new term, the rule that made it.
    """

    root: int
    steps: list[Step] = field(default_factory=list)
    refusals: Counter[Refusal] = field(default_factory=Counter)
    origins: dict[int, str] = field(default_factory=dict)


class GreedySearch:
    """Largest possible drop in cost first, until no rule saves anything.

    Each step makes the cost smaller, and costs are triples of natural numbers compared in order, so it ends
    whatever the rules are: A -> B and B -> A cannot both save.
    Source: DNNFusion, section 4.2.
    """

    def __init__(self, rules: Iterable[Rule], allowed: Licence) -> None:
        self._index = RuleIndex(rule for rule in rules if rule.enables is None)
        self._allowed = allowed

    def rewrite(self, graph: TermGraph, root: int) -> Rewriting:
        """The cheapest form of ``root`` that this search finds; new terms are added to ``graph``."""
        done = Rewriting(root)
        results: dict[int, list[_Result]] = {}
        cost = graph.cost([root])
        progress = True
        while progress:
            progress = False
            for result in self._candidates(graph, done, results):
                present = set(graph.reachable([done.root]))
                if result.at not in present or result.saving(graph, present) <= NO_COST:
                    continue  # another one has changed what this one rewrites
                changed = graph.substituted(done.root, result.at, result.number)
                found = graph.cost([changed])
                if found < cost:
                    done.steps.append(Step(result.rule, cost - found))
                    cost, done.root, progress = found, changed, True
        return done

    def _candidates(
        self, graph: TermGraph, done: Rewriting, results: dict[int, list[_Result]]
    ) -> list[_Result]:
        """What may save anything, the most first."""
        live = graph.reachable([done.root])
        present = set(live)
        found: list[tuple[Cost, _Result]] = []
        for number in live:
            if number not in results:
                results[number] = list(self._results(graph, number, done))
            savings = ((result.saving(graph, present), result) for result in results[number])
            found += [(saving, result) for saving, result in savings if saving > NO_COST]
        return [result for _, result in sorted(found, key=lambda pair: pair[0], reverse=True)]

    def _results(self, graph: TermGraph, number: int, done: Rewriting) -> Iterator[_Result]:
        for rule, match in self._index.matches(graph, number):
            if rule.needs_sizes and match.is_uniform():
                continue
            before = len(graph.forms)
            result = apply(rule, match, self._allowed)
            for fresh in range(before, len(graph.forms)):
                done.origins[fresh] = rule.name
            if isinstance(result, Refusal):
                if result.is_notable:
                    done.refusals[result] += 1
            elif result != number:
                given = match.tensors()
                yield _Result(
                    rule.name, number, result, graph.above(number, given), graph.above(result, given)
                )


@dataclass(frozen=True)
class _Result:
    """What a rule makes of a term: operators of the left side go, those of the right one come."""

    rule: str
    at: int
    number: int
    gone: tuple[int, ...]
    come: tuple[int, ...]

    def saving(self, graph: TermGraph, present: Collection[int]) -> Cost:
        """What this saves at most: as if nothing else read the terms of the left side."""
        gone = sum((graph.cost_of(n) for n in self.gone), NO_COST)
        return gone - sum((graph.cost_of(n) for n in self.come if n not in present), NO_COST)
