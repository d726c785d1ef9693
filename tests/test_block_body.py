"""Bodies of blocks: what is written comes back the same, to the bit, and equal groups give equal texts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.ir import make_node
from tvm.tir import IntImm

from tvm_dnnfusion.block_attributes import decode_attributes, encode_attributes
from tvm_dnnfusion.block_body import decode_body, encode_body, scalar_value
from tvm_dnnfusion.errors import BlockError

X = relay.var("x", shape=(2, 4, 8, 8))
WEIGHT = relay.var("w", shape=(4, 4, 3, 3))
VECTOR = relay.var("v", shape=(4,))
INTEGERS = relay.var("i", shape=(2, 4, 8, 8), dtype="int32")


def typed(params: list[relay.Var], body: relay.Expr) -> relay.Function:
    """A typed function of fresh inference."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))["main"]


def call_of(expr: relay.Expr | relay.expr.TupleWrapper) -> relay.Call:
    """The operator call behind an expression of Relay's front end."""
    if isinstance(expr, relay.expr.TupleWrapper):
        expr = expr.astuple()
    while not isinstance(expr, relay.Call):
        expr = expr.tuple_value
    return expr


CALLS = {
    "floats of no short decimal": relay.clip(X, 0.7071067811865476, 1 / 3),
    "infinities": relay.clip(X, -math.inf, math.inf),
    "negative zero and a tiny float": relay.clip(X, -0.0, 5e-324),
    "nan": relay.nn.leaky_relu(X, math.nan),
    "integers as floats": relay.clip(X, 0, 6),
    "beyond int32": relay.strided_slice(X, [0, 0], [2**40, -1]),
    "infinite padding": relay.nn.pad(X, ((0, 0), (0, 0), (1, 2), (3, 4)), pad_value=-math.inf),
    "none": relay.transpose(X),
    "list of integers": relay.transpose(X, (0, -1, 1, 2)),
    "list or none": relay.sum(X, axis=None, keepdims=True, exclude=True),
    "empty list": relay.squeeze(relay.expand_dims(X, 0), axis=[]),
    "one integer": relay.split(X, 4, axis=1),
    "several integers": relay.split(X, (1, 3), axis=1),
    "reshape": relay.reshape(X, (0, -1)),
    "a string and lists": relay.nn.conv2d(X, WEIGHT, channels=4, kernel_size=(3, 3), padding=(1, 0, 1, 0)),
    "layouts": relay.layout_transform(X, "NCHW", "NCHW4c"),
    "dtype": relay.cast(X, "float16"),
    "scalars as attributes": relay.argmax(X, axis=2, select_last_index=True),
    "list of floats": relay.image.resize2d(X, (16, 16), roi=[0.1, 0.2, 1.0, 1.0], cubic_alpha=-0.75000001),
    "expressions": relay.arange(relay.const(5)),
    "epsilon": relay.nn.batch_norm(X, VECTOR, VECTOR, VECTOR, VECTOR, epsilon=1e-12),
    "rate": relay.nn.dropout(X, 0.30000000000000004),
    "wide integer": relay.fixed_point_multiply(INTEGERS, 2**30, -3),
    "pooling": relay.nn.max_pool2d(X, (3, 3), dilation=(1, 2), ceil_mode=True),
    "nested lists": relay.nn.space_to_batch_nd(X, [2], [[0, 1]]),
    "quantised": relay.qnn.op.requantize(INTEGERS, *(relay.const(v) for v in (0.1, 0, 0.3, 2)), axis=1),
    "inferred concatenation": relay.concatenate([X, X], axis=-1),
    "tuple results": relay.topk(X, k=3, axis=1, ret_type="both", is_ascend=True, dtype="int64"),
}


@pytest.mark.parametrize("name", CALLS)
def test_attributes_come_back_exact(name: str) -> None:
    attributes = call_of(CALLS[name]).attrs
    text = json.dumps(encode_attributes(attributes))
    back = decode_attributes(json.loads(text))
    # TVM's equality compares doubles to 1e-9; its JSON carries their bits.
    assert tvm.ir.save_json(back) == tvm.ir.save_json(attributes)
    assert type(back) is type(attributes)


