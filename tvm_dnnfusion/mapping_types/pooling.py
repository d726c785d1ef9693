"""Pooling: Many-to-Many, whatever the window."""

from __future__ import annotations

from .registry import mapping
from .rules import MANY_TO_MANY, unread

_SPATIAL = {1: (4,), 2: (3, 4), 3: (2, 3, 2)}

for _rank, _extents in _SPATIAL.items():
    _window = {"pool_size": (2,) * _rank, "strides": (1,) * _rank}
    _quotient = {"output_size": (1,) * _rank}
    for _kind in ("avg", "max"):
        mapping(f"nn.{_kind}_pool{_rank}d", MANY_TO_MANY, probe=[((1, 2, *_extents), _window)])
        mapping(f"nn.adaptive_{_kind}_pool{_rank}d", MANY_TO_MANY, probe=[((1, 2, *_extents), _quotient)])

for _kind in ("avg", "max"):
    mapping(f"nn.global_{_kind}_pool2d", MANY_TO_MANY, probe=[((1, 2, 2, 3),)])
    mapping(
        f"nn.{_kind}_pool2d_grad",
        MANY_TO_MANY,
        MANY_TO_MANY if _kind == "max" else unread,
        probe=[((1, 1, 3, 3), (1, 1, 4, 4), {"pool_size": (2, 2), "strides": (1, 1), "padding": (0, 0)})],
    )
