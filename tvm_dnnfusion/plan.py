"""A fusion plan as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from .mapping_type import MappingType


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that become one kernel.

    Attributes
    ----------
    nodes
        Node ids in topological order.
    mapping_type
        The block's type by Table 3.
    seed
        The node the group grew from.
    """

    nodes: tuple[int, ...]
    mapping_type: MappingType
    seed: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the edge ``producer -> consumer`` stays between two kernels."""

    producer: int
    consumer: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups cover every operator once, in an order in which they can run."""

    groups: tuple[Group, ...]
    refusals: tuple[Refusal, ...]
