"""Rewrite by mathematical properties (section 4.2 of the paper), under a numeric licence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relay
from tvm.relay.function import FunctionWithFields

from tvm_dnnfusion.errors import OptionError
from tvm_dnnfusion.relay_graph import is_sealed
from tvm_dnnfusion.relay_span import span_text
from tvm_dnnfusion.rewriting.greedy import GreedySearch
from tvm_dnnfusion.rewriting.licence import Refusal
from tvm_dnnfusion.rewriting.relay_build import TermEmitter
from tvm_dnnfusion.rewriting.relay_terms import Imported, import_terms
from tvm_dnnfusion.rewriting.rule import NUMERICS, Licence, Rule
from tvm_dnnfusion.rewriting.rules import all_rules
from tvm_dnnfusion.rewriting.saturation import SaturationSearch
from tvm_dnnfusion.rewriting.terms import NO_COST, Cost
from tvm_dnnfusion.rewriting.windows import WindowSearch, cut

SEARCHES: dict[str, Callable[[Iterable[Rule], Licence], GreedySearch | SaturationSearch]] = {
    "greedy": GreedySearch,
    "saturation": SaturationSearch,
}
# Windows are cut anew after each round, since a rewriting may bring terms together.
MAX_ROUNDS = 4


@dataclass(frozen=True)
class FiredRule:
    """One use of a rule.

    Attributes
    ----------
    rule
        Its name.
    function, span
        Where: the function, and the source of the operator that was rewritten.
    saved
        Operations, bytes and operators.
    """

    rule: str
    function: str
    span: str
    saved: Cost


@dataclass
class RewritingLog:
    """What the rewriting phase did.

    Attributes
    ----------
    fired
        Uses of rules.
    refusals
        Matches that were not used, counted once per window structure.
    before, after
        Cost of what equations can speak of.
    """

    fired: list[FiredRule] = field(default_factory=list)
    refusals: Counter[Refusal] = field(default_factory=Counter)
    before: Cost = NO_COST
    after: Cost = NO_COST

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "flops_before": self.before.flops,
            "flops_after": self.after.flops,
            "bytes_before": self.before.bytes,
            "bytes_after": self.after.bytes,
            "fired": [
                {"rule": f.rule, "function": f.function, "span": f.span}
                | {"flops_saved": f.saved.flops, "bytes_saved": f.saved.bytes}
                for f in self.fired
            ],
            "refused": [
                {"rule": refusal.rule, "reason": refusal.reason, "count": count}
                for refusal, count in self.refusals.most_common()
            ],
        }

    def to_lines(self) -> list[str]:
        """A summary, one line per rule that fired and per refusal; nothing if there is neither."""
        lines: list[str] = []
        if self.fired:
            flops = f"{self.before.flops / 1e6:.1f} to {self.after.flops / 1e6:.1f} million operations"
            lines += ["", f"Rewritten: {flops}"]
            for name in dict.fromkeys(f.rule for f in self.fired):
                uses = [f.saved for f in self.fired if f.rule == name]
                saved = sum(uses, NO_COST)
                lines.append(
                    f"{name}, {len(uses)} times: {saved.flops} operations, {saved.bytes} bytes saved"
                )
        if self.refusals:
            lines += ["", "Not rewritten:"]
            lines += [f"{r.rule}, {count} times: {r.reason}" for r, count in self.refusals.most_common()]
        return lines


class _FunctionRewriter:
    """Rewrites one function after another; windows of equal structure are searched once for all of them."""

    def __init__(self, rules: Iterable[Rule], numerics: str, search: str) -> None:
        self.log = RewritingLog()
        self._windows = WindowSearch(SEARCHES[search](rules, NUMERICS[numerics]).rewrite)

    def rewrite(self, name: str, function: relay.Function) -> relay.Function:
        """``function`` with cheaper terms; itself if there are none."""
        imported = import_terms(function)
        graph, fired = imported.graph, list[FiredRule]()
        before = graph.cost(imported.outputs)
        final = {number: number for number in imported.outputs}
        origins: dict[int, str] = {}
        for _ in range(MAX_ROUNDS):
            replaced: dict[int, int] = {}
            for window in cut(graph, list(final.values())):
                found = self._windows.improve(graph, window)
                if found.replacement != window.root:
                    replaced[window.root] = found.replacement
                    origins.update(found.origins)
                    span = self._span(imported, window.root)
                    fired += [FiredRule(s.rule, name, span, s.saved) for s in found.rewriting.steps]
            if not replaced:
                break
            resolved = graph.resolved(final.values(), replaced)
            final = {number: resolved[last] for number, last in final.items()}
        after = graph.cost(final.values())
        changed = {number: last for number, last in final.items() if number != last}
        if not changed or after >= before:
            changed, after, fired = {}, before, []
        self.log.before, self.log.after = self.log.before + before, self.log.after + after
        self.log.fired += fired
        if not changed:
            return function
        return FunctionWithFields(
            function, body=TermEmitter(imported, changed, origins).rebuilt(function.body)
        )

    @staticmethod
    def _span(imported: Imported, number: int) -> str:
        while number not in imported.exprs and number in imported.graph.sources:
            number = imported.graph.sources[number]
        expr = imported.exprs.get(number)
        return "" if expr is None else span_text(expr.span)

    def finish(self) -> RewritingLog:
        """The log, with the refusals of all searches."""
        for rewriting in self._windows.rewritings():
            self.log.refusals.update(rewriting.refusals)
        return self.log


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.RewriteProperties")
class RewriteProperties:
    """Pass that replaces terms by cheaper ones, equal by associativity, distributivity or commutativity.

    Parameters
    ----------
    numerics
        ``strict``: results stay bit-equal up to the kernels' own rounding; ``relaxed``: rounding may differ;
        ``fast``: no value is infinite or NaN.
    search
        ``greedy``, as in the paper, or ``saturation``, which goes on from there.
    rules
        All registered ones by default.
    on_log
        Gets the log of each run.
    """

    def __init__(
        self,
        numerics: str = "relaxed",
        search: str = "saturation",
        rules: Iterable[Rule] | None = None,
        on_log: Callable[[RewritingLog], None] = lambda log: None,
    ) -> None:
        if numerics not in NUMERICS:
            raise OptionError(f"numerics is {numerics!r}; accepted are {', '.join(NUMERICS)}")
        if search not in SEARCHES:
            raise OptionError(f"search is {search!r}; accepted are {', '.join(SEARCHES)}")
        self._numerics = numerics
        self._search = search
        self._rules = None if rules is None else tuple(rules)
        self._on_log = on_log

    if TYPE_CHECKING:  # module_pass makes it a tvm.transform.Pass

        def __call__(self, mod: tvm.IRModule) -> tvm.IRModule: ...

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """The module, types inferred, with cheaper terms; the module itself if there are none."""
        rules = all_rules() if self._rules is None else self._rules
        rewriter = _FunctionRewriter(rules, self._numerics, self._search)
        changed = {}
        for var, function in mod.functions.items():
            if isinstance(function, relay.Function) and not is_sealed(function):
                new = rewriter.rewrite(var.name_hint, function)
                if new is not function:
                    changed[var] = new
        self._on_log(rewriter.finish())
        if not changed:
            return mod
        result = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
        for var, function in changed.items():
            result[var] = function
        return relay.transform.InferType()(result)
