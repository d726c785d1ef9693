"""The proof that every rule must pass, ours and other people's alike: see :func:`prove`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .index import RuleIndex
from .licence import Refusal, apply
from .matching import Match, build, tensor_names
from .operators import BITWISE, COMPARISONS, ELEMENTWISE, LOGICAL
from .operators_linear import CONTRACTIONS, CONVOLUTIONS, TRANSPOSED
from .pattern import Inapplicable, Operation
from .probing import Case, evaluate_all, operator_choices, operator_variables, retyped
from .rule import Licence, Rule

# Values at which floating-point equations break.
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e38, -1e38, 1e-38)
# Beyond these magnitudes a value is not "well away" from overflow or underflow: its products leave the range.
LARGE, SMALL = 1e9, 1e-9
# Draws of special values per rule.
DRAWS = 24


# Operators defined for all integers; powers, divisions and shifts by random amounts are not.
_ON_INTEGERS = frozenset(
    {
        *("abs", "negative", "nn.relu", "clip", "bitwise_not", "add", "subtract", "multiply"),
        *("maximum", "minimum", *COMPARISONS, *BITWISE, *LOGICAL, "logical_not"),
        *("sum", "prod", "max", "min", "all", "any", *CONVOLUTIONS, *CONTRACTIONS, *TRANSPOSED),
    }
)


class ProofError(AssertionError):
    """A rule that does not do what its declaration says."""


def prove(rule: Rule, seed: int = 0) -> None:
    """Check all that a declaration claims.

    Every commuted variant fires on every probe and gives the equation's right side; that is cheaper, unless
    the rule only enables others; both sides agree on random values (float32 against float64, relative 1e-5),
    on special values as far as the licence says, and on all values of int8 if it holds for integers; each
    refusal refuses with its reason.

    Raises
    ------
    ProofError
        Saying which claim fails, and where.
    """
    rng = np.random.default_rng(seed)
    prove_fires(rule, rng)
    prove_special_values(rule, rng)
    prove_integers(rule, rng)
    prove_refusals(rule, rng)


def probes(rule: Rule) -> Iterator[dict[str, Any]]:
    """All operands on which ``rule`` is tried, with all operators for which a variable may stand."""
    for probe in rule.fires:
        yield from operator_choices(rule, probe)


def results(rule: Rule, case: Case) -> list[int | Refusal]:
    """What the engine makes of a term by one rule, everything licensed."""
    matches = RuleIndex([rule]).matches(case.graph, case.root)
    return list(dict.fromkeys(apply(rule, match, Licence.FINITE_ONLY) for _, match in matches))


def result_as_declared(rule: Rule, case: Case) -> int | Refusal | None:
    """The same where variables stand for the tensors that the probe gives them; None if it does not match."""
    names = tensor_names(rule.lhs)
    for _, match in RuleIndex([rule]).matches(case.graph, case.root):
        if match.pattern == rule.lhs and all(match.bindings[n] == case.bindings[n] for n in names):
            return apply(rule, match, Licence.FINITE_ONLY)
    return None


def _nonnegative(rule: Rule) -> frozenset[str]:
    return frozenset(variable.name for variable in (*rule.nonnegative, *rule.defined))


def right_side(rule: Rule, case: Case, variant: Operation) -> int:
    """The equation's right side on a case."""
    return build(rule.rhs, Match(case.graph, case.root, case.bindings, variant))


def prove_fires(rule: Rule, rng: np.random.Generator) -> None:
    """Each variant fires on each probe, gives the right side, saves something, and is right."""
    for probe in probes(rule):
        for variant in rule.variants:
            case = Case(variant, probe, rng, _nonnegative(rule))
            wanted = right_side(rule, case, variant)
            found = results(rule, case)
            if wanted not in found:
                raise ProofError(f"{rule.name}: {variant} on {probe} gives {found}, not {rule.rhs}")
            for result in found:
                if not isinstance(result, Refusal):
                    _check_numbers(rule, case, result, probe)
            before, after = case.graph.cost([case.root]), case.graph.cost([wanted])
            if rule.enables is None and not after < before:
                raise ProofError(f"{rule.name} on {probe}: {after} is not cheaper than {before}")


