"""What an optimised module launches: its kernels, and the bytes that pass between them."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relay

from .block_body import decode_body
from .block_operator import block_text, is_block
from .relay_graph import key_of, visit_order
from .relay_to_ecg import tensor_infos

# What device planning wraps around values; it computes nothing.
_ON_DEVICE = relay.op.get("on_device")


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
    """Count the kernels of a module that ``relay.optimize`` gave, or the VM's compiler before it lowers."""
    operators: list[tuple[str, ...]] = []
    labels: list[str] = []
    total = 0
    for function in mod.functions.values():
        if not isinstance(function, relay.Function) or _is_primitive(function):
            continue
        order = visit_order(function.body)
        bound = {key_of(v.expr.var): v.expr.value for v in order if isinstance(v.expr, relay.Let)}
        returned = _returned(function.body, bound)
        for call in (visit.expr for visit in order if isinstance(visit.expr, relay.Call)):
            kernel = bound.get(key_of(call.op), call.op)
            if isinstance(kernel, relay.Function) and _is_primitive(kernel):
                operators.append(operator_names(kernel))
                labels.append(str(kernel.attrs["hash"]) if "hash" in kernel.attrs else "")
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


def _returned(body: relay.Expr, bound: dict[int, relay.Expr]) -> set[int]:
    """Keys of the expressions that a function returns as they are, through tuples, projections and names."""
    found: set[int] = set()
    stack = [body]
    while stack:
        expr = stack.pop()
        if key_of(expr) in found:
            continue
        found.add(key_of(expr))
        if isinstance(expr, relay.Tuple):
            stack.extend(expr.fields)
        elif isinstance(expr, relay.TupleGetItem):
            stack.append(expr.tuple_value)
        elif isinstance(expr, relay.Let):
            stack.append(expr.body)
        elif isinstance(expr, relay.Var) and key_of(expr) in bound:
            stack.append(bound[key_of(expr)])
        elif isinstance(expr, relay.Call) and expr.op == _ON_DEVICE:
            stack.extend(expr.args)
    return found
