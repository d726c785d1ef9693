"""One linear, non-recursive rewriting traversal of a whole Relay function, control flow included.

``relay.ExprMutator`` recurses over the depth of the graph and dies on a chain of a thousand operators;
``dataflow_pattern.rewrite`` is quadratic, since it rebuilds its index of the graph in each round. Reading an
attribute of a Relay object from Python costs several microseconds, so passes share one traversal and read
an operator, its arguments and its type only where they must.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relay
from tvm.relay.adt import Clause, Match
from tvm.relay.expr import (
    CallWithFields,
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

# A function that carries one of these is compiled as it stands: by a kernel of its own, or by somebody else.
SEALED_FUNCTION_ATTRIBUTES = ("Primitive", "Compiler", "Composite")


def is_sealed(function: relay.Function) -> bool:
    """Whether ``function`` is a kernel already or another compiler's: its body is not ours to rewrite."""
    attrs = function.attrs
    return attrs is not None and any(name in attrs for name in SEALED_FUNCTION_ATTRIBUTES)


def key_of(expr: relay.Expr) -> int:
    """The identity of the node behind ``expr``: one for all Python handles of it, while one lives."""
    return expr.handle.value


def _function_children(function: relay.Function) -> list[relay.Expr]:
    return [] if is_sealed(function) else [function.body]


CHILDREN: dict[type, Callable[..., list[relay.Expr]]] = {
    relay.Call: lambda e: [e.op, *e.args],
    relay.Tuple: lambda e: list(e.fields),
    relay.TupleGetItem: lambda e: [e.tuple_value],
    relay.If: lambda e: [e.cond, e.true_branch, e.false_branch],
    relay.Let: lambda e: [e.value, e.var, e.body],
    relay.Function: _function_children,
    Match: lambda e: [e.data, *(clause.rhs for clause in e.clauses)],
    RefCreate: lambda e: [e.value],
    RefRead: lambda e: [e.ref],
    RefWrite: lambda e: [e.ref, e.value],
}

# Position of the first child that is a scope of its own: it may run not at all, once, or many times.
_FIRST_SCOPED_CHILD: dict[type, int] = {relay.If: 1, relay.Let: 2, relay.Function: 0, Match: 1}


def _rebuilt_match(match: Match, children: list[relay.Expr]) -> Match:
    clauses = [Clause(clause.lhs, rhs) for clause, rhs in zip(match.clauses, children[1:], strict=True)]
    return Match(children[0], clauses, match.complete)


_NO_TYPES = tvm.runtime.convert([])


def call_with(
    call: relay.Call, op: relay.Expr, args: list[relay.Expr], attrs: tvm.ir.Attrs | None = None
) -> relay.Call:
    """``call`` with another callee, arguments and (unless None) attributes; it keeps its span and type.

    Type inference leaves the operands' types on a call and unifies with them when it runs again, so that an
    extent once unknown would stay unknown: for an operator they are dropped.
    """
    types = _NO_TYPES if isinstance(op, tvm.ir.Op) else None
    return CallWithFields(call, op, args, attrs, types)


_REBUILD: dict[type, Callable[..., relay.Expr]] = {
    relay.Call: lambda e, c: call_with(e, c[0], c[1:]),
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


@dataclass(frozen=True)
class Visit:
    """One node of a traversal; ``scope`` is the function, branch or let body around it."""

    expr: relay.Expr
    children: list[relay.Expr]
    scope: int


def visit_order(root: relay.Expr) -> list[Visit]:
    """Each node under ``root`` once, children first; bodies of sealed functions are not entered.

    A node that several scopes share belongs to the one that reaches it first.
    """
    seen: set[int] = set()
    order: list[Visit] = []
    scopes = 1
    stack: list[tuple[relay.Expr, int, Visit | None]] = [(root, 0, None)]
    while stack:
        expr, scope, visit = stack.pop()
        if visit is not None:
            order.append(visit)
            continue
        key = key_of(expr)
        if key in seen:
            continue
        seen.add(key)
        kind = type(expr)
        children = CHILDREN[kind](expr) if kind in CHILDREN else []
        visit = Visit(expr, children, scope)
        if not children:
            order.append(visit)
            continue
        stack.append((expr, scope, visit))
        first_scoped = _FIRST_SCOPED_CHILD.get(kind, len(children))
        for position in range(len(children) - 1, -1, -1):
            child_scope = scope
            if position >= first_scoped:
                child_scope, scopes = scopes, scopes + 1
            stack.append((children[position], child_scope, None))
    return order


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
