"""Constant folding: every NumPy evaluator against stock Relay, and what is folded and what is not."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm_dnnfusion.passes.blocked_layout import parse_layout, transform_layout
from tvm_dnnfusion.passes.fold_constants import ALWAYS_BYTES, FoldConstants
from tvm_dnnfusion.passes.numpy_operators import NUMPY_OPERATORS, Probe

PROBES = [(name, i) for name, op in NUMPY_OPERATORS.items() for i in range(len(op.probes))]


def random_data(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, positive: bool) -> np.ndarray:
    """Values with zeros, halves and both signs, unless only positive ones make sense."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        low = 1 if positive else 0 if dtype == "uint8" else -9
        return rng.integers(low, 8, shape).astype(dtype)
    data = np.asarray(rng.standard_normal(shape) * 4)
    halves = rng.random(shape) < 0.3
    data = np.where(halves, np.round(data) + 0.5, data)
    return (np.abs(data) + 0.25 if positive else data).astype(dtype)


def folded_leaves(expr: relay.Expr) -> list[np.ndarray]:
    if isinstance(expr, relay.Tuple):
        return [leaf for field in expr.fields for leaf in folded_leaves(field)]
    assert isinstance(expr, relay.Constant), f"not folded: {expr}"
    return [expr.data.numpy()]


def constant(value: object, dtype: str | None = None) -> relay.Constant:
    """A constant of exactly this dtype; ``relay.const`` narrows 64-bit ones."""
    return relay.Constant(tvm.nd.array(np.asarray(value, dtype)))


def arguments(probe: Probe, rng: np.random.Generator) -> list[np.ndarray]:
    return [random_data(rng, shape, dtype, probe.positive) for shape, dtype in probe.inputs]


StockResults = dict[tuple[str, int], tuple[list[np.ndarray], list[np.ndarray]]]


@pytest.fixture(scope="module")
def stock_results() -> StockResults:
    """Each probe's data and stock Relay's result; one module for all: a build costs more than its kernels."""
    rng = np.random.default_rng(20)
    parameters: list[relay.Var] = []
    feeds: list[np.ndarray] = []
    fields: list[relay.Expr] = []
    results: StockResults = {}
    for name, index in PROBES:
        probe = NUMPY_OPERATORS[name].probes[index]
        data = arguments(probe, rng)
        variables = [
            relay.var(f"p{len(parameters) + i}", shape=shape, dtype=dtype)
            for i, (shape, dtype) in enumerate(probe.inputs)
        ]
        parameters += variables
        feeds += data
        outputs = flat(probe.build(*variables))
        results[name, index] = (data, [np.asarray(len(fields) + i) for i in range(len(outputs))])
        fields += outputs
    mod = tvm.IRModule.from_expr(relay.Function(parameters, relay.Tuple(fields)))
    # Scalar code: LLVM 22 refuses the debug information of TVM's vectorised signed floor division.
    with tvm.transform.PassContext(opt_level=0, config={"tir.disable_vectorize": True}):
        values = relay.create_executor("graph", mod, tvm.cpu(), "llvm -opt-level=0").evaluate()(*feeds)
    return {key: (data, [values[int(i)].numpy() for i in at]) for key, (data, at) in results.items()}


def flat(expr: relay.Expr) -> list[relay.Expr]:
    """The tensors of a probe's result."""
    type_ = relay.transform.InferType()(tvm.IRModule.from_expr(expr))["main"].body.checked_type
    if isinstance(type_, relay.TupleType):
        return [relay.TupleGetItem(expr, i) for i in range(len(type_.fields))]
    return [expr]


@pytest.mark.parametrize(("name", "index"), PROBES, ids=[f"{n}-{i}" for n, i in PROBES])
def test_numpy_operator_agrees_with_stock_relay(name: str, index: int, stock_results: StockResults) -> None:
    probe, (data, expected) = NUMPY_OPERATORS[name].probes[index], stock_results[name, index]
    expr = probe.build(*(constant(value) for value in data))
    assert expr.op.name == name
    mod = FoldConstants()(tvm.IRModule.from_expr(expr))
    found = folded_leaves(mod["main"].body)
    assert len(found) == len(expected)
    for ours, stock in zip(found, expected, strict=True):
        assert ours.dtype == stock.dtype and ours.shape == stock.shape
        if NUMPY_OPERATORS[name].ulps and ours.dtype.kind == "f":
            np.testing.assert_array_max_ulp(ours, stock, NUMPY_OPERATORS[name].ulps)
        else:
            np.testing.assert_array_equal(ours, stock)