def test_attributes_of_equal_text_are_equal_objects() -> None:
    near = [call_of(relay.clip(X, 0.0, high)).attrs for high in (1.0, math.nextafter(1.0, 2.0))]
    assert encode_attributes(near[0]) != encode_attributes(near[1])
    assert encode_attributes(near[0]) == encode_attributes(call_of(relay.clip(X, 0, 1)).attrs)


@pytest.mark.parametrize(
    "value",
    [IntImm("int32", 4), IntImm("int64", 4), 4, [IntImm("int64", 4)], [4, 6], []],
    ids=str,
)
def test_untyped_fields_keep_what_they_hold(value: object) -> None:
    attributes = make_node("relay.attrs.SplitAttrs", indices_or_sections=value, axis=1)
    back = decode_attributes(json.loads(json.dumps(encode_attributes(attributes))))
    assert tvm.ir.save_json(back) == tvm.ir.save_json(attributes)


def test_operator_without_attributes_has_none() -> None:
    assert encode_attributes(call_of(relay.add(X, X)).attrs) is None


def through_text(function: relay.Function) -> relay.Function:
    """The function that its own text decodes to."""
    return decode_body(encode_body(function)).function


SCALARS = [
    ("bool", True),
    *((d, np.iinfo(d).min) for d in ("int8", "int16", "int32", "int64")),
    *((d, np.iinfo(d).max) for d in ("uint8", "uint16", "uint32", "int64", "uint64")),
    *((d, v) for d in ("float16", "float32", "float64") for v in (1 / 3, -0.0, math.inf, math.nan, 5e-8)),
]


@pytest.mark.parametrize(("dtype", "value"), SCALARS, ids=lambda v: str(v))
def test_scalar_constants_come_back_to_the_bit(dtype: str, value: object) -> None:
    constant = relay.const(np.array(value).astype(dtype), dtype)
    x = relay.var("x", shape=(3,), dtype=dtype)
    operator = relay.logical_and if dtype == "bool" else relay.add
    (call,) = decode_body(encode_body(typed([x], operator(x, constant)))).calls
    back = call.args[1]
    assert back.data.dtype == dtype and back.data.shape == ()
    assert back.data.numpy().tobytes() == constant.data.numpy().tobytes()


def test_scalar_nan_keeps_its_payload() -> None:
    bits = np.array(0x7FC12345, np.uint32)
    x = relay.var("x", shape=(3,))
    (call,) = decode_body(encode_body(typed([x], x + relay.const(bits.view(np.float32))))).calls
    assert call.args[1].data.numpy().view(np.uint32) == bits


def test_bfloat16_scalar_comes_back_and_has_its_value() -> None:
    constant = relay.const(1.5, "bfloat16")
    x = relay.var("x", shape=(3,), dtype="bfloat16")
    (call,) = decode_body(encode_body(typed([x], x * constant))).calls
    assert call.args[1].data.dtype == "bfloat16"
    assert scalar_value(call.args[1]) == 1.5


def test_body_comes_back_structurally_equal() -> None:
    parts = relay.split(relay.tanh(X), 2, axis=1)
    both = relay.concatenate([parts[1], parts[0]], axis=1)
    scaled = relay.multiply(both, relay.const(0.1))
    outputs = relay.Tuple([scaled, relay.sum(scaled, axis=1), parts[0]])
    function = typed([X], outputs)
    tvm.ir.assert_structural_equal(through_text(function), function, map_free_vars=True)


@pytest.mark.parametrize(
    "body",
    [
        relay.Tuple([relay.tanh(X)]),
        relay.Tuple([relay.Tuple([relay.tanh(X), X]), X]),
        relay.Tuple([relay.Tuple([relay.tanh(X), X])]),
        call_of(relay.split(X, 2, axis=1)),
        relay.TupleGetItem(relay.Tuple([relay.tanh(X), X]), 0),
        X,
    ],
    ids=["tuple of one", "nested", "nested in one", "call of several results", "projection", "input"],
)
def test_results_of_any_form_come_back(body: relay.Expr) -> None:
    function = typed([X], body)
    back = through_text(function)
    assert tvm.ir.structural_equal(back.checked_type, function.checked_type)
    assert encode_body(back) == encode_body(function)


