"""Mapping types (section 4.1) of every Relay operator, by operand, attributes and shapes.

The declarations are in :mod:`tvm_dnnfusion.mapping_types`; :func:`mapping` and :func:`opaque` add to them
from anywhere. An operator that nobody declared is opaque.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import mapping_types as _builtin_declarations  # noqa: F401  (importing it fills the registry)
from .ecg import TensorInfo
from .mapping_type import MappingType, most_complex
from .mapping_types.registry import Declaration, Operand, declaration, declared, mapping, opaque

__all__ = [
    "Classification",
    "Declaration",
    "Operand",
    "classify",
    "declaration",
    "declared",
    "entry_type",
    "mapping",
    "opaque",
    "operand_types",
    "operator_type",
    "why_opaque",
]


def why_opaque(op: str) -> str | None:
    """Why ``op`` is outside the five mapping types; None when it is not."""
    known = declaration(op)
    return "unknown operator" if known is None else known.reason


def operand_types(
    op: str, attrs: Any, in_types: Sequence[TensorInfo], out_types: Sequence[TensorInfo]
) -> tuple[MappingType, ...]:
    """Mapping type per operand.

    Parameters
    ----------
    op
        Relay's name of the operator.
    attrs
        Its attributes, read as Python attributes; None when it has none.
    in_types
        Operands in order, tuple arguments flattened.
    out_types
        Outputs, a tuple result flattened.

    Returns
    -------
    tuple of MappingType
        In the order of ``in_types``. With several outputs, an operand has its most complex type towards
        any of them. All ``OPAQUE`` for an opaque operator.
    """
    known = declaration(op)
    if known is None or known.reason is not None:
        return (MappingType.OPAQUE,) * len(in_types)
    types = []
    for position, operand in enumerate(in_types):
        rule = known.types[min(position, len(known.types) - 1)]
        if isinstance(rule, MappingType):
            types.append(rule)
        else:
            types.append(most_complex(tuple(rule(attrs, operand, output) for output in out_types)))
    return tuple(types)


class Classification(NamedTuple):
    """Mapping types of one operator call: per operand, of the operator, and of its largest operand."""

    operands: tuple[MappingType, ...]
    operator: MappingType
    entry: MappingType


def classify(
    op: str, attrs: Any, in_types: Sequence[TensorInfo], out_types: Sequence[TensorInfo]
) -> Classification:
    """All that :func:`operand_types`, :func:`operator_type` and :func:`entry_type` say, looked up once."""
    operands = operand_types(op, attrs, in_types, out_types)
    if why_opaque(op) is not None:
        return Classification(operands, MappingType.OPAQUE, MappingType.OPAQUE)
    return Classification(operands, most_complex(operands), _entry(operands, in_types))


def operator_type(
    op: str, attrs: Any, in_types: Sequence[TensorInfo], out_types: Sequence[TensorInfo]
) -> MappingType:
    """The most complex of the operands' types (Table 2, footnote 1); parameters as :func:`operand_types`.

    ``OPAQUE`` for an opaque operator, One-to-One for an operator without operands such as ``zeros``.
    """
    return classify(op, attrs, in_types, out_types).operator


def entry_type(
    op: str, attrs: Any, in_types: Sequence[TensorInfo], out_types: Sequence[TensorInfo]
) -> MappingType:
    """Type of the largest operand: what the operator does to its main data.

    Parameters as :func:`operand_types`.

    Of several operands of that size, one that is Many-to-Many decides, for then the operator brings a
    reduction (layer norm of a single row: the scale is as large as the data). Otherwise the least complex
    does (a bias added to a single row). ``OPAQUE`` for an opaque operator.
    """
    return classify(op, attrs, in_types, out_types).entry


def _entry(operands: tuple[MappingType, ...], in_types: Sequence[TensorInfo]) -> MappingType:
    largest = max((operand.size for operand in in_types), default=0)
    types = [type_ for type_, operand in zip(operands, in_types, strict=True) if operand.size == largest]
    if MappingType.MANY_TO_MANY in types:
        return MappingType.MANY_TO_MANY
    return min(types, key=lambda t: t.complexity, default=MappingType.ONE_TO_ONE)