def test_special_values_fold_as_kernels_compute_them() -> None:
    left = np.array([np.nan, 1.0, np.inf, -0.0, -np.inf, 2.5], "float32")
    right = np.array([1.0, np.nan, -np.inf, 0.0, np.nan, -0.5], "float32")
    x, y = relay.var("x", shape=(6,)), relay.var("y", shape=(6,))
    for build in (relay.maximum, relay.minimum, relay.multiply, relay.divide, relay.add, relay.less):
        mod = tvm.IRModule.from_expr(relay.Function([x, y], build(x, y)))
        with tvm.transform.PassContext(opt_level=0):
            stock = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(left, right).numpy()
        ours = folded(build(relay.const(left), relay.const(right))).data.numpy()
        np.testing.assert_array_equal(ours, stock, err_msg=build.__name__)


def folded(expr: relay.Expr) -> relay.Expr:
    return FoldConstants()(tvm.IRModule.from_expr(expr))["main"].body


def operators(expr: relay.Expr) -> dict[str, int]:
    return {str(k): int(v) for k, v in relay.analysis.list_op_freqs(tvm.IRModule.from_expr(expr)).items()}


@pytest.mark.parametrize(
    ("build", "left", "right", "expected"),
    [
        (relay.divide, [8, -8, 7, -7], [-3, 3, -2, 2], [-2, -2, -3, -3]),
        (relay.floor_divide, [8, -8, 7, -7], [-3, 3, -2, 2], [-3, -3, -4, -4]),
        (relay.mod, [8, -8, 7, -7], [-3, 3, -2, 2], [2, -2, 1, -1]),
        (relay.floor_mod, [8, -8, 7, -7], [-3, 3, -2, 2], [-1, 1, -1, 1]),
        (relay.divide, [9007199254740993 * 3], [3], [9007199254740993]),
    ],
)
def test_integer_division_folds_without_floating_point(
    build: object, left: list[int], right: list[int], expected: list[int]
) -> None:
    call = build(constant(left, "int64"), constant(right, "int64"))
    np.testing.assert_array_equal(folded(call).data.numpy(), expected)


def test_fold_refuses_undefined_values() -> None:
    zero = relay.const(np.zeros(2, "int32"))
    assert operators(folded(relay.divide(relay.const(np.ones(2, "int32")), zero))) == {"divide": 1}
    for value in (np.nan, np.inf, 3e9, -3e9):
        cast = relay.cast(relay.const(np.full(2, value, "float32")), "int32")
        assert operators(folded(cast)) == {"cast": 1}


def test_fold_takes_an_operator_without_evaluator_from_stock_relay() -> None:
    assert "nn.softmax" not in NUMPY_OPERATORS
    data = np.array([[0.0, 1.0, 2.0]], "float32")
    result = folded(relay.nn.softmax(relay.const(data))).data.numpy()
    np.testing.assert_allclose(result, np.exp(data) / np.exp(data).sum(), rtol=1e-6)


def test_fold_refuses_stateful_and_device_operators() -> None:
    one = relay.const(np.ones(3, "float32"))
    on_device = relay.annotation.on_device(one, tvm.cpu(), constrain_body=True)
    assert operators(folded(relay.add(on_device, one))) == {"on_device": 1, "add": 1}
    key = constant(np.zeros(10), "uint64")
    assert operators(folded(relay.random.threefry_split(key)))


@pytest.mark.parametrize("attribute", ["Primitive", "Compiler", "Composite"])
def test_fold_leaves_sealed_functions_alone(attribute: str) -> None:
    x = relay.var("x", shape=(3,))
    body = relay.add(x, relay.exp(relay.const(np.ones(3, "float32"))))
    value = "other" if attribute != "Primitive" else tvm.tir.IntImm("int32", 1)
    inner = relay.Function([x], body).with_attr(attribute, value)
    y = relay.var("y", shape=(3,))
    mod = tvm.IRModule.from_expr(relay.Function([y], inner(y)))
    after = FoldConstants()(mod)["main"].body.op
    tvm.ir.assert_structural_equal(after, relay.transform.InferType()(mod)["main"].body.op)


