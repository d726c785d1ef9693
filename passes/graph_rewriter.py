"""One linear, non-recursive rewriting traversal of a whole Relay function, control flow included.

``relay.ExprMutator`` recurses over the depth of the graph and dies on a chain of a thousand operators;
``dataflow_pattern.rewrite`` is quadratic, since it rebuilds its index of the graph in each round. Reading an
attribute of a Relay object from Python costs several microseconds, so passes share one traversal and read
an operator, its arguments and its type only where they must.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import tvm
from tvm import relay
from tvm.relay.adt import Clause, Match
from tvm.relay.expr import (
    IfWithFields,
    LetWithFields,
    RefCreate,
    RefCreateWithFields,
    RefRead,
    RefReadWithFields,
    RefWrite,
    RefWriteWithFields,
    TupleGetItemWithFields,
    TupleWithFields,
)
from tvm.relay.function import FunctionWithFields

from tvm_dnnfusion.node_fields import copy_call
from tvm_dnnfusion.relay_graph import Visit, key_of, visit_order


def _rebuilt_match(match: Match, children: list[relay.Expr]) -> Match:
    clauses = [Clause(clause.lhs, rhs) for clause, rhs in zip(match.clauses, children[1:], strict=True)]
    return Match(children[0], clauses, match.complete)


_REBUILD: dict[type, Callable[..., relay.Expr]] = {
    relay.Call: lambda e, c: copy_call(e, c[0], c[1:]),
    relay.Tuple: lambda e, c: TupleWithFields(e, c),
    relay.TupleGetItem: lambda e, c: TupleGetItemWithFields(e, c[0]),
    relay.If: lambda e, c: IfWithFields(e, *c),
    relay.Let: lambda e, c: LetWithFields(e, c[1], c[0], c[2]),
    relay.Function: lambda e, c: FunctionWithFields(e, body=c[0]),
    Match: _rebuilt_match,
    RefCreate: lambda e, c: RefCreateWithFields(e, c[0]),
    RefRead: lambda e, c: RefReadWithFields(e, c[0]),
    RefWrite: lambda e, c: RefWriteWithFields(e, *c),
}


class GraphRewriter:
    """Rebuilds a function in one traversal; subclasses say what becomes of each node.

    A node none of whose children changed, and which the hooks leave alone, is kept as it is.
    """

    def __init__(self) -> None:
        self._rewritten: dict[int, relay.Expr] = {}
        self._let_values: dict[int, relay.Expr] = {}
        self._op_names: dict[int, str] = {}
        self.uses: Counter[int] = Counter()

    def rewrite(self, root: relay.Expr) -> relay.Expr:
        """The rewritten form of ``root``, whose types must have been inferred."""
        order = visit_order(root)
        self.uses = Counter(key_of(child) for visit in order for child in visit.children)
        for visit in order:
            if type(visit.expr) is relay.Let:
                self._let_values[key_of(visit.expr.var)] = visit.expr.value
        for visit in order:
            self._rewritten[key_of(visit.expr)] = self._visit(visit)
        # The keys of _rewritten are addresses: they mean something only while `order` holds the nodes.
        result = self._rewritten[key_of(root)]
        self._rewritten = {}
        return result

    def rewrite_call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        """What replaces ``call`` of operator ``name`` on the rewritten ``args``; None: only rebuild it."""
        raise NotImplementedError

    def finish(self, expr: relay.Expr, scope: int) -> relay.Expr:
        """Last word on each rewritten node of ``scope``; ``expr`` itself by default."""
        return expr

    def op_name(self, op: relay.Expr) -> str | None:
        """The name of the operator ``op``; None when a call's callee is anything else."""
        if not isinstance(op, tvm.ir.Op):
            return None
        key = key_of(op)
        if key not in self._op_names:
            self._op_names[key] = op.name
        return self._op_names[key]

    def _current(self, expr: relay.Expr) -> relay.Expr:
        """The rewritten form of ``expr``; a variable bound to a constant is that constant."""
        value = self._let_values.get(key_of(expr)) if type(expr) is relay.Var else None
        if value is not None:
            rewritten = self._rewritten.get(key_of(value))
            if isinstance(rewritten, relay.Constant):
                return rewritten
        return self._rewritten[key_of(expr)]

    def _visit(self, visit: Visit) -> relay.Expr:
        expr, kind = visit.expr, type(visit.expr)
        if not visit.children:
            return self.finish(expr, visit.scope)
        if kind is relay.Let:
            return self._let(visit)
        children = [self._current(child) for child in visit.children]
        if kind is relay.Call:
            name = self.op_name(children[0])
            replaced = None if name is None else self.rewrite_call(expr, name, children[1:])
            if replaced is not None:
                return self.finish(replaced, visit.scope)
        elif kind is relay.TupleGetItem and isinstance(children[0], relay.Tuple):
            return children[0].fields[expr.index]
        elif kind is relay.If and isinstance(children[0], relay.Constant):
            return children[1] if bool(children[0].data.numpy()) else children[2]
        return self.finish(self.rebuilt(visit, children), visit.scope)

    def _let(self, visit: Visit) -> relay.Expr:
        value, var, body = visit.children
        children = [self._rewritten[key_of(value)], self._rewritten[key_of(var)], self._current(body)]
        if isinstance(children[0], relay.Constant):
            return children[2]
        return self.rebuilt(visit, children)

    @staticmethod
    def rebuilt(visit: Visit, children: list[relay.Expr]) -> relay.Expr:
        """``visit.expr`` on ``children``: the node itself when they are the ones it has."""
        if all(key_of(new) == key_of(old) for new, old in zip(children, visit.children, strict=True)):
            return visit.expr
        return _REBUILD[type(visit.expr)](visit.expr, children)
