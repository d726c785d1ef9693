"""What an optimised module launches: its kernels, and the bytes that pass between them."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relay

from .block_body import decode_body
from .block_operator import block_text, is_block
from .relay_graph import key_of, visit_order
from .relay_to_ecg import tensor_infos


@dataclass(frozen=True)
class KernelCount:
    """Kernels of a module as ``relay.build`` would launch them once each.

    Attributes
    ----------
    kernels
        Calls of primitive functions.
    intermediate_bytes
        Bytes of their results, the graph's own outputs left out; of static shapes only.
    operators
        Per kernel its operator names, blocks opened, in the order of the graph.
    labels
        Per kernel TVM's structural hash, by which a built graph's nodes name it.
    """

    kernels: int
    intermediate_bytes: int
    operators: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]


def count_kernels(mod: tvm.IRModule) -> KernelCount:
    """Count the kernels of a module that ``relay.optimize`` gave."""
    operators: list[tuple[str, ...]] = []
    labels: list[str] = []
    total = 0
    for function in mod.functions.values():
        if not isinstance(function, relay.Function) or _is_primitive(function):
            continue
        returned = _returned(function.body)
        for visit in visit_order(function.body):
            call = visit.expr
            if (
                isinstance(call, relay.Call)
                and isinstance(call.op, relay.Function)
                and _is_primitive(call.op)
            ):
                operators.append(operator_names(call.op))
                labels.append(str(call.op.attrs["hash"]) if "hash" in call.op.attrs else "")
                if key_of(call) not in returned:
                    total += sum(info.nbytes for info in tensor_infos(call.checked_type) or ())
    return KernelCount(len(operators), total, tuple(operators), tuple(labels))


def operator_names(function: relay.Function) -> tuple[str, ...]:
    """Names of the operators of a primitive function, in topological order, blocks opened."""
    names: list[str] = []
    for visit in visit_order(function.body):
        if is_block(visit.expr):
            names.extend(c.op.name for c in decode_body(block_text(visit.expr)).calls)
        elif isinstance(visit.expr, relay.Call):
            names.append(visit.expr.op.name)
    return tuple(names)


def _is_primitive(function: relay.Function) -> bool:
    return function.attrs is not None and "Primitive" in function.attrs


def _returned(body: relay.Expr) -> set[int]:
    """Keys of the expressions that a function returns as they are, through tuples and projections."""
    found: set[int] = set()
    stack = [body]
    while stack:
        expr = stack.pop()
        found.add(key_of(expr))
        if isinstance(expr, relay.Tuple):
            stack.extend(expr.fields)
        elif isinstance(expr, relay.TupleGetItem):
            stack.append(expr.tuple_value)
    return found
