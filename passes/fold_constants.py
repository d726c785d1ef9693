"""Constant folding by NumPy: what stock ``FoldConstant`` does, without a kernel compiled per constant.

Stock Relay builds and runs a module for each constant call, tens of milliseconds each; packing the weights of
a network takes minutes. Here a call of constants is evaluated by :mod:`numpy_operators`; only an operator
without an evaluator goes to stock Relay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm_dnnfusion.passes import numpy_movement  # noqa: F401  (declares evaluators)
from tvm_dnnfusion.passes.graph_rewriter import GraphRewriter
from tvm_dnnfusion.passes.numpy_operators import NUMPY_OPERATORS, NoEvaluator, Unevaluated
from tvm_dnnfusion.passes.static_types import StaticTypes
from tvm_dnnfusion.passes.tensor_memory import tensor_of, view

from tvm_dnnfusion.node_fields import copy_call, field_of, items, structural_equal, structural_hash
from tvm_dnnfusion.relay_graph import key_of

# A folded value may be this many times larger than what it is computed from ...
GROWTH = 8
# ... or this large in any case. Beyond both the operator stays: a mask made of a range is worth keeping,
# gigabytes made of a scalar are not.
ALWAYS_BYTES = 1 << 20
# A value that only repeats a smaller one is read from there by a broadcast more cheaply than as a tensor.
REPEATED_BYTES = 4 << 10

# Depend on the type of their operand, not on its value.
_SHAPE_OPERATORS = frozenset({"shape_of", "vm.shape_of", "ndarray_size"})
# Their effect is where data lives or how a compiler reads the graph, not a value.
_OPAQUE_PREFIXES = (
    "annotation.",
    "memory.",
    "vm.",
    "device_copy",
    "on_device",
    "call_lowered",
    "random.",
    "dnnfusion.",
)

Array = np.ndarray


def stored_bytes(value: Array) -> int:
    """The bytes of distinct storage behind ``value``: axes that repeat (stride 0) count once."""
    extents = [n for n, stride in zip(value.shape, value.strides, strict=True) if stride]
    return value.itemsize * int(np.prod(extents, dtype=np.int64)) if value.size else 0


def _leaves(value: Any) -> list[Any]:
    """The arrays (or output types) in a possibly nested tuple."""
    if isinstance(value, tuple):
        return [leaf for element in value for leaf in _leaves(element)]
    return [value]


def _needed_bytes(output: Any) -> int:
    return sum(leaf.dtype.itemsize * int(np.prod(leaf.shape, dtype=np.int64)) for leaf in _leaves(output))


class ConstantFolder(GraphRewriter):
    """Replaces calls of constants by constants; see :func:`FoldConstants`."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__()
        self._mod = mod
        self.types = StaticTypes()
        # Keyed by address, hence with the expression, which keeps the address its own.
        self._values: dict[int, tuple[relay.Expr, Any]] = {}
        self._folds: dict[tuple[Any, ...], tuple[list[relay.Expr], Any, relay.Expr | None]] = {}

    def rewrite_call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        if name in _SHAPE_OPERATORS:
            return self._shape_operator(call, name)
        if not all(self._is_known(arg) for arg in args) or name.startswith(_OPAQUE_PREFIXES):
            return None
        output = self.types.of(field_of(call, "_checked_type_"))
        if output is None:
            return self._by_stock_relay(call, args)
        values = [self.value(arg) for arg in args]
        if any(value is None for value in values):
            return None
        return self._folded_once(call, name, args, values, output)

    def _folded_once(
        self, call: relay.Call, name: str, args: list[relay.Expr], values: list[Any], output: Any
    ) -> relay.Expr | None:
        """Equal calls give one constant: layers that share weights share the packed ones as well."""
        attrs = field_of(call, "attrs")
        key = (name, *(key_of(arg) for arg in args), 0 if attrs is None else structural_hash(attrs))
        known = self._folds.get(key)
        if known is None or (attrs is not None and not structural_equal(known[1], attrs)):
            # The entry keeps args alive, and with them the addresses in its key.
            known = (args, attrs, self._folded(call, name, args, values, output))
            self._folds[key] = known
        return known[2]

    def _folded(
        self, call: relay.Call, name: str, args: list[relay.Expr], values: list[Any], output: Any
    ) -> relay.Expr | None:
        stored = sum(stored_bytes(leaf) for value in values for leaf in _leaves(value))
        repeats = name in _REPEATING
        if not repeats and _needed_bytes(output) > max(ALWAYS_BYTES, GROWTH * stored):
            return None
        operator = NUMPY_OPERATORS.get(name)
        if operator is None:
            return self._by_stock_relay(call, args)
        try:
            with np.errstate(all="ignore"):
                result = operator.evaluate(call.attrs, values, output)
        except Unevaluated:
            return None
        except NoEvaluator:
            return self._by_stock_relay(call, args)
        self._check(name, result, output)
        return self._materialised(call, args, result, output)

    @staticmethod
    def _check(name: str, result: Any, output: Any) -> None:
        found = [(leaf.shape, leaf.dtype) for leaf in _leaves(result)]
        expected = [(leaf.shape, leaf.dtype) for leaf in _leaves(output)]
        assert found == expected, f"the NumPy evaluator of {name} gives {found}, the type says {expected}"

    def _materialised(self, call: relay.Call, args: list[relay.Expr], result: Any, output: Any) -> relay.Expr:
        """A constant of ``result``, or the call itself, remembered as known, if that only repeats values."""
        leaves = _leaves(result)
        if _needed_bytes(output) > max(REPEATED_BYTES, 2 * sum(stored_bytes(leaf) for leaf in leaves)):
            kept = copy_call(call, call.op, args)
            self._values[key_of(kept)] = (kept, result)
            return kept
        return self.constant(result, call.span)

    def constant(self, value: Any, span: Any) -> relay.Expr:
        """A Relay constant of ``value``, a tuple of them for a tuple."""
        if isinstance(value, tuple):
            return relay.Tuple([self.constant(element, span) for element in value], span)
        return relay.Constant(tensor_of(value), span)

    def _is_known(self, expr: relay.Expr) -> bool:
        if isinstance(expr, relay.Constant):
            return True
        if isinstance(expr, relay.Tuple):
            return all(self._is_known(element) for element in items(field_of(expr, "fields")))
        return key_of(expr) in self._values

    def value(self, expr: relay.Expr) -> Any:
        """The value of a known expression; None if its dtype is not NumPy's."""
        key = key_of(expr)
        if key not in self._values:
            self._values[key] = (expr, self._read(expr))
        return self._values[key][1]

    def _read(self, expr: relay.Expr) -> Any:
        if isinstance(expr, relay.Tuple):
            values = tuple(self.value(element) for element in items(field_of(expr, "fields")))
            return None if any(value is None for value in values) else values
        return view(expr.data)

    def _shape_operator(self, call: relay.Call, name: str) -> relay.Expr | None:
        operand = self.types.of(call.args[0].checked_type)
        if operand is None:
            return None
        shape = np.asarray(operand.shape, dtype=np.int64)
        value = shape if name != "ndarray_size" else np.prod(shape, dtype=np.int64)
        return self.constant(np.asarray(value).astype(str(call.attrs.dtype)), call.span)

    def _by_stock_relay(self, call: relay.Call, args: list[relay.Expr]) -> relay.Expr | None:
        """What stock Relay makes of this one call: it refuses stateful operators and those without value."""
        if not args or any(not _only_constants(arg) for arg in args):
            return None
        folded = relay.transform.FoldConstantExpr(copy_call(call, call.op, args), self._mod)
        return folded if _only_constants(folded) else None


