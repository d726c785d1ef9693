"""Probes of the mapping-type table as calls of one Relay operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relay

from .ecg import TensorInfo
from .mapping_types.registry import Operand, Probe, integer_range

# Constructors that take operands by name or among the attributes, or have another name.
_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "adv_index": lambda operands: relay.adv_index(list(operands.fields)),
    "gather": lambda data, indices, **attrs: relay.gather(data, indices=indices, **attrs),
    "nn.batch_norm": lambda *operands, **attrs: relay.nn.batch_norm(*operands, **attrs)[0],
    "nn.contrib_conv2d_NCHWc": relay.nn.contrib_conv2d_nchwc,
    "nn.contrib_depthwise_conv2d_NCHWc": relay.nn.contrib_depthwise_conv2d_nchwc,
    "nn.pad": lambda data, value, **attrs: relay.nn.pad(data, pad_value=value, **attrs),
    "qnn.leaky_relu": lambda data, *parameters, alpha: relay.qnn.op.leaky_relu(data, alpha, *parameters),
    "qnn.simulated_dequantize": lambda data, dtype, *parameters, **attrs: relay.qnn.op.simulated_dequantize(
        data, *parameters, in_dtype=dtype, **attrs
    ),
    "qnn.simulated_quantize": lambda data, dtype, *parameters, **attrs: relay.qnn.op.simulated_quantize(
        data, *parameters, out_dtype=dtype, **attrs
    ),
    "stft": lambda data, window, **attrs: relay.stft(data, window=window, **attrs),
    "variance": lambda data, mean, **attrs: relay.variance(data, with_mean=mean, **attrs),
}


@dataclass(frozen=True)
class ProbeCall:
    """One operator call as a Relay function over its perturbed operands.

    Attributes
    ----------
    function
        The function, types inferred.
    attrs
        The operator's attributes.
    operands
        All operands in order, tuple arguments flattened.
    in_types, out_types
        Their types and those of the outputs.
    """

    function: relay.Function
    attrs: Any
    operands: tuple[Operand, ...]
    in_types: tuple[TensorInfo, ...]
    out_types: tuple[TensorInfo, ...]


def make_call(op: str, probe: Probe) -> ProbeCall:
    """Build the call of ``op`` that ``probe`` describes.

    The constructor is Relay's Python function of that name; an operator without one is called with its
    registered attribute type.
    """
    attrs = probe[-1] if probe and isinstance(probe[-1], dict) else {}
    arguments = probe[: len(probe) - 1] if attrs or (probe and probe[-1] == {}) else probe
    operands: list[Operand] = []
    variables: list[relay.Var] = []
    exprs = [_argument(argument, operands, variables) for argument in arguments]
    result = _construct(op, exprs, attrs)
    body = result.astuple() if isinstance(result, relay.expr.TupleWrapper) else result
    function = relay.Function(variables, body)
    function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    call = _single_call(function, op)
    in_types = tuple(info for arg in call.args for info in _tensors(arg.checked_type))
    if len(in_types) != len(operands):
        raise ValueError(f"the probe of {op} gives {len(operands)} operands, its call has {len(in_types)}")
    return ProbeCall(function, call.attrs, tuple(operands), in_types, _tensors(function.ret_type))


def draw(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    """Elements of an operand, as its probe describes them."""
    if operand.values is not None:
        return np.array(operand.values, operand.dtype).reshape(operand.shape)
    if operand.dtype.startswith("float"):
        return np.asarray(rng.uniform(operand.low, operand.high, operand.shape), operand.dtype)
    low, high = integer_range(operand)
    return np.asarray(rng.integers(low, high, operand.shape), operand.dtype)


def _argument(argument: Any, operands: list[Operand], variables: list[relay.Var]) -> relay.Expr:
    if isinstance(argument, list):
        return relay.Tuple([_argument(field, operands, variables) for field in argument])
    operand = argument if isinstance(argument, Operand) else Operand(argument)
    operands.append(operand)
    if operand.fixed:
        return relay.const(draw(operand, np.random.default_rng(0)))
    variables.append(relay.var(f"operand{len(operands) - 1}", shape=operand.shape, dtype=operand.dtype))
    return variables[-1]


def _construct(op: str, arguments: Sequence[relay.Expr], attrs: dict[str, Any]) -> Any:
    constructor = _CONSTRUCTORS.get(op) or _python_function(op)
    if constructor is not None:
        return constructor(*arguments, **attrs)
    registered = relay.op.get(op)
    node = tvm.ir.make_node(registered.attrs_type_key, **attrs) if registered.attrs_type_key else None
    return relay.Call(registered, list(arguments), node)


def _python_function(op: str) -> Callable[..., Any] | None:
    namespace, path = (relay.qnn.op, op[4:]) if op.startswith("qnn.") else (relay, op)
    found: Any = namespace
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if callable(found) else None


def _single_call(function: relay.Function, op: str) -> relay.Call:
    calls: list[relay.Call] = []
    relay.analysis.post_order_visit(
        function.body, lambda node: calls.append(node) if isinstance(node, relay.Call) else None
    )
    found = [call for call in calls if call.op.name == op]
    if len(found) != 1 or any(call.op.name not in (op, "reshape") for call in calls):
        made = ", ".join(call.op.name for call in calls)
        raise ValueError(f"the constructor of {op} made {made}, not one call of it")
    return found[0]


def _tensors(checked_type: tvm.ir.Type) -> tuple[TensorInfo, ...]:
    fields = checked_type.fields if isinstance(checked_type, tvm.ir.TupleType) else [checked_type]
    return tuple(TensorInfo(tuple(int(d) for d in t.shape), t.dtype) for t in fields)
