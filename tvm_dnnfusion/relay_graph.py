"""Walking Relay graphs, control flow included, without recursion in Python or in C++.

``relay.analysis.post_order_visit`` recurses over control flow, and calls back into Python for each node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relay
from tvm.relay.adt import Match
from tvm.relay.expr import RefCreate, RefRead, RefWrite

from .node_fields import field_of, items

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
    relay.Call: lambda e: [field_of(e, "op"), *items(field_of(e, "args"))],
    relay.Tuple: lambda e: items(field_of(e, "fields")),
    relay.TupleGetItem: lambda e: [field_of(e, "tuple_value")],
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