def test_shared_operators_stay_shared() -> None:
    x = relay.var("x", shape=(3,))
    y: relay.Expr = x
    for _ in range(40):
        y = relay.add(y, y)
    text = encode_body(typed([x], y))
    assert len(decode_body(text).calls) == 40
    assert len(text) < 2000


def test_unused_and_repeated_inputs_keep_their_places() -> None:
    a, b, c = (relay.var(n, shape=(n_,)) for n, n_ in (("a", 1), ("b", 2), ("c", 3)))
    back = through_text(typed([a, b, c], relay.add(c, c)))
    assert [int(p.checked_type.shape[0]) for p in back.params] == [1, 2, 3]


def test_extents_keep_their_integer_type() -> None:
    x = relay.var("x", relay.TensorType([IntImm("int64", 3), 2], "float32"))
    function = typed([x], relay.tanh(x))
    assert [d.dtype for d in through_text(function).params[0].checked_type.shape] == ["int64", "int32"]


def test_equal_groups_give_equal_texts() -> None:
    def group(name: str, constant: float) -> relay.Function:
        x, w = relay.var(name, shape=(2, 8)), relay.var(f"{name}_w", shape=(4, 8))
        return typed([x, w], relay.nn.relu(relay.nn.dense(x, w)) * relay.const(constant))

    assert encode_body(group("a", 0.1)) == encode_body(group("model/layer.1", 0.1))
    assert encode_body(group("a", 0.1)) != encode_body(group("a", 0.1000001))


def test_decoding_an_encoded_text_gives_the_text() -> None:
    for name, expr in CALLS.items():
        if name in ("expressions", "infinite padding", "nested lists"):
            continue  # an operator without operands; operands that are scalars of the front end
        call = call_of(expr)
        text = encode_body(typed(relay.analysis.free_vars(call), call))
        assert encode_body(decode_body(text).function) == text, name


def test_encode_refuses_tensor_constants() -> None:
    with pytest.raises(BlockError, match="tensor constants are passed as inputs"):
        encode_body(typed([VECTOR], VECTOR + relay.const(np.ones(4, "float32"))))


def test_encode_refuses_anything_but_operator_calls() -> None:
    inner = relay.Function([VECTOR], relay.tanh(VECTOR))
    other = relay.var("other", shape=(4,))
    with pytest.raises(BlockError, match="holds a Call of a Function"):
        encode_body(typed([other], relay.Call(inner, [other])))
    branch = relay.If(relay.const(True), other, other)
    with pytest.raises(BlockError, match="holds a If; only calls of operators"):
        encode_body(typed([other], relay.tanh(branch)))


def test_encode_refuses_dynamic_inputs() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    with pytest.raises(BlockError, match="only static shapes are accepted"):
        encode_body(typed([x], relay.tanh(x)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fn (%x: Tensor[(3), float32]) { tanh(%x) }",
        "[]",
        "{}",
        '{"inputs":[],"operators":[],"outputs":["0"]}',
        '{"inputs":[[[3],"float32"]],"operators":[["no.such.operator",["x0"]]],"outputs":["0"]}',
        '{"inputs":[[[3],"float32"]],"operators":[["tanh",["1"]],["tanh",["0"]]],"outputs":["1"]}',
        '{"inputs":[[[3],"float32"]],"operators":[["tanh",["x0","x0"]]],"outputs":["0"]}',
        '{"inputs":[[[3],"float32"]],"operators":[["tanh",[7]]],"outputs":["0"]}',
        '{"inputs":[[[3],"float32"]],"operators":[["add",["x0","float32:00"]]],"outputs":["0"]}',
        '{"inputs":[[[3],"float32"]],"operators":[["clip",["x0"],["relay.attrs.Nothing",{}]]],"outputs":["0"]}',
    ],
)
def test_decode_refuses_foreign_text(text: str) -> None:
    with pytest.raises(BlockError, match="not a block's body"):
        decode_body(text)
