"""The paper's search: the rewriting that saves most, again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from .index import RuleIndex
from .licence import Refusal, apply
from .rule import Licence
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
    """Largest drop in cost first, until no rule saves anything.

    Each step makes the cost smaller, and costs are triples of natural numbers compared in order, so it ends
    whatever the rules are: A -> B and B -> A cannot both save.
    Source: DNNFusion, section 4.2.
    """

    def __init__(self, index: RuleIndex, allowed: Licence) -> None:
        self._index = index
        self._allowed = allowed

    def rewrite(self, graph: TermGraph, root: int) -> Rewriting:
        """The cheapest form of ``root`` that this search finds; new terms are added to ``graph``."""
        done = Rewriting(root)
        results: dict[int, list[_Result]] = {}
        cost = graph.cost([root])
        while True:
            best: tuple[Cost, int, str] | None = None
            live = graph.reachable([done.root])
            present = set(live)
            for number in live:
                if number not in results:
                    results[number] = list(self._results(graph, number, done))
                for result in results[number]:
                    if not result.may_save(graph, present):
                        continue
                    changed = graph.substituted(done.root, number, result.number)
                    found = graph.cost([changed])
                    if found < (cost if best is None else best[0]):
                        best = (found, changed, result.rule)
            if best is None:
                return done
            done.steps.append(Step(best[2], cost - best[0]))
            cost, done.root = best[0], best[1]

    def _results(self, graph: TermGraph, number: int, done: Rewriting) -> Iterator[_Result]:
        for rule, match in self._index.matches(graph, number):
            before = len(graph.forms)
            result = apply(rule, match, self._allowed)
            for fresh in range(before, len(graph.forms)):
                done.origins[fresh] = rule.name
            if isinstance(result, Refusal):
                done.refusals[result] += 1
            elif result != number:
                given = match.tensors()
                yield _Result(rule.name, result, graph.above(number, given), graph.above(result, given))


@dataclass(frozen=True)
class _Result:
    """What a rule makes of a term: operators of the left side go, at most, and those of the right one come."""

    rule: str
    number: int
    gone: tuple[int, ...]
    come: tuple[int, ...]

    def may_save(self, graph: TermGraph, present: Collection[int]) -> bool:
        """Whether this could save anything; cheap, and never wrong about a saving."""
        gone = sum((graph.cost_of(n) for n in self.gone), NO_COST)
        return sum((graph.cost_of(n) for n in self.come if n not in present), NO_COST) < gone
