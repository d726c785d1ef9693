"""Whether a rule may be used at a match: types, licence, side conditions, and the constants it makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .matching import Graph, Match, build
from .pattern import Inapplicable
from .rule import Licence, Rule
from .terms import SMALL, Form

# Rewriting may lose range; half precision has none to lose.
_NARROW = ("float16", "bfloat16", "float8")


@dataclass(frozen=True)
class Refusal:
    """A rule that matched and was not used, and why."""

    rule: str
    reason: str

    @property
    def is_notable(self) -> bool:
        """Whether the equation does hold here but its licence, or a constant, forbids to use it."""
        return self.reason.startswith(("licence", "constant", "integers"))


def apply(rule: Rule, match: Match, allowed: Licence) -> int | Refusal:
    """The term that replaces ``match.root`` under ``rule``, or why it must not."""
    reason = _wrong_types(rule, match) or _unlicensed(rule, match, allowed) or rule.why_not(match)
    if reason is not None:
        return Refusal(rule.name, reason)
    try:
        result = build(rule.rhs, match)
    except Inapplicable as problem:
        return Refusal(rule.name, str(problem))
    except IndexError:  # a calculation met an operand of a lower rank than the equation is about
        return Refusal(rule.name, "an operand of another rank")
    found, wanted = match.graph.info(result), match.output
    if found != wanted:
        what = f"the result would be {found.dtype}{found.shape} instead of {wanted.dtype}{wanted.shape}"
        return Refusal(rule.name, what)
    if rule.licence is not Licence.EXACT:
        reason = bad_constant(match.graph, result, match.tensors())
        if reason is not None:
            return Refusal(rule.name, reason)
    return result


def _wrong_types(rule: Rule, match: Match) -> str | None:
    dtypes = {match.output.dtype}
    dtypes.update(match.graph.info(number).dtype for number in match.tensors())
    if any(d.startswith(("int", "uint")) for d in dtypes) and not rule.holds_for_integers:
        return "integers: the equation does not hold for them modulo 2^n"
    floats = [d for d in dtypes if d.startswith(("float", "bfloat"))]
    if floats and not rule.floats:
        return "floats: the equation holds for integers only"
    narrow = [d for d in floats if d.startswith(_NARROW)]
    if narrow and rule.licence is not Licence.EXACT:
        return f"{narrow[0]} has too little range and precision for another order of operations"
    unknown = [d for d in dtypes if not d.startswith(("int", "uint", "float", "bfloat", "bool"))]
    return f"elements of type {unknown[0]}" if unknown else None


def _unlicensed(rule: Rule, match: Match, allowed: Licence) -> str | None:
    needed = rule.licence
    for variable in rule.nonnegative:
        if not is_nonnegative(match.graph, match.bindings[variable.name]):
            return f"{variable} may be negative"
    for variable in rule.defined:
        number = match.bindings[variable.name]
        if not is_nonnegative(match.graph, number):
            if match.graph.is_constant(number) or allowed < Licence.FINITE_ONLY:
                return f"licence: {variable} may be negative, which makes NaN of it"
            needed = Licence.FINITE_ONLY
    if needed <= allowed or not match.output.dtype.startswith(("float", "bfloat", "bool")):
        return None
    option = "'relaxed'" if needed is Licence.REASSOCIATES else "'fast'"
    return f"licence: it {_CHANGES[needed]}, which needs numerics={option}"


_CHANGES = {Licence.REASSOCIATES: "changes rounding", Licence.FINITE_ONLY: "assumes finite values"}

_NONNEGATIVE = frozenset({"abs", "exp", "nn.relu", "sigmoid", "sqrt"})
_WRAPS_NOT = frozenset({"nn.relu", "maximum", "minimum", "max", "min", "reshape", "transpose"})
_ALWAYS = "add multiply divide maximum minimum sum prod mean max min"
_MOVES = "reshape transpose broadcast_to strided_slice concatenate take"
_KEEPS_SIGN = frozenset(f"{_ALWAYS} {_MOVES}".split())


def is_nonnegative(graph: Graph, number: int, depth: int = 6) -> bool:
    """Whether no element of a term can be negative; False where that does not show within ``depth``."""
    if graph.is_constant(number) and graph.info(number).size <= SMALL:
        return bool(np.all(graph.value(number) >= 0))
    return depth > 0 and any(_form_is_nonnegative(graph, f, depth - 1) for f in graph.forms_of(number))


def _form_is_nonnegative(graph: Graph, form: Form, depth: int) -> bool:
    operator, operands = form.operator, form.operands
    if not operator:
        return False
    if not graph.info(operands[0]).dtype.startswith("float") and operator not in _WRAPS_NOT:
        return False  # the absolute value of -128 in 8 bits is -128
    if operator in _NONNEGATIVE:
        return True
    if operator == "multiply" and operands[0] == operands[1]:
        return True
    if operator == "power" and graph.uniform(operands[1]) in (2.0, 4.0):
        return True
    if operator not in _KEEPS_SIGN:
        return False
    data = operands[:1] if operator == "take" else operands
    return all(is_nonnegative(graph, o, depth) for o in data)


def bad_constant(graph: Graph, root: int, given: set[int]) -> str | None:
    """Why a constant folded between ``given`` terms and ``root`` overflows or is lost to underflow."""
    for number, form in _folded(graph, root, given):
        value = graph.value(number)
        if value.dtype.kind != "f":
            continue
        operands = [graph.value(o) for o in form.operands]
        floats = [o for o in operands if o.dtype.kind == "f"]
        if not np.all(np.isfinite(value)):
            if all(np.all(np.isfinite(o)) for o in floats):
                return f"constant: {form.operator} of constants overflows"
            return "constant: a constant is infinite or NaN"
        if form.operator in ("multiply", "divide", "power", "exp"):
            normal = np.abs(value) >= np.finfo(value.dtype).tiny
            zero = (floats[0] == 0) & np.ones(value.shape, bool)
            if form.operator == "multiply":
                zero = zero | (floats[1] == 0)
            if not np.all(normal | (zero & (value == 0))):
                return f"constant: {form.operator} of constants underflows"
    return None


def _folded(graph: Graph, root: int, given: set[int]) -> Iterator[tuple[int, Form]]:
    """Operators on constants alone above ``given`` terms, operands first."""
    found: list[tuple[int, Form]] = []
    stack, seen = [root], {root, *given}
    if root in given:
        return iter(())
    while stack:
        number = stack.pop()
        form = graph.forms_of(number)[0]
        if form.operator and graph.is_constant(number):
            found.append((number, form))
        fresh = [o for o in form.operands if o not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return reversed(found)
