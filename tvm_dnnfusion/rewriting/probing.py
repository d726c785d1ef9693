"""Concrete terms of equations: the graphs, with values, on which rules are proved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ecg import TensorInfo
from .matching import Bindings, Match, build, tensor_names
from .operators import TERM_OPERATORS
from .pattern import Operation, OperatorVariable, Term, Variable, subterms
from .rule import Probe, Rule
from .terms import TermGraph


def probe_of(value: Any) -> Probe:
    """A probe as it is written in declarations: itself, or a shape."""
    return value if isinstance(value, Probe) else Probe(tuple(value))


def draw(probe: Probe, rng: np.random.Generator, nonnegative: bool = False) -> np.ndarray:
    """Random values of a probe; floats are of magnitude 1/2 to 3/2, fit to divide by."""
    if probe.value is not None:
        return np.full(probe.shape, probe.value, probe.dtype)
    if probe.dtype == "bool":
        return rng.integers(0, 2, probe.shape).astype(bool)
    if probe.dtype.startswith(("int", "uint")):
        low, high = (0, probe.below) if probe.below else (-100, 100)
        return rng.integers(0 if nonnegative or probe.dtype[0] == "u" else low, high, probe.shape).astype(
            probe.dtype
        )
    values = rng.uniform(0.5, 1.5, probe.shape)
    nonnegative = nonnegative or probe.low is not None
    return (values * (1 if nonnegative else rng.choice([-1, 1], probe.shape))).astype(probe.dtype)


class Case:
    """The left side of an equation on the operands of a probe.

    Attributes
    ----------
    graph, root
        The term.
    values
        Per leaf, its values; constants have them in the graph as well.
    fixed
        Leaves whose values are given by the probe, or constant.
    positive
        Leaves that must not be negative.
    """

    def __init__(
        self,
        term: Term,
        probe: Mapping[str, Any],
        rng: np.random.Generator,
        nonnegative: frozenset[str] = frozenset(),
        constants: bool = False,
    ) -> None:
        self.graph = TermGraph()
        self.values: dict[int, np.ndarray] = {}
        self.fixed: set[int] = set()
        self.positive: set[int] = set()
        bindings: Bindings = {}
        for name, value in probe.items():
            bindings[name] = self._bound(term, name, value, rng, name in nonnegative, constants)
        dummy = self.graph.leaf("dtype", TensorInfo((), self._dtype(probe, term)))
        self.root = build(term, Match(self.graph, dummy, bindings, Operation("", ())))
        self.bindings = bindings

    @staticmethod
    def _dtype(probe: Mapping[str, Any], term: Term) -> str:
        for part in subterms(term):
            if isinstance(part, Variable):
                value = probe[part.name]
                first = value[0] if isinstance(value, list) else value
                dtype = probe_of(first).dtype
                if dtype != "bool":
                    return dtype
        return "bool"

    def _bound(
        self, term: Term, name: str, value: Any, rng: np.random.Generator, nonnegative: bool, constants: bool
    ) -> Any:
        if name in operator_variables(term):
            operator, attributes = (value, {}) if isinstance(value, str) else value
            return operator, tuple(sorted(attributes.items()))
        variable = next((p for p in subterms(term) if isinstance(p, Variable) and p.name == name), None)
        if variable is None:
            return value
        constant = constants or variable.constant
        if isinstance(value, list):
            probes = [probe_of(v) for v in value]
            return tuple(
                self._leaf(f"{name}{i}", p, rng, nonnegative, constant) for i, p in enumerate(probes)
            )
        return self._leaf(name, probe_of(value), rng, nonnegative, constant)

    def _leaf(
        self, name: str, probe: Probe, rng: np.random.Generator, nonnegative: bool, constant: bool
    ) -> int:
        array = draw(probe, rng, nonnegative)
        info = TensorInfo(probe.shape, probe.dtype)
        if constant or probe.constant:
            number = self.graph.late_constant(name, info, lambda: array)
        else:
            number = self.graph.leaf(name, info)
        self.values[number] = array
        if nonnegative and not constant:
            self.positive.add(number)
            return self.graph.add("abs", (number,), {})
        if constant or probe.constant or probe.value is not None or probe.below:
            self.fixed.add(number)
        if probe.low is not None:
            self.positive.add(number)
        return number

    def evaluate(self, root: int, values: Mapping[int, np.ndarray] | None = None) -> np.ndarray:
        """The value of a term on given leaves."""
        return evaluate(self.graph, root, self.values if values is None else values)


def evaluate(graph: TermGraph, root: int, values: Mapping[int, np.ndarray]) -> np.ndarray:
    """The value of a term; literals keep the dtype of what they meet."""
    return evaluate_all(graph, root, values)[root]


def evaluate_all(graph: TermGraph, root: int, values: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The value of a term and of everything in it."""
    found = dict(values)
    pending = [root]
    double = any(v.dtype == np.float64 for v in values.values())
    while pending:
        number = pending[-1]
        form = graph.forms[number]
        if number not in found and not form.operator:
            literal = graph.value(number)
            found[number] = literal.astype(np.float64) if double and literal.dtype == np.float32 else literal
        missing = [o for o in form.operands if o not in found]
        if missing and number not in found:
            pending.extend(missing)
            continue
        pending.pop()
        if number not in found:
            with np.errstate(all="ignore"):
                operands = [found[o] for o in form.operands]
                evaluator = TERM_OPERATORS[form.operator].evaluate
                found[number] = np.asarray(evaluator(dict(form.attributes), operands))
    return found


def operator_variables(term: Term) -> dict[str, OperatorVariable]:
    """The operator variables of a term by name."""
    parts = (p.operator for p in subterms(term) if isinstance(p, Operation))
    return {operator.name: operator for operator in parts if isinstance(operator, OperatorVariable)}


# Attributes for operators that an operator variable may stand for and that need some.
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "clip": {"a_min": -0.75, "a_max": 0.75},
    "cast": {"dtype": "float64"},
    "nn.leaky_relu": {"alpha": 0.25},
}
_BOOLEAN = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not", "all", "any"})
_INTEGER = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"})


def operator_choices(rule: Rule, probe: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``probe`` with each operator for which the rule's operator variables may stand, in dtypes it takes."""
    tensors = frozenset(tensor_names(rule.lhs))
    choices: list[dict[str, Any]] = [dict(probe)]
    for name, variable in operator_variables(rule.lhs).items():
        if name in probe:
            continue
        names = sorted(variable.names)
        choices = [_with_operator(c, name, operator, tensors) for c in choices for operator in names]
    return choices


def _with_operator(
    probe: dict[str, Any], name: str, operator: str, tensors: frozenset[str]
) -> dict[str, Any]:
    dtype = "bool" if operator in _BOOLEAN else "int32" if operator in _INTEGER else None
    found = {n: retyped(v, dtype) if dtype and n in tensors else v for n, v in probe.items()}
    return {**found, name: (operator, _ATTRIBUTES[operator]) if operator in _ATTRIBUTES else operator}


def retyped(value: Any, dtype: str) -> Any:
    """Probes of numbers in another dtype; booleans and indices as they are."""
    if isinstance(value, list):
        return [retyped(v, dtype) for v in value]
    probe = probe_of(value)
    if probe.dtype == "bool" or (probe.below and probe.dtype != dtype):
        return probe
    return Probe(probe.shape, dtype, probe.constant, probe.value)
