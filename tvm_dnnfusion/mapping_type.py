"""The five mapping types of DNNFusion (section 4.1), and the one for operators outside them."""

from __future__ import annotations

import enum


class MappingType(enum.Enum):
    """How the elements of an operand map to elements of the output.

    The order of declaration is the paper's order of complexity (Table 2, footnote 1);
    ``OPAQUE`` is ours: an operator that is never grouped.
    """

    ONE_TO_ONE = "One-to-One"
    REORGANIZE = "Reorganize"
    SHUFFLE = "Shuffle"
    ONE_TO_MANY = "One-to-Many"
    MANY_TO_MANY = "Many-to-Many"
    OPAQUE = "Opaque"

    @property
    def complexity(self) -> int:
        """Rank in the paper's order, 0 for One-to-One."""
        return _COMPLEXITY[self]


_COMPLEXITY = {mapping_type: rank for rank, mapping_type in enumerate(MappingType)}


def most_complex(types: tuple[MappingType, ...]) -> MappingType:
    """The most complex of ``types``; One-to-One when there is none (an operator without tensor operands)."""
    return max(types, key=lambda t: t.complexity, default=MappingType.ONE_TO_ONE)