def _only_constants(expr: relay.Expr) -> bool:
    if isinstance(expr, relay.Tuple):
        return all(_only_constants(element) for element in items(field_of(expr, "fields")))
    return isinstance(expr, relay.Constant)


# Their NumPy evaluator returns a view that costs no memory, whatever its extents.
_REPEATING = frozenset(
    {"broadcast_to", "broadcast_to_like", "zeros", "ones", "zeros_like", "ones_like", "full", "full_like"}
)


def rewrite_functions(mod: tvm.IRModule, rewriter: Callable[..., GraphRewriter], *args: Any) -> tvm.IRModule:
    """A typed ``mod`` with each Relay function rewritten by a fresh ``rewriter(mod, *args)``, typed again.

    Where nothing changes, types are not inferred once more: that takes a millisecond per convolution.
    """
    changed: list[tuple[Any, Any]] = []
    for global_var, function in mod.functions.items():
        if isinstance(function, relay.Function):
            rewritten = rewriter(mod, *args).rewrite(function)
            if key_of(rewritten) != key_of(function):
                changed.append((global_var, rewritten))
    if not changed:
        return mod
    result = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
    for global_var, function in changed:
        result[global_var] = function
    return relay.transform.InferType()(result)


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.FoldConstants")
class FoldConstants:
    """Pass that replaces every call whose arguments are all constants by its value.

    Tuples, projections, ``If`` on a constant and variables bound to constants fold too. Left alone: stateful
    and opaque operators, bodies of primitive and other compilers' functions, values that are undefined, and
    values much larger than what they are made from (see ``GROWTH``, ``REPEATED_BYTES``).
    Source: TVM's ``src/relay/transforms/fold_constant.cc``.
    """

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """``mod`` with constants folded, types inferred."""
        return rewrite_functions(relay.transform.InferType()(mod), ConstantFolder)