def _doubles(values: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    return {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in values.items()}


def _check_numbers(rule: Rule, case: Case, result: int, probe: Mapping[str, Any]) -> None:
    before, after = case.evaluate(case.root), case.evaluate(result)
    exact = case.evaluate(case.root, _doubles(case.values))
    same = case.evaluate(result, _doubles(case.values))
    if before.dtype.kind != "f":
        right = np.array_equal(before, after)
    else:
        scale = float(np.max(np.abs(exact[np.isfinite(exact)]), initial=0))
        right = np.allclose(after, exact, rtol=1e-5, atol=1e-6 * scale, equal_nan=True)
        right = right and np.allclose(same, exact, rtol=1e-10, atol=1e-11 * scale, equal_nan=True)
    if not right:
        raise ProofError(f"{rule.name} on {probe}: {_difference(case.values, before, after)}")


def prove_special_values(rule: Rule, rng: np.random.Generator) -> None:
    """Infinities, NaN, signed zeros, subnormal and huge values, as far as the licence covers them."""
    tried = list(probes(rule))
    for probe in tried:
        for _ in range(-(-DRAWS // len(tried))):
            case = Case(rule.lhs, probe, rng, _nonnegative(rule))
            try:
                result = right_side(rule, case, rule.lhs)
            except Exception as problem:
                raise ProofError(f"{rule.name} on {probe}: {problem}") from problem
            values = _special(rule, case, rng)
            if rule.licence is Licence.EXACT:
                _check_exact(rule, case, result, values)
            else:
                _check_finite(rule, case, result, values)


def _special(rule: Rule, case: Case, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Special values in the place of floats; constants and nonnegative operands keep to their kind."""
    found = dict(case.values)
    for number, value in case.values.items():
        if value.dtype == np.float32 and number not in case.fixed:
            drawn = rng.choice(np.array(SPECIAL, np.float32), value.shape)
            found[number] = np.abs(drawn) if number in case.positive else drawn
    return found


def _check_exact(rule: Rule, case: Case, result: int, values: Mapping[int, np.ndarray]) -> None:
    before, after = (evaluate_all(case.graph, n, values)[n] for n in (case.root, result))
    same = np.array_equal(before, after, equal_nan=before.dtype.kind == "f")
    if before.dtype.kind == "f":
        number = ~np.isnan(before)
        same = same and np.array_equal(np.signbit(before[number]), np.signbit(after[number]))
    if not same:
        raise ProofError(f"{rule.name} is not exact: {_difference(values, before, after)}")


def _check_finite(rule: Rule, case: Case, result: int, values: Mapping[int, np.ndarray]) -> None:
    """Where the original is well away from overflow, finite stays finite; what is not, stays so."""
    if rule.licence is Licence.FINITE_ONLY:
        values = {n: np.where(_moderate(v), v, np.ones_like(v)) for n, v in values.items()}
    else:
        values = {n: np.where(_moderate(v) | ~np.isfinite(v), v, np.ones_like(v)) for n, v in values.items()}
    seen = evaluate_all(case.graph, case.root, values)
    before = seen[case.root]
    after = evaluate_all(case.graph, result, values)[result]
    finite = all(np.all(np.isfinite(v)) for v in seen.values() if v.dtype.kind == "f")
    if rule.licence is Licence.FINITE_ONLY and not finite:
        return
    if before.dtype.kind == "f" and not np.array_equal(np.isfinite(before), np.isfinite(after)):
        raise ProofError(f"{rule.name} moves infinities or NaN: {_difference(values, before, after)}")


def _difference(values: Mapping[int, np.ndarray], before: np.ndarray, after: np.ndarray) -> str:
    """The first element that differs, with the operands' elements where they are element-wise."""
    before, after = np.broadcast_arrays(before, after)
    differs = ~(
        (before == after) & (np.signbit(before) == np.signbit(after))
        | ((before != before) & (after != after))
    )
    where = tuple(int(i[0]) for i in np.nonzero(differs)) if differs.any() else (0,) * before.ndim
    try:
        operands = [float(np.broadcast_to(v, before.shape)[where]) for v in values.values()]
    except ValueError:
        operands = []
    return f"operands {operands} at {where} give {before[where]} and then {after[where]}"


def _moderate(value: np.ndarray) -> np.ndarray:
    """Which elements are zero or of moderate magnitude."""
    if value.dtype.kind != "f":
        return np.ones(value.shape, bool)
    with np.errstate(all="ignore"):
        return (value == 0) | ((np.abs(value) < LARGE) & (np.abs(value) > SMALL))


def prove_integers(rule: Rule, rng: np.random.Generator) -> None:
    """A rule that holds for integers does so for all of int8, wrapping around; others refuse them."""
    for probe in probes(rule):
        integers = {n: retyped(v, "int8") if n in tensor_names(rule.lhs) else v for n, v in probe.items()}
        chosen = (integers[variable] for variable in operator_variables(rule.lhs))
        if any((c if isinstance(c, str) else c[0]) not in _ON_INTEGERS for c in chosen):
            continue
        try:
            case = Case(rule.lhs, integers, rng, _nonnegative(rule))
        except (Inapplicable, TypeError):
            continue  # an operator that integers do not have
        if not rule.holds_for_integers:
            found = result_as_declared(rule, case)
            if not isinstance(found, Refusal) or not found.reason.startswith("integers"):
                raise ProofError(f"{rule.name} does not refuse integers: {found}")
            continue
        result = result_as_declared(rule, case)
        if not isinstance(result, int):
            continue  # not on these types, as for a cast
        values = _all_of_int8(case, result, rng)
        before, after = (evaluate_all(case.graph, n, values)[n] for n in (case.root, result))
        if before.dtype != after.dtype or not np.all(before == after):
            raise ProofError(f"{rule.name} changes integers: {_difference(values, before, after)}")


def _all_of_int8(case: Case, result: int, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Every combination of values of up to three operands of element-wise operators, or random values."""
    used = {case.graph.forms[n].operator for n in case.graph.reachable([case.root, result])}
    found = dict(case.values)
    every = {"int8": np.arange(-128, 128).astype(np.int8), "bool": np.array([False, True])}
    free = [n for n in found if n not in case.fixed]
    if used <= ELEMENTWISE and len(free) <= 3:
        for number, value in found.items():
            if number in free:
                axes = [-1 if n == number else 1 for n in free]
                found[number] = every[str(value.dtype)].reshape(axes)
            else:
                found[number] = value.reshape(-1)[0]
    else:
        for number in free:
            found[number] = rng.choice(every[str(found[number].dtype)], found[number].shape)
    return found


def prove_refusals(rule: Rule, rng: np.random.Generator) -> None:
    """Each declared refusal refuses, with its reason."""
    for probe, reason in rule.refuses:
        found = result_as_declared(rule, Case(rule.lhs, probe, rng))
        if not isinstance(found, Refusal) or reason not in found.reason:
            raise ProofError(f"{rule.name} does not refuse {probe} for a reason with {reason!r}: {found}")
