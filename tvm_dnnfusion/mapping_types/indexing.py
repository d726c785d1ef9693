"""Reads at positions that an operand gives. The data is One-to-Many (Table 2: Gather)."""

from __future__ import annotations

from .registry import Operand, mapping
from .rules import MANY_TO_MANY, ONE_TO_MANY, by_broadcast, by_index_tuple


def _indices(*shape: int, below: int) -> Operand:
    return Operand(shape, "int32", 0, below)


mapping(
    "take",
    ONE_TO_MANY,
    by_broadcast,
    probe=[
        ((3, 2), _indices(6, below=3), {"axis": 0}),
        ((3,), _indices(2, 3, below=3), {"axis": 0}),
        ((4,), _indices(6, below=4), {}),
    ],
)
mapping("gather", ONE_TO_MANY, by_broadcast, probe=[((3, 2), _indices(8, 2, below=3), {"axis": 0})])
mapping(
    "gather_nd",
    ONE_TO_MANY,
    by_index_tuple,
    probe=[
        ((2, 2), _indices(2, 8, below=2)),
        ((3, 2), _indices(1, 8, below=3)),
        ((3,), _indices(1, 8, below=3)),
    ],
)
mapping(
    "adv_index",
    ONE_TO_MANY,
    by_broadcast,
    probe=[([(3, 2), _indices(6, below=3)],), ([(3,), _indices(6, below=3)],)],
)
mapping(
    "one_hot",
    ONE_TO_MANY,
    probe=[(_indices(3, below=4), (), (), {"depth": 4, "axis": -1, "dtype": "float32"})],
)
mapping(
    "unravel_index",
    ONE_TO_MANY,
    MANY_TO_MANY,
    probe=[(_indices(4, below=24), Operand((3,), "int32", values=(2, 3, 4), perturbed=(5.0, 7.0)))],
)
