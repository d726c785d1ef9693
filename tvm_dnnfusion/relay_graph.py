"""Walking Relay graphs without recursion in Python or, for data flow, in C++."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relay


def operands(expr: relay.Expr) -> list[relay.Expr]:
    """What ``expr`` reads as data: a call's arguments, a tuple's fields, a projection's tuple."""
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    return []


def post_order(root: relay.Expr) -> Iterator[relay.Expr]:
    """Each expression of the data flow that ends in ``root`` once, operands first.

    Functions, branches and let bindings are yielded as leaves: what is inside them is another scope.
    """
    seen: set[relay.Expr] = set()
    stack: list[tuple[relay.Expr, bool]] = [(root, False)]
    while stack:
        expr, expanded = stack.pop()
        if expanded:
            yield expr
            continue
        if expr in seen:
            continue
        seen.add(expr)
        stack.append((expr, True))
        stack.extend((o, False) for o in reversed(operands(expr)) if o not in seen)
