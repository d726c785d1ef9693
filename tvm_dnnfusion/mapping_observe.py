"""Mapping types as seen from outside: perturb one input element, see which outputs move.

This verifies declarations (``tests/test_mapping.py`` does so for all of them, and authors of further
operators can). A type is read off the relation between input and output elements:

* several inputs move one output: Many-to-Many;
* one input moves several outputs: One-to-Many;
* otherwise, moved outputs in another order than the inputs: Shuffle;
* in order: Reorganize when it is a bijection into a new shape, else One-to-One.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from .mapping_probe import ProbeCall, draw
from .mapping_type import MappingType, most_complex
from .mapping_types.registry import Operand, integer_range

_POINTS = 3


def observe(calls: Sequence[ProbeCall], seed: int = 0) -> list[tuple[MappingType | None, ...]]:
    """Mapping types as observed by running calls on the CPU.

    Parameters
    ----------
    calls
        From :func:`make_call`; compiled together, which is faster.
    seed
        Of the random points.

    Returns
    -------
    list of tuple
        Per call, the types in the order of its operands; None for a fixed one, which is not observed.
    """
    runner = _Runner(calls)
    rng = np.random.default_rng(seed)
    seen: dict[tuple[int, int], list[MappingType]] = {}
    for _ in range(_POINTS):
        point = [[draw(operand, rng) for operand in call.operands] for call in calls]
        # Types are judged point by point: at another point a gather reads other elements.
        for (index, position), relation in runner.relations(point).items():
            seen.setdefault((index, position), []).append(_classify(calls[index], position, relation))
    return [
        tuple(
            None if operand.fixed else most_complex(tuple(seen[index, position]))
            for position, operand in enumerate(call.operands)
        )
        for index, call in enumerate(calls)
    ]


def _alternatives(operand: Operand, value: Any) -> Iterator[Any]:
    """Values to change an element to."""
    if operand.perturbed:
        yield from operand.perturbed
    elif operand.dtype == "bool":
        yield not value
    elif operand.dtype.startswith("float"):
        span = operand.high - operand.low
        yield value + 2.1 * span
        yield value - 2.3 * span
    else:
        low, high = integer_range(operand)
        count = high - low
        for step in sorted({1, count // 2, count - 1} - {0}):
            yield low + (int(value) - low + step) % count


@dataclass(frozen=True)
class _Perturbation:
    """``value`` is the operand with one element changed."""

    call: int
    position: int
    element: int
    value: np.ndarray


def _perturbations(index: int, call: ProbeCall, values: Sequence[np.ndarray]) -> Iterator[_Perturbation]:
    """All changes of one element of one operand of a call."""
    for position, (operand, value) in enumerate(zip(call.operands, values, strict=True)):
        if operand.fixed:
            continue
        for element, old in enumerate(value.flat):
            for new in _alternatives(operand, old):
                changed = value.copy()
                changed.flat[element] = new
                yield _Perturbation(index, position, element, changed)


class _Runner:
    """Several calls in one compiled module, run at a point and around it."""

    def __init__(self, calls: Sequence[ProbeCall]) -> None:
        module = relay.transform.InferType()(tvm.IRModule.from_expr(_merge(calls)))
        module = relay.qnn.transform.CanonicalizeOps()(relay.qnn.transform.Legalize()(module))
        module = relay.transform.Legalize()(module)
        # LLVM 22 refuses TVM's debug information on the values that these two passes bind to variables.
        config = {"tir.disable_cse_tir": True, "tir.disable_vectorize": True}
        with tvm.transform.PassContext(opt_level=0, config=config):
            library = relay.build(module, target="llvm -opt-level=0")
        self._calls = calls
        self._first_output = np.cumsum([0, *(len(call.out_types) for call in calls)])
        self._module = graph_executor.GraphModule(library["default"](tvm.cpu()))

    def relations(self, point: Sequence[Sequence[np.ndarray]]) -> dict[tuple[int, int], list[np.ndarray]]:
        """Who moves whom near a point, for each operand that is not fixed.

        Returns
        -------
        dict
            Per (call, operand position), a boolean matrix (input elements x output elements) per output.
        """
        moved: dict[tuple[int, int], list[np.ndarray]] = {}
        for index, (call, values) in enumerate(zip(self._calls, point, strict=True)):
            for position, value in enumerate(values):
                if not call.operands[position].fixed:
                    self._module.set_input(_input_name(index, position), value)
                    moved[index, position] = [np.zeros((value.size, o.size), bool) for o in call.out_types]
        self._module.run()
        base = [self._outputs(index) for index in range(len(self._calls))]
        # The calls share nothing, so one run serves a perturbation of each.
        changes = [_perturbations(i, call, point[i]) for i, call in enumerate(self._calls)]
        for step in itertools.zip_longest(*changes):
            made = [change for change in step if change is not None]
            for change in made:
                self._module.set_input(_input_name(change.call, change.position), change.value)
            self._module.run()
            for change in made:
                outputs = zip(base[change.call], self._outputs(change.call), strict=True)
                matrices = moved[change.call, change.position]
                for matrix, (before, after) in zip(matrices, outputs, strict=True):
                    matrix[change.element] |= _differs(before, after)
                restored = point[change.call][change.position]
                self._module.set_input(_input_name(change.call, change.position), restored)
        return moved

    def _outputs(self, index: int) -> list[np.ndarray]:
        outputs = range(self._first_output[index], self._first_output[index + 1])
        return [self._module.get_output(output).numpy().ravel() for output in outputs]


def _input_name(call: int, position: int) -> str:
    return f"call{call}_operand{position}"


def _merge(calls: Sequence[ProbeCall]) -> relay.Function:
    """One function that makes all calls, each on its own operands, and returns all their outputs."""
    parameters: list[relay.Var] = []
    outputs: list[relay.Expr] = []
    for index, call in enumerate(calls):
        free = (position for position, operand in enumerate(call.operands) if not operand.fixed)
        renamed = {
            var: relay.Var(_input_name(index, position), var.checked_type)
            for position, var in zip(free, call.function.params, strict=True)
        }
        body = relay.bind(call.function.body, renamed)
        parameters += renamed.values()
        is_tuple = isinstance(call.function.ret_type, tvm.ir.TupleType)
        outputs += [relay.TupleGetItem(body, i) for i in range(len(call.out_types))] if is_tuple else [body]
    return relay.Function(parameters, relay.Tuple(outputs))


def _differs(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Element-wise inequality that takes NaN for equal to NaN."""
    return (before != after) & ~((before != before) & (after != after))


def _classify(call: ProbeCall, position: int, relation: Sequence[np.ndarray]) -> MappingType:
    """Most complex type of one operand towards any output."""
    shape = call.in_types[position].shape
    return most_complex(
        tuple(
            _classify_one(moved, shape, output.shape)
            for moved, output in zip(relation, call.out_types, strict=True)
        )
    )


def _classify_one(moved: np.ndarray, shape: tuple[int, ...], out_shape: tuple[int, ...]) -> MappingType:
    if moved.sum(axis=0).max(initial=0) > 1:
        return MappingType.MANY_TO_MANY
    if moved.sum(axis=1).max(initial=0) > 1:
        return MappingType.ONE_TO_MANY
    _, places = np.nonzero(moved)
    if np.any(np.diff(places) < 0):
        return MappingType.SHUFFLE
    bijective = len(places) == moved.shape[0] == moved.shape[1]
    return MappingType.REORGANIZE if bijective and shape != out_shape else MappingType.ONE_TO_ONE
