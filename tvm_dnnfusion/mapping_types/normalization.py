"""Normalisations: Many-to-Many in the data, except batch norm with its given statistics (One-to-One)."""

from __future__ import annotations

from .registry import mapping
from .rules import MANY_TO_MANY, ONE_TO_MANY, by_broadcast

for _op in ["nn.softmax", "nn.fast_softmax", "nn.log_softmax"]:
    mapping(_op, MANY_TO_MANY, probe=[((2, 3), {"axis": 1})])

# The second and third outputs are the statistics themselves, which inference never reads.
mapping("nn.batch_norm", by_broadcast, probe=[((2, 3, 2), (3,), (3,), (3,), (3,))])
mapping("nn.layer_norm", MANY_TO_MANY, ONE_TO_MANY, probe=[((2, 4), (4,), (4,))])
mapping("nn.group_norm", MANY_TO_MANY, ONE_TO_MANY, probe=[((1, 4, 2), (4,), (4,), {"num_groups": 2})])
mapping("nn.instance_norm", MANY_TO_MANY, ONE_TO_MANY, probe=[((1, 2, 3), (2,), (2,))])
mapping("nn.l2_normalize", MANY_TO_MANY, probe=[((2, 3), {"eps": 1e-5, "axis": [1]})])
mapping("nn.lrn", MANY_TO_MANY, probe=[((1, 4, 2, 1), {"size": 3, "alpha": 0.5})])
