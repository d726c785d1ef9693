"""Declarations of mapping types: one per operator, each with the probes that prove it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ecg import TensorInfo
from ..errors import RegistrationError
from ..mapping_type import MappingType

TypeRule = Callable[[Any, TensorInfo, TensorInfo], MappingType]
"""(attributes, operand, output) -> how the operand's elements map to the output's."""

OperandType = MappingType | TypeRule


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor operand of a probe; a bare shape means uniform float32 in [0.1, 0.9).

    Attributes
    ----------
    shape, dtype
        Of the tensor.
    low, high
        Elements are drawn from [low, high).
    values
        The elements themselves, row by row, where drawing them would not do (indices).
    perturbed
        Values that an element is changed to; by default other members of [low, high) for integers,
        and moves of about two ranges up and down for floats.
    fixed
        Never perturbed: the operator wants a compile-time constant here, or a value that is not free.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = 0.1
    high: float = 0.9
    values: tuple[float, ...] | None = None
    perturbed: tuple[float, ...] = ()
    fixed: bool = False


def integer_range(operand: Operand) -> tuple[int, int]:
    """[low, high) of an integer operand; for bool both values unless the probe restricts them."""
    if operand.dtype == "bool" and not float(operand.low).is_integer():
        return 0, 2
    return int(operand.low), int(operand.high)


Probe = tuple[Any, ...]
"""Operands in order (an :class:`Operand`, a bare shape, or a list of these for a tuple argument),
then optionally a dictionary of the Relay constructor's keyword arguments."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known of one operator.

    Attributes
    ----------
    op
        Relay's name.
    types
        Type or rule per operand position, the last one holding for all further operands;
        empty for an opaque operator.
    probes
        Small calls on which the types are verified by perturbation.
    unprobed
        Why there is no probe, for the few operators that cannot run alone on a CPU.
    reason
        Why the operator is opaque; None when it is not.
    """

    op: str
    types: tuple[OperandType, ...] = ()
    probes: tuple[Probe, ...] = ()
    unprobed: str | None = None
    reason: str | None = None


_DECLARATIONS: dict[str, Declaration] = {}


def _register(declaration: Declaration, override: bool) -> None:
    if declaration.op in _DECLARATIONS and not override:
        raise RegistrationError(
            f"operator {declaration.op} already has a mapping type; pass override=True to replace it"
        )
    _DECLARATIONS[declaration.op] = declaration


def mapping(
    op: str,
    *types: OperandType,
    probe: Sequence[Probe] = (),
    unprobed: str | None = None,
    override: bool = False,
) -> None:
    """Declare the mapping types of an operator.

    Parameters
    ----------
    op
        Relay's name of the operator.
    types
        One per operand, tuple arguments flattened; the last one also holds for all further operands.
        Each is a :class:`MappingType` or a rule ``(attrs, operand, output) -> MappingType`` for types
        that depend on attributes or shapes.
    probe
        Calls on which the declaration can be verified.
    unprobed
        Why there is none.
    override
        Replace an earlier declaration.

    Raises
    ------
    RegistrationError
        The operator is declared already, or there is no type, or a type is ``OPAQUE``.
    """
    if not types or MappingType.OPAQUE in types:
        raise RegistrationError(
            f"operator {op} needs one of the five mapping types per operand; "
            f"an operator outside them is declared with opaque(name, reason)"
        )
    _register(Declaration(op, types, tuple(probe), unprobed), override)


def opaque(op: str, reason: str, *, override: bool = False) -> None:
    """Declare that an operator is outside the five mapping types and is never grouped.

    Parameters
    ----------
    op
        Relay's name of the operator.
    reason
        Why, as shown in reports.
    override
        Replace an earlier declaration.

    Raises
    ------
    RegistrationError
        The operator is declared already.
    """
    _register(Declaration(op, reason=reason), override)


def declaration(op: str) -> Declaration | None:
    """The declaration of ``op``, or None for an operator nobody declared."""
    return _DECLARATIONS.get(op)


def declared() -> tuple[Declaration, ...]:
    """All declarations, in order of registration."""
    return tuple(_DECLARATIONS.values())
