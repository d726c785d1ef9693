"""One answer per class of structurally equal nodes: networks have thousands of types, few distinct ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .node_fields import structural_equal, structural_hash

Answer = TypeVar("Answer")


class StructuralMemo(Generic[Answer]):
    """Remembers a function of TVM nodes, such as types, that depends on their structure alone.

    Parameters
    ----------
    function
        Called once per class of equal nodes (each time for one that shares its hash with an unequal one).
    """

    def __init__(self, function: Callable[[Any], Answer]) -> None:
        self._function = function
        self._known: dict[int, tuple[Any, Answer]] = {}

    def of(self, node: Any) -> Answer:
        """The answer for ``node``."""
        key = structural_hash(node)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = (node, self._function(node))
        elif not structural_equal(known[0], node):
            return self._function(node)
        return known[1]
