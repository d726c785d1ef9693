"""Reductions, scans and losses: Many-to-Many, also where the reduced extent happens to be 1.

The type follows the loop nest that the operator brings, which has a reduction axis for every extent.
"""

from __future__ import annotations

from .registry import Operand, mapping
from .rules import MANY_TO_MANY, by_placement, unread

for _op in ["sum", "mean", "prod", "max", "min", "argmax", "argmin"]:
    mapping(_op, MANY_TO_MANY, probe=[((2, 3), {"axis": 1})])

mapping("any", MANY_TO_MANY, probe=[(Operand((2, 3), "bool", 0, 1), {"axis": 1})])
mapping("all", MANY_TO_MANY, probe=[(Operand((2, 3), "bool", 1, 2), {"axis": 1})])
mapping("variance", MANY_TO_MANY, by_placement, probe=[((2, 3), (2, 1), {"axis": 1})])
mapping("collapse_sum_like", MANY_TO_MANY, unread, probe=[((2, 3), (3,))])
mapping(
    "collapse_sum_to",
    MANY_TO_MANY,
    unread,
    probe=[((2, 3), Operand((1,), "int32", values=(3,), fixed=True))],
)

mapping("cumsum", MANY_TO_MANY, probe=[((2, 3), {"axis": 1})])
mapping("cumprod", MANY_TO_MANY, probe=[((2, 3), {"axis": 1, "exclusive": False})])
mapping("dft", MANY_TO_MANY, probe=[((2, 4), (2, 4), {"inverse": False})])
mapping("stft", MANY_TO_MANY, probe=[((1, 8), (4,), {"n_fft": 4, "hop_length": 2, "win_length": 4})])

mapping("nn.cross_entropy", MANY_TO_MANY, probe=[((2, 3), (2, 3))])
mapping("nn.cross_entropy_with_logits", MANY_TO_MANY, probe=[((2, 3), (2, 3))])
mapping(
    "nn.nll_loss", MANY_TO_MANY, probe=[((2, 3), Operand((2,), "int32", 0, 3), (3,), {"reduction": "mean"})]
)
