"""Graphs of terms: operators on plain data, equal ones shared, with types and the values of constants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ecg import TensorInfo
from . import operators_linear, operators_movement  # noqa: F401  (declare their operators)
from .operators import TERM_OPERATORS, Array, Attributes

# Constants of more elements are not searched for a common value or sign.
SMALL = 4096

AttributeKey = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Form:
    """An operator on terms; a leaf has operator ``""`` and is told apart by its attributes."""

    operator: str
    operands: tuple[int, ...] = ()
    attributes: AttributeKey = ()


def attribute_key(attributes: Attributes) -> AttributeKey:
    """Attributes in a form that can be compared and hashed."""
    return tuple(sorted(attributes.items()))


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What a graph costs, the more important first: operations, bytes read and written, operators."""

    flops: int = 0
    bytes: int = 0
    operators: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes, self.operators + other.operators)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.flops - other.flops, self.bytes - other.bytes, self.operators - other.operators)


NO_COST = Cost()


class TermGraph:
    """Terms by number, operands before what is computed of them; equal terms have one number."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.infos: list[TensorInfo] = []
        self._numbers: dict[Form, int] = {}
        self._is_constant: list[bool] = []
        self._values: dict[int, Array] = {}
        self._readers: dict[int, Callable[[], Array]] = {}
        self._uniform: dict[int, float | None] = {}
        self._costs: dict[int, Cost] = {}
        self.sources: dict[int, int] = {}  # per term on changed operands, the term that it was

    def leaf(self, key: Hashable, info: TensorInfo) -> int:
        """A tensor that is not looked into, told from others by ``key``."""
        return self._number(Form("", (), (("key", key),)), info, False)

    def constant(self, value: Array) -> int:
        """A constant with a value of at most :data:`SMALL` elements; equal ones are shared."""
        value = np.asarray(value)
        return self.late_constant(
            (str(value.dtype), value.shape, value.tobytes()),
            TensorInfo(value.shape, str(value.dtype)),
            lambda: value,
        )

    def late_constant(self, key: Hashable, info: TensorInfo, read: Callable[[], Array]) -> int:
        """A constant whose value is read when it is needed."""
        number = self._number(Form("", (), (("constant", key),)), info, True)
        self._readers.setdefault(number, read)
        return number

    def add(self, operator: str, operands: tuple[int, ...], attributes: Attributes) -> int:
        """The term of ``operator`` on ``operands``.

        Raises
        ------
        Inapplicable
            The operands' types do not fit the operator.
        """
        form = Form(operator, operands, attribute_key(attributes))
        known = self._numbers.get(form)
        if known is not None:
            return known
        info = TERM_OPERATORS[operator].infer(attributes, [self.infos[o] for o in operands])
        return self._number(form, info, all(self._is_constant[o] for o in operands))

    def _number(self, form: Form, info: TensorInfo, constant: bool) -> int:
        known = self._numbers.get(form)
        if known is None:
            known = self._numbers[form] = len(self.forms)
            self.forms.append(form)
            self.infos.append(info)
            self._is_constant.append(constant)
        return known

    def forms_of(self, number: int) -> Sequence[Form]:
        """All known forms of a term: one here, more where equal terms are kept."""
        return (self.forms[number],)

    def info(self, number: int) -> TensorInfo:
        """Shape and dtype."""
        return self.infos[number]

    def is_constant(self, number: int) -> bool:
        """Whether the term depends on constants alone."""
        return self._is_constant[number]

    def value(self, number: int) -> Array:
        """The value of a constant term."""
        pending = [number]
        while pending:
            current = pending[-1]
            missing = [o for o in self.forms[current].operands if o not in self._values]
            if missing and current not in self._values:
                pending.extend(missing)
                continue
            pending.pop()
            if current not in self._values:
                self._values[current] = self._evaluated(current)
        return self._values[number]

    def _evaluated(self, number: int) -> Array:
        form = self.forms[number]
        if not form.operator:
            return self._readers[number]()
        operands = [self._values[o] for o in form.operands]
        with np.errstate(all="ignore"):
            return np.asarray(TERM_OPERATORS[form.operator].evaluate(dict(form.attributes), operands))

    def uniform(self, number: int) -> float | None:
        """The value of all elements of a small constant; None if they differ or it is none."""
        if number not in self._uniform:
            self._uniform[number] = self._common_value(number)
        return self._uniform[number]

    def _common_value(self, number: int) -> float | None:
        if not self._is_constant[number] or not 0 < self.infos[number].size <= SMALL:
            return None
        values = self.value(number).reshape(-1)
        same = values.tobytes() == np.repeat(values[:1], values.size).tobytes()
        return float(values[0]) if same else None

    def cost_of(self, number: int) -> Cost:
        """Of one term alone."""
        if number not in self._costs:
            form = self.forms[number]
            self._costs[number] = form_cost(form, [self.infos[o] for o in form.operands], self.infos[number])
        return NO_COST if self._is_constant[number] else self._costs[number]

    def reachable(self, roots: Iterable[int]) -> list[int]:
        """The operators that ``roots`` are computed by, operands first; constants are not entered."""
        found: dict[int, None] = {}
        stack = [(root, False) for root in roots]
        while stack:
            number, visited = stack.pop()
            if visited:
                found[number] = None
            elif number not in found and self.forms[number].operator and not self._is_constant[number]:
                stack.append((number, True))
                stack.extend((o, False) for o in self.forms[number].operands)
        return list(found)

    def above(self, root: int, given: Collection[int]) -> tuple[int, ...]:
        """The operators by which ``root`` is computed from ``given`` terms."""
        found: dict[int, None] = {}
        stack = [root]
        while stack:
            number = stack.pop()
            if number not in found and number not in given and not self._is_constant[number]:
                found[number] = None
                stack.extend(self.forms[number].operands)
        return tuple(found)

    def cost(self, roots: Iterable[int]) -> Cost:
        """Of everything that ``roots`` are computed by, shared terms once."""
        total = NO_COST
        for number in self.reachable(roots):
            total = total + self.cost_of(number)
        return total

    def rebuilt(self, number: int, changed: Mapping[int, int]) -> int:
        """The term ``number`` on changed operands."""
        form = self.forms[number]
        if not any(changed.get(o, o) != o for o in form.operands):
            return number
        operands = tuple(changed.get(o, o) for o in form.operands)
        new = self.add(form.operator, operands, dict(form.attributes))
        self.sources.setdefault(new, number)
        return new

    def substituted(self, root: int, old: int, new: int) -> int:
        """``root`` with ``new`` in the place of ``old``, wherever it is read."""
        changed = {old: new}
        for number in self.reachable([root]):
            if number != old:
                changed[number] = self.rebuilt(number, changed)
        return changed.get(root, root)

    def resolved(self, roots: Iterable[int], replaced: Mapping[int, int]) -> dict[int, int]:
        """What ``roots`` are when each term of ``replaced`` is replaced, those in replacements too."""
        done: dict[int, int] = {}
        entered: set[int] = set()
        stack = list(roots)
        while stack:
            number = stack[-1]
            if number in done:
                stack.pop()
                continue
            target = replaced.get(number, number)
            if target != number and (target not in entered or target in done):
                below: Sequence[int] = (target,)
            else:
                below, target = self.forms[number].operands, number
            entered.add(number)
            missing = [o for o in below if o not in done]
            if missing:
                stack.extend(missing)
                continue
            done[number] = done[target] if target != number else self.rebuilt(number, done)
            stack.pop()
        return done


def form_cost(form: Form, inputs: list[TensorInfo], output: TensorInfo) -> Cost:
    """What computing ``output`` costs, constants not considered; leaves cost nothing, a reshape no bytes."""
    if not form.operator:
        return NO_COST
    if form.operator == "reshape":
        return Cost(0, 0, 1)
    read = {operand: info.nbytes for operand, info in zip(form.operands, inputs, strict=True)}
    flops = TERM_OPERATORS[form.operator].flops(dict(form.attributes), inputs, output)
    return Cost(flops, sum(read.values()) + output.nbytes, 1)
