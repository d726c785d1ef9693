"""The mapping-type table: one declaration per Relay operator, a module per family."""

from . import (
    contraction,
    elementwise,
    indexing,
    movement,
    normalization,
    opaque_operators,
    pooling,
    quantized,
    reduction,
    vision,
)

__all__ = [
    "contraction",
    "elementwise",
    "indexing",
    "movement",
    "normalization",
    "opaque_operators",
    "pooling",
    "quantized",
    "reduction",
    "vision",
]