def test_fold_enters_other_functions_branches_and_lets() -> None:
    x, p, v = relay.var("x", shape=(2,)), relay.var("p", shape=(), dtype="bool"), relay.var("v", shape=(2,))
    one = relay.const(np.ones(2, "float32"))
    branch = relay.If(p, relay.add(x, relay.negative(one)), relay.multiply(x, relay.add(one, one)))
    body = relay.Let(v, relay.add(one, one), relay.add(branch, relay.multiply(v, v)))
    mod = tvm.IRModule.from_expr(relay.Function([x, p], body))
    after = FoldConstants()(mod)
    assert operators(after["main"]) == {"add": 2, "multiply": 1}
    for chosen in (True, False):
        run = relay.create_executor("vm", after, tvm.cpu(), "llvm").evaluate()
        result = run(np.array([3.0, 5.0], "float32"), np.array(chosen)).numpy()
        np.testing.assert_array_equal(result, [6.0, 8.0] if chosen else [10.0, 14.0])


def test_fold_decides_a_constant_branch() -> None:
    x = relay.var("x", shape=(2,))
    condition = relay.less(relay.const(1), relay.const(2))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.If(condition, relay.exp(x), relay.log(x))))
    assert operators(FoldConstants()(mod)["main"]) == {"exp": 1}


def test_fold_projects_tuples() -> None:
    x = relay.var("x", shape=(2,))
    parts = relay.split(relay.const(np.arange(4, dtype="float32")), 2)
    after = folded(
        relay.Function([x], relay.add(relay.TupleGetItem(relay.Tuple([x, parts[1]]), 0), parts[1]))
    )
    assert operators(after) == {"add": 1}


def test_fold_keeps_what_only_repeats_a_value() -> None:
    x = relay.var("x", shape=(512, 512))
    big = relay.broadcast_to(relay.const(np.float32(2.0)), (512, 512))
    assert operators(folded(relay.Function([x], relay.add(x, big)))) == {"add": 1, "broadcast_to": 1}
    small = relay.zeros((4, 4), "float32")
    y = relay.var("y", shape=(4, 4))
    assert operators(folded(relay.Function([y], relay.add(y, small)))) == {"add": 1}


def test_fold_looks_through_a_repeated_value() -> None:
    x = relay.var("x", shape=(512, 512))
    mask = relay.const(np.tri(512, dtype=bool))
    bias = relay.where(mask, relay.zeros((512, 512), "float32"), relay.full(relay.const(-1e9), (512, 512)))
    assert operators(folded(relay.Function([x], relay.add(x, bias)))) == {"add": 1}


def test_fold_refuses_values_much_larger_than_their_operands() -> None:
    side = int(ALWAYS_BYTES**0.5)
    row, column = (relay.const(np.ones(shape, "float32")) for shape in ((1, side), (side, 1)))
    assert operators(folded(relay.add(row, column))) == {"add": 1}


def test_fold_shape_operators_of_static_operands() -> None:
    x = relay.var("x", shape=(2, 3))
    body = relay.Tuple([relay.shape_of(x, "int64"), relay.ndarray_size(x, "int32")])
    shape, size = folded_leaves(folded(relay.Function([x], body)))
    np.testing.assert_array_equal(shape, [2, 3])
    assert shape.dtype == np.int64 and size == 6 and size.dtype == np.int32
    dynamic = relay.var("d", shape=(relay.Any(), 3))
    assert operators(folded(relay.Function([dynamic], relay.shape_of(dynamic)))) == {"shape_of": 1}


def test_fold_constants_of_a_long_chain_takes_linear_time() -> None:
    x, one = relay.var("x", shape=(4,)), relay.const(np.ones(4, "float32"))
    known, unknown = one, x
    for _ in range(10_000):
        unknown = relay.add(unknown, x)
    for _ in range(1_000):
        known = relay.add(known, one)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(known, unknown)))
    start = time.perf_counter()
    after = FoldConstants()(mod)
    assert time.perf_counter() - start < 60
    assert operators(after["main"]) == {"add": 10_001}
    assert after["main"].body.args[0].data.numpy()[0] == 1_001


def test_blocked_layout_pads_what_a_block_does_not_divide() -> None:
    data = np.arange(1, 4, dtype="float32").reshape(1, 3, 1, 1)
    packed = transform_layout(data, "NCHW", "NCHW4c")
    np.testing.assert_array_equal(packed.reshape(-1), [1, 2, 3, 0])


@pytest.mark.parametrize("layout", ["NCHWc", "NC8HW", "N C", "8"])
def test_parse_layout_refuses_malformed_text(layout: str) -> None:
    with pytest.raises(ValueError, match="layout"):
        parse_layout(layout)
