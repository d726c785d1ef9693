"""Canonicalisation: the normal forms, what stays, and that numbers, types and structure survive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm_dnnfusion.passes.canonicalize import Canonicalize


def constant(value: object, dtype: str = "float32") -> relay.Constant:
    return relay.Constant(tvm.nd.array(np.asarray(value, dtype)))


def canonical(parameters: Sequence[relay.Var], body: relay.Expr) -> tvm.IRModule:
    """The canonical module, its output type checked."""
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(parameters), body)))
    after = Canonicalize()(before)
    tvm.ir.assert_structural_equal(after["main"].ret_type, before["main"].ret_type)
    return after


def operators(mod: tvm.IRModule) -> dict[str, int]:
    """How often each operator is called, in all functions of the module."""
    counts: Counter[str] = Counter()
    for function in mod.functions.values():
        alone = tvm.IRModule.from_expr(function, type_defs=mod.type_definitions)
        counts.update({str(k): int(v) for k, v in relay.analysis.list_op_freqs(alone).items()})
    return dict(counts)


def evaluate(mod: tvm.IRModule, *feeds: np.ndarray) -> np.ndarray:
    # Stock SimplifyExpr, which runs at every level, gets some binomials wrong.
    with tvm.transform.PassContext(opt_level=0, disabled_pass=["SimplifyExpr"]):
        return relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(*feeds).numpy()


def evaluate_dynamic(mod: tvm.IRModule, *feeds: np.ndarray) -> np.ndarray:
    """For control flow and dynamic shapes, which the VM compiles from optimisation level 1 on."""
    with tvm.transform.PassContext(opt_level=1):
        return relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()(*feeds).numpy()


X = relay.var("x", shape=(2, 3, 4))
T = relay.transpose
R = relay.reshape


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: R(X, (2, 3, 4)), {}),
        (lambda: R(R(X, (6, 4)), (-1,)), {"reshape": 1}),
        (lambda: relay.squeeze(relay.expand_dims(X, 1), [1]), {}),
        (lambda: relay.expand_dims(R(X, (6, 4)), 0), {"reshape": 1}),
        (lambda: relay.squeeze(relay.expand_dims(relay.squeeze(relay.expand_dims(X, 0)), 0)), {}),
        (lambda: relay.reshape_like(X, constant(np.zeros((4, 6)))), {"reshape": 1}),
        (lambda: T(X, (0, 1, 2)), {}),
        (lambda: T(T(X)), {}),
        (lambda: T(T(X, (0, 2, 1)), (0, -1, 1)), {}),
        (lambda: T(T(X, (1, 0, 2)), (0, 2, 1)), {"transpose": 1}),
        (lambda: T(relay.expand_dims(X, 0), (1, 2, 0, 3)), {"reshape": 1}),
        (lambda: relay.cast(X, "float32"), {}),
        (lambda: relay.cast(relay.cast(X, "float16"), "float32"), {"cast": 2}),
        (lambda: relay.copy(X), {}),
        (lambda: relay.strided_slice(X, [0, 0], [2, 99]), {}),
        (lambda: relay.strided_slice(X, [1, 2, 3], [-9, -9, -9], [-1, -1, -1]), {"strided_slice": 1}),
        (lambda: relay.broadcast_to(X, (2, 3, 4)), {}),
        (lambda: relay.broadcast_to(X, (5, 2, 3, 4)), {"broadcast_to": 1}),
        (lambda: relay.tile(X, (1, 1)), {}),
        (lambda: relay.nn.pad(X, ((0, 0), (0, 0), (0, 0))), {}),
        (lambda: relay.nn.pad(X, ((0, 0), (1, -1), (0, 0))), {"nn.pad": 1}),
        (lambda: relay.concatenate([X], 0), {}),
        (lambda: relay.layout_transform(relay.layout_transform(X, "NCW", "NCW2w"), "NCW2w", "NCW"), {}),
        (
            lambda: relay.layout_transform(relay.layout_transform(X, "NCW", "NWC"), "NWC", "NCW2w"),
            {"layout_transform": 1},
        ),
        (lambda: relay.nn.dropout(X), {}),
    ],
)
def test_movement_simplifies_exactly(
    build: Callable[[], relay.Expr], expected: dict[str, int], seed: int
) -> None:
    mod = tvm.IRModule.from_expr(relay.Function([X], build()))
    after = canonical([X], build())
    assert operators(after) == expected
    data = np.random.default_rng(seed).standard_normal((2, 3, 4)).astype("float32")
    np.testing.assert_array_equal(evaluate(after, data), evaluate(mod, data))


def test_movement_keeps_dynamic_shapes() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    body = R(R(x, (-1, 2, 2)), (-1, 4))
    after = canonical([x], T(T(body)))
    assert operators(after) == {"reshape": 2}
    data = np.arange(12, dtype="float32").reshape(3, 4)
    np.testing.assert_array_equal(evaluate_dynamic(after, data), data)


@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 4), 1), ((2, 3), -1), ((3, 2, 2), -3)])
@pytest.mark.parametrize("known", [True, False])
def test_bias_add_becomes_add(shape: tuple[int, ...], axis: int, known: bool) -> None:
    x, b = relay.var("x", shape=shape), relay.var("b", shape=(3,))
    bias = np.arange(3, dtype="float32")
    parameters = [x] if known else [x, b]
    body = relay.nn.bias_add(x, constant(bias) if known else b, axis)
    after = canonical(parameters, body)
    assert operators(after).get("nn.bias_add") is None
    assert set(operators(after)) <= ({"add"} if known else {"add", "expand_dims"})
    data = np.ones(shape, "float32")
    feeds = (data,) if known else (data, bias)
    expected = data + bias.reshape([3 if i == axis % len(shape) else 1 for i in range(len(shape))])
    np.testing.assert_array_equal(evaluate(after, *feeds), expected)


def test_common_subexpressions_become_one() -> None:
    x = relay.var("x", shape=(4,))
    left = relay.multiply(relay.exp(x), constant(2.0))
    right = relay.multiply(relay.exp(x), constant(2.0))
    after = canonical([x], relay.add(left, right))
    assert operators(after) == {"exp": 1, "multiply": 1, "add": 1}
    assert after["main"].body.args[0].same_as(after["main"].body.args[1])


def test_common_subexpressions_differ_by_attributes_and_dtype() -> None:
    x = relay.var("x", shape=(4,))
    body = relay.Tuple([relay.clip(x, 0, 1), relay.clip(x, 0, 2), relay.clip(x, 0, 1), relay.clip(x, 0, 2)])
    assert operators(canonical([x], body)) == {"clip": 2}
    zeros = relay.Tuple([relay.add(x, constant(0.0)), relay.add(x, constant(-0.0))])
    assert operators(canonical([x], zeros)) == {"add": 2}


def test_common_subexpressions_stay_in_their_branch() -> None:
    x, p = relay.var("x", shape=(4,)), relay.var("p", shape=(), dtype="bool")
    inner = relay.If(p, relay.add(relay.exp(x), x), x)
    after = canonical([x, p], relay.If(p, inner, relay.exp(x)))
    assert operators(after) == {"exp": 2, "add": 1}


def test_random_operators_are_never_merged() -> None:
    key = relay.var("k", shape=(10,), dtype="uint64")
    body = relay.Tuple([relay.TupleGetItem(relay.random.threefry_split(key), i) for i in (0, 1)])
    assert operators(canonical([key], body))["random.threefry_split"] == 2


@pytest.mark.parametrize(
    ("coefficients", "dtype", "x", "y", "expected"),
    [
        ((2, 5, 3), "int32", [1, 2, -3], [1, 5, 4], [10, 133, 6]),
        ((1, 3, 1), "int32", [1, 2, -3], [1, 5, 4], [5, 59, -11]),
        ((1, [2, 3, 4], 1), "float32", [1, 2, 3], [4, 5, 6], [25, 59, 117]),
    ],
)
def test_binomials_keep_their_value(
    coefficients: tuple, dtype: str, x: list[int], y: list[int], expected: list[int]
) -> None:
    a, b, c = (constant(value, dtype) for value in coefficients)
    u, v = (relay.var(name, shape=(3,), dtype=dtype) for name in "uv")
    body = a * (u * u) + b * (u * v) + c * (v * v)
    np.testing.assert_array_equal(
        evaluate(canonical([u, v], body), np.array(x, dtype), np.array(y, dtype)), expected
    )


def test_casts_in_a_row_keep_the_middle_one() -> None:
    x = relay.var("x", shape=(5,), dtype="int64")
    after = canonical([x], relay.cast(relay.cast(x, "bool"), "int32"))
    data = np.array([1, 2, -1, 256, 0], "int64")
    np.testing.assert_array_equal(evaluate(after, data), [1, 1, 1, 1, 0])


def test_shapes_that_turn_out_constant_become_static() -> None:
    x = relay.var("x", shape=(2, 3, 4))
    shape = relay.take(relay.shape_of(x, "int64"), constant([2, 0, 1], "int64"), axis=0)
    mod = tvm.IRModule.from_expr(
        relay.Function([x], relay.nn.relu(relay.op.dyn._make.reshape(x, shape, False)))
    )
    after = Canonicalize()(mod)
    assert operators(after) == {"reshape": 1, "nn.relu": 1}
    tvm.ir.assert_structural_equal(after["main"].ret_type, relay.TensorType((4, 2, 3)))


def test_loops_and_other_functions_survive() -> None:
    i, x = relay.var("i", shape=(), dtype="int32"), relay.var("x", shape=(3,))
    loop, start = relay.GlobalVar("loop"), relay.var("start", shape=(3,))
    again = loop(relay.add(i, constant(1, "int32")), relay.add(T(T(x)), relay.exp(constant(0.0))))
    body = relay.If(relay.less(i, constant(4, "int32")), again, x)
    mod = tvm.IRModule()
    mod[loop] = relay.Function([i, x], body, relay.TensorType((3,)))
    mod["main"] = relay.Function([start], loop(constant(0, "int32"), start))
    after = Canonicalize()(mod)
    assert {var.name_hint for var in after.get_global_vars()} == {"loop", "main"}
    assert operators(after) == {"less": 1, "add": 2}
    np.testing.assert_array_equal(evaluate_dynamic(after, np.zeros(3, "float32")), [4, 4, 4])


def test_algebraic_data_types_survive() -> None:
    mod = tvm.IRModule()
    prelude = relay.prelude.Prelude(mod)
    _, cons, nil = mod.get_type("List")
    x = relay.var("x", shape=(2,))
    head, rest = relay.var("head"), relay.var("rest")
    clauses = [
        relay.Clause(
            relay.PatternConstructor(cons, [relay.PatternVar(head), relay.PatternVar(rest)]), T(T(head))
        ),
        relay.Clause(relay.PatternConstructor(nil, []), x),
    ]
    built = cons(relay.add(x, relay.exp(constant(0.0))), nil())
    prelude.mod["main"] = relay.Function([x], relay.Match(built, clauses))
    after = Canonicalize()(prelude.mod)
    np.testing.assert_array_equal(evaluate_dynamic(after, np.array([1.0, 2.0], "float32")), [2.0, 3.0])


def test_canonicalize_changes_nothing_twice() -> None:
    x = relay.var("x", shape=(1, 8, 6, 6))
    once = canonical([x], R(relay.nn.bias_add(T(T(x)), constant(np.ones(8))), (1, -1)))
    tvm.ir.assert_structural_equal(Canonicalize()(once), once, map_free_vars=True)


def test_spans_survive() -> None:
    x = relay.var("x", shape=(2, 3))
    span = relay.Span(relay.SourceName("block/add"), 1, 1, 1, 1)
    call = relay.Call(relay.op.get("add"), [T(T(x)), constant(1.0)], None, None, span)
    assert canonical([x], call)["main"].body.span.source_name.name == "block/add"


def test_canonicalize_runs_at_any_optimisation_level() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], T(T(relay.nn.dropout(x)))))
    with tvm.transform.PassContext(opt_level=0):
        assert operators(Canonicalize()(mod)) == {}


def test_chain_of_ten_thousand_operators() -> None:
    x = relay.var("x", shape=(4,))
    body: relay.Expr = x
    for _ in range(2_500):
        body = relay.nn.relu(R(relay.add(T(body), x), (4,)))
    assert operators(canonical([x], body)) == {"add": 2_500, "nn.relu": 2_500}
