"""A block's body as text: exact, deterministic and compact.

Relay's own text keeps six digits of a float and cannot carry NaN, int8 or tensor constants, so a
body is written as JSON: input types, one entry per operator in topological order, and outputs.
Equal groups give equal texts whatever their variables were called, so the TE compiler builds them
once and tuning logs can name them.

``{"inputs": [[[1, 8], "float32"]], "operators": [["add", ["x0", "float32:0000803f"]]], "outputs": ["0"]}``

An operand is ``x3`` (input 3), ``5`` (operator 5), ``5.1`` (output 1 of operator 5), a scalar
constant as dtype and little-endian bytes in hex, or a list of operands (a tuple). An operator's
third entry, its attributes, is left out when it has none.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relay

from .block_attributes import decode_attributes, encode_attributes
from .errors import BlockError
from .node_fields import field_of, items, make_call
from .relay_graph import Visit, key_of, visit_order

Operand = Any  # str, or a list of them for a tuple: the JSON forms above


@dataclass(frozen=True)
class Body:
    """A decoded body.

    Attributes
    ----------
    function
        The group as a typed Relay function; one parameter per tensor input.
    calls
        Its operator calls in topological order.
    inputs
        The parameters' types: every type inference asks for them, and TVM's fields are slow to read.
    output
        The result's type.
    """

    function: relay.Function
    calls: tuple[relay.Call, ...]
    inputs: tuple[relay.Type, ...]
    output: relay.Type


def scalar_value(constant: relay.Constant) -> bool | int | float:
    """The value of a rank-0 constant as a Python number."""
    array = constant.data.numpy()
    if constant.data.dtype == "bfloat16":  # given as its bits, which are the upper half of a float32
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.item()


def encode_scalar(constant: relay.Constant) -> str:
    """``dtype:hex`` of a rank-0 constant, little-endian."""
    value = constant.data.numpy()
    return f"{constant.data.dtype}:{value.astype(value.dtype.newbyteorder('<')).tobytes().hex()}"


def _decode_scalar(text: str) -> relay.Constant:
    dtype, _, digits = text.partition(":")
    if dtype == "bool":
        return relay.const(bool(int(digits, 16)), "bool")
    array = np.frombuffer(bytes.fromhex(digits), np.dtype(dtype).newbyteorder("<")).reshape(())
    return relay.Constant(tvm.nd.array(array.astype(dtype)))


def _encode_type(type_: relay.TensorType) -> list[Any]:
    """Shape and dtype; an extent that is not int32 is written with its type, for types to unify."""
    extents = items(field_of(type_, "shape"))
    if not all(isinstance(d, tvm.tir.IntImm) for d in extents):
        raise BlockError(f"an input of a block is {type_}; only static shapes are accepted")
    dtypes = [field_of(d, "dtype") for d in extents]
    values = [field_of(d, "value") for d in extents]
    shape = [v if dtype == "int32" else [v, dtype] for v, dtype in zip(values, dtypes, strict=True)]
    return [shape, field_of(type_, "dtype")]


def _decode_type(plain: list[Any]) -> relay.TensorType:
    shape, dtype = plain
    extents = [
        tvm.tir.IntImm(d[1], d[0]) if isinstance(d, list) else tvm.tir.IntImm("int32", d) for d in shape
    ]
    return relay.TensorType(extents, dtype)


def _type_of(param: relay.Var) -> relay.TensorType:
    """The inferred type of a parameter, or else the one it is declared with."""
    return field_of(param, "_checked_type_") or field_of(param, "type_annotation")


class _Encoder:
    def __init__(self, function: relay.Function) -> None:
        self.params, self.root = items(field_of(function, "params")), field_of(function, "body")
        self.names: dict[int, Operand] = {key_of(p): f"x{i}" for i, p in enumerate(self.params)}
        self.operators: list[list[Any]] = []

    def run(self) -> str:
        order = visit_order(self.root)  # keeps the keys of names alive
        for visit in order:
            self._check(visit)
        for visit in order:
            self._visit(visit)
        outputs = self.names[key_of(self.root)]
        body = {
            "inputs": [_encode_type(_type_of(p)) for p in self.params],
            "operators": self.operators,
            # A list of one is that one result itself, so a tuple of one is wrapped once more.
            "outputs": outputs if isinstance(outputs, list) and len(outputs) != 1 else [outputs],
        }
        return json.dumps(body, separators=(",", ":"))

    @staticmethod
    def _check(visit: Visit) -> None:
        """Refuse what has insides before they are visited."""
        if isinstance(visit.expr, relay.Call) and not isinstance(visit.children[0], tvm.ir.Op):
            raise BlockError(
                f"a block's body holds a {_kind(visit.expr)}; only calls of operators are accepted"
            )

    def _visit(self, visit: Visit) -> None:
        expr, children, key = visit.expr, visit.children, key_of(visit.expr)
        if isinstance(expr, relay.Call) and isinstance(children[0], tvm.ir.Op):
            entry = [field_of(children[0], "name"), [self.names[key_of(a)] for a in children[1:]]]
            attributes = encode_attributes(field_of(expr, "attrs"))
            if attributes is not None:
                entry.append(attributes)
            self.names[key] = str(len(self.operators))
            self.operators.append(entry)
        elif isinstance(expr, relay.Constant):
            if expr.data.shape:
                raise BlockError(
                    "a block's body holds a tensor constant; tensor constants are passed as inputs"
                )
            self.names[key] = encode_scalar(expr)
        elif isinstance(expr, relay.Tuple):
            self.names[key] = [self.names[key_of(f)] for f in children]
        elif isinstance(expr, relay.TupleGetItem):
            owner = self.names[key_of(children[0])]
            self.names[key] = owner[expr.index] if isinstance(owner, list) else f"{owner}.{expr.index}"
        elif key not in self.names and not isinstance(expr, tvm.ir.Op):
            raise BlockError(f"a block's body holds a {_kind(expr)}; only calls of operators are accepted")


def _kind(expr: relay.Expr) -> str:
    """What an expression is, for a refusal."""
    kind = type(expr).__name__
    return f"{kind} of a {type(expr.op).__name__}" if isinstance(expr, relay.Call) else kind


def encode_body(function: relay.Function) -> str:
    """The text of a group function, typed or with declared parameters.

    Parameters
    ----------
    function
        Static tensor parameters; a body of operator calls, tuples, projections and scalar constants.

    Raises
    ------
    BlockError
        The body holds anything else.
    """
    return _Encoder(function).run()


class _Decoder:
    def __init__(self, body: dict[str, Any]) -> None:
        self.params = [relay.Var(f"x{i}", _decode_type(t)) for i, t in enumerate(body["inputs"])]
        self.operators: list[relay.Expr] = []
        self.shared: dict[str, relay.Expr] = {}
        for name, operands, *rest in body["operators"]:
            attributes = decode_attributes(rest[0]) if rest else None
            args = [self.operand(o) for o in operands]
            self.operators.append(make_call(relay.op.get(name), args, attributes))
        outputs = [self.operand(o) for o in body["outputs"]]
        self.function = relay.Function(self.params, outputs[0] if len(outputs) == 1 else relay.Tuple(outputs))

    def operand(self, operand: Operand) -> relay.Expr:
        if isinstance(operand, list):
            return relay.Tuple([self.operand(o) for o in operand])
        if operand not in self.shared:
            self.shared[operand] = self._make(operand)
        return self.shared[operand]

    def _make(self, operand: str) -> relay.Expr:
        if operand.startswith("x"):
            return self.params[int(operand[1:])]
        if ":" in operand:
            return _decode_scalar(operand)
        owner, _, index = operand.partition(".")
        call = self.operators[int(owner)]
        return relay.TupleGetItem(call, int(index)) if index else call


@functools.lru_cache(maxsize=4096)
def decode_body(text: str) -> Body:
    """The typed function of a body's text.

    Raises
    ------
    BlockError
        ``text`` is not a body that :func:`encode_body` wrote.
    """
    try:
        function = _Decoder(json.loads(text)).function
        typed = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, tvm.TVMError) as error:
        raise BlockError(f"not a block's body ({error}): {text[:120]}") from error
    calls = tuple(v.expr for v in visit_order(typed.body) if isinstance(v.expr, relay.Call))
    type_ = field_of(typed, "_checked_type_")
    return Body(typed, calls, tuple(items(field_of(type_, "arg_types"))), field_of(type_, "ret_type"))
