"""Rebuilding a graph when nodes are replaced together, and so need other things first than their operands."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relay
from tvm_dnnfusion.passes.graph_rewriter import GraphRewriter

from tvm_dnnfusion.relay_graph import Visit, key_of


class GraphRebuilder:
    """Builds what a root needs, dependencies first, without recursion; subclasses say what becomes of a node.

    Unlike :class:`~tvm_dnnfusion.passes.graph_rewriter.GraphRewriter` it visits on demand: an operator in
    the middle of a group is never rebuilt by itself.
    """

    def __init__(self) -> None:
        self._built: dict[int, relay.Expr] = {}

    def dependencies(self, expr: relay.Expr, children: list[relay.Expr]) -> list[relay.Expr]:
        """What must be rebuilt before ``expr``: its children unless overridden."""
        return children

    def replace(self, expr: relay.Expr) -> relay.Expr | None:
        """What replaces ``expr``, whose dependencies are rebuilt; None: rebuild it on its children."""
        raise NotImplementedError

    def rebuilt(self, expr: relay.Expr) -> relay.Expr:
        """The rebuilt form of a dependency."""
        return self._built[key_of(expr)]

    def run(self, order: Sequence[Visit], root: relay.Expr) -> relay.Expr:
        """The rebuilt form of ``root``; ``order`` holds a visit of each node under it."""
        visits = {key_of(v.expr): v for v in order}
        stack: list[tuple[Visit, bool]] = [(visits[key_of(root)], False)]
        while stack:
            visit, ready = stack.pop()
            key = key_of(visit.expr)
            if key in self._built:
                continue
            if ready:
                self._built[key] = self._build(visit)
                continue
            stack.append((visit, True))
            needed = self.dependencies(visit.expr, visit.children)
            stack.extend((visits[key_of(n)], False) for n in reversed(needed) if key_of(n) not in self._built)
        return self._built[key_of(root)]

    def _build(self, visit: Visit) -> relay.Expr:
        replaced = self.replace(visit.expr)
        if replaced is not None:
            return replaced
        if not visit.children:
            return visit.expr
        return GraphRewriter.rebuilt(visit, [self.rebuilt(c) for c in visit.children])
