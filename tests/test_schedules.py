"""Block schedules: every one that claims a group computes it right, in the loops that it should have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relay, te
from tvm_dnnfusion.schedules import registered_schedules, registry

from tvm_dnnfusion.block_body import decode_body, encode_body
from tvm_dnnfusion.block_lowering import LoweredBlock, lower_body

TARGET = tvm.target.Target("llvm -mcpu=znver1")
F32, F16 = "float32", "float16"
Build = Callable[..., relay.Expr]


def const(value: float, dtype: str = F32) -> relay.Constant:
    return relay.const(np.array(value, dtype), dtype)


def lowered(build: Build, types: Sequence[tuple[tuple[int, ...], str]]) -> LoweredBlock:
    """A group as the TE graph that schedules are given."""
    params = [relay.var(f"x{i}", shape=s, dtype=d) for i, (s, d) in enumerate(types)]
    result = build(*params)
    result = result.astuple() if isinstance(result, relay.expr.TupleWrapper) else result
    function = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, result)))["main"]
    inputs = [te.placeholder(s, d, f"x{i}") for i, (s, d) in enumerate(types)]
    with TARGET:
        return lower_body(decode_body(encode_body(function)), inputs, TARGET)


def run(block: LoweredBlock, schedule: te.Schedule, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of one kernel."""
    kernel = tvm.build(schedule, [*block.inputs, *block.outputs], TARGET)
    outputs = [tvm.nd.empty(tuple(int(d) for d in t.shape), t.dtype) for t in block.outputs]
    kernel(*map(tvm.nd.array, values), *outputs)
    return [o.numpy() for o in outputs]


def random_value(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(0 if dtype.startswith("u") else -9, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def windows(x: np.ndarray, size: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), (-2, -1))


def conv3x3(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.einsum("nchwij,ocij->nohw", windows(padded, 3), w)


# Per probe: the group in Relay, the same in NumPy, the types of its inputs.
PROBES: dict[str, tuple[Build, Callable[..., object], list[tuple[tuple[int, ...], str]]]] = {
    "elementwise, prime": (lambda x: relay.exp(-x) * x, lambda x: np.exp(-x) * x, [((7, 13), F32)]),
    "elementwise, vectors": (lambda x: relay.tanh(x) + x, lambda x: np.tanh(x) + x, [((4, 64), F32)]),
    "elementwise, one": (lambda x: relay.exp(-x), lambda x: np.exp(-x), [((1,), F32)]),
    "rank 0": (lambda x: relay.exp(relay.nn.relu(x)), lambda x: np.exp(np.maximum(x, 0)), [((), F32)]),
    "zero size": (lambda x: relay.exp(relay.nn.relu(x)), lambda x: x, [((0, 10), F32)]),
    "sum over nothing": (lambda x: relay.sum(-x, 1) + const(1), lambda x: np.ones(3), [((3, 0), F32)]),
    "zero-size concatenation": (
        lambda x, y: relay.tanh(relay.concatenate([-x, y], 0)),
        lambda x, y: np.tanh(y),
        [((0, 4), F32), ((3, 4), F32)],
    ),
    "broadcast": (
        lambda x, b, c: relay.maximum(x + b, c) * x,
        lambda x, b, c: np.maximum(x + b, c) * x,
        [((5, 17), F32), ((17,), F32), ((5, 1), F32)],
    ),
    "several outputs": (
        lambda x: relay.Tuple([relay.tanh(x), relay.sum(relay.tanh(x), 0), relay.cast(x, "int32")]),
        lambda x: (np.tanh(x), np.tanh(x).sum(0), x.astype("int32")),
        [((3, 16), F32)],
    ),
    "sum, last axis": (lambda x: -relay.sum(x * x, 1), lambda x: -(x * x).sum(1), [((7, 32), F32)]),
    "sum, first axis": (
        lambda x: relay.sum(x * x, 0, keepdims=True) + x,
        lambda x: (x * x).sum(0, keepdims=True) + x,
        [((7, 32), F32)],
    ),
    "mean, middle axes": (
        lambda x: relay.mean(-x, (1, 2)),
        lambda x: -x.mean((1, 2)),
        [((2, 3, 5, 16), F32)],
    ),
    "max of sum": (lambda x: relay.max(relay.sum(x, 0)), lambda x: x.sum(0).max(), [((3, 5), F32)]),
    "prod": (lambda x: relay.prod(relay.tanh(x), 1), lambda x: np.tanh(x).prod(1), [((4, 16), F32)]),
    "any and all": (
        lambda x: relay.Tuple([relay.any(relay.logical_not(x), 1), relay.all(relay.logical_not(x), 0)]),
        lambda x: ((~x).any(1), (~x).all(0)),
        [((5, 64), "bool")],
    ),
    "argmax": (lambda x: relay.argmax(-x, 1), lambda x: (-x).argmax(1), [((7, 16), F32)]),
    "argmin, kept": (
        lambda x: relay.Tuple([relay.argmin(-x, 0, keepdims=True), -x]),
        lambda x: ((-x).argmin(0)[None], -x),
        [((7, 16), F32)],
    ),
    "argmax of all": (lambda x: relay.argmax(-x), lambda x: (-x).argmax(), [((3, 5), F32)]),
    "integer sum": (lambda x: relay.sum(x * x, 1), lambda x: (x * x).sum(1), [((3, 64), "int64")]),
    "int8 wraps": (
        lambda x: relay.sum(-x * x, 1),
        lambda x: (-x * x).sum(1, dtype="int8"),
        [((3, 128), "int8")],
    ),
    "uint8 wraps": (lambda x: relay.cast(x - relay.abs(-x), "int32"), None, [((2, 64), "uint8")]),
    "half precision": (lambda x: relay.nn.softmax(x + x), lambda x: softmax(2 * x), [((3, 64), F16)]),
    "double precision": (
        lambda x: relay.sum(relay.exp(x), 1),
        lambda x: np.exp(x).sum(1),
        [((3, 33), "float64")],
    ),
    "softmax, first axis": (
        lambda x: relay.nn.softmax(-x, 0) * x,
        lambda x: softmax(-x, 0) * x,
        [((5, 16), F32)],
    ),
    "two softmaxes": (
        lambda x: relay.nn.softmax(relay.nn.softmax(x, 1), 0),
        lambda x: softmax(softmax(x, 1), 0),
        [((5, 7), F32)],
    ),
    "layer norm": (
        lambda x: (x - relay.mean(x, -1, True)) / relay.sqrt(relay.variance(x, -1, True) + const(1e-5)),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
        [((3, 48), F32)],
    ),
    "reversed and split": (
        lambda x: relay.Tuple([*relay.split(relay.reverse(x, 1), [1], 3)]),
        lambda x: (x[:, ::-1, :, :1], x[:, ::-1, :, 1:]),
        [((16, 8, 3, 3), F32)],
    ),
    "squares of a slice across rows": (
        lambda x: (
            relay.strided_slice(-x, [0] * 4, [4, 9, 2, 1]) * relay.strided_slice(x, [0] * 4, [4, 9, 2, 1])
        ),
        lambda x: -(x[:4, :9, :2, :1] ** 2),
        [((7, 17, 3, 1), F32)],
    ),
    "rows of another length": (
        lambda x: relay.tanh(relay.reshape(-x, (3, 32))) * relay.reshape(x, (3, 32)),
        lambda x: (np.tanh(-x) * x).reshape(3, 32),
        [((2, 48), F32)],
    ),
    "transposed and padded": (
        lambda x: relay.nn.pad(relay.transpose(-x, (1, 0)), ((1, 2), (0, 3)), 0.5),
        lambda x: np.pad(-x.T, ((1, 2), (0, 3)), constant_values=0.5),
        [((5, 16), F32)],
    ),
    "dense, bias of higher rank": (
        lambda x, w, b: relay.maximum(relay.nn.dense(-x, w), const(0)) + b,
        lambda x, w, b: np.maximum(-x @ w.T, 0) + b,
        [((5, 7), F32), ((11, 7), F32), ((2, 5, 11), F32)],
    ),
    "dense of itself": (lambda x: relay.nn.dense(x, x) * const(2), lambda x: 2 * x @ x.T, [((4, 16), F32)]),
    "dense into dense": (
        lambda x, w, v: relay.nn.dense(relay.tanh(relay.nn.dense(x, w)), v),
        lambda x, w, v: np.tanh(x @ w.T) @ v.T,
        [((3, 8), F32), ((16, 8), F32), ((5, 16), F32)],
    ),
    "attention": (
        lambda q, k, v: relay.nn.batch_matmul(
            relay.nn.softmax(relay.nn.batch_matmul(q, k)), v, transpose_b=False
        ),
        lambda q, k, v: softmax(q @ k.transpose(0, 2, 1)) @ v,
        [((2, 5, 8), F32), ((2, 7, 8), F32), ((2, 7, 8), F32)],
    ),
    "convolution, residual, mean": (
        lambda x, w: relay.mean(relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)) + x), (2, 3)),
        lambda x, w: np.maximum(conv3x3(x, w) + x, 0).mean((2, 3)),
        [((1, 8, 7, 7), F32), ((8, 8, 3, 3), F32)],
    ),
    "pooling between": (
        lambda x: relay.exp(relay.nn.max_pool2d(-x, (2, 2), (1, 1))),
        lambda x: np.exp(windows(-x, 2).max((-2, -1))),
        [((1, 3, 7, 17), F32)],
    ),
}


def expected_of(name: str, values: list[np.ndarray]) -> list[np.ndarray]:
    if name == "uint8 wraps":
        (x,) = values  # negation and abs stay in eight bits
        return [(x - (-x.astype("int64") % 256).astype("uint8")).astype("int32")]
    result = PROBES[name][1](*values)
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("name", PROBES)
def test_every_schedule_that_claims_a_probe_computes_it(name: str, rng: np.random.Generator) -> None:
    build, _, types = PROBES[name]
    values = [random_value(s, d, rng) for s, d in types]
    expected = expected_of(name, values)
    claimed = []
    for candidate in registered_schedules():
        if {TARGET.kind.name, *TARGET.keys}.isdisjoint(candidate.targets):
            continue
        block = lowered(build, types)
        with TARGET:
            schedule = candidate.function(block)
        if schedule is None:
            continue
        claimed.append(candidate.name)
        tolerance = 5e-3 if types[0][1] == F16 else 2e-5
        for found, right in zip(run(block, schedule, values), expected, strict=True):
            assert found.shape == right.shape, candidate.name
            np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance, err_msg=candidate.name)
    assert "default" in claimed


def scheduled(build: Build, types: list[tuple[tuple[int, ...], str]]) -> tuple[LoweredBlock, te.Schedule]:
    block = lowered(build, types)
    with TARGET:
        return block, registry.schedule_block(block)


@pytest.mark.parametrize("dtype", [F16, F32, "float64"])
def test_zero_constants_follow_ieee_arithmetic(dtype: str) -> None:
    """TIR folds x * 0 to 0 and refuses x / 0; in a block both are what the operators alone compute."""
    zeros = [const(z, dtype) for z in (0.0, -0.0)]
    block, schedule = scheduled(
        lambda x: relay.Tuple([e for z in zeros for e in (x * z, x / z, z / x)]), [((5,), dtype)]
    )
    x = np.array([np.inf, np.nan, 1.0, -3.0, -0.0], dtype)
    with np.errstate(all="ignore"):
        expected = [e for z in np.array([0.0, -0.0], dtype) for e in (x * z, x / z, z / x)]
    for found, right in zip(run(block, schedule, [x]), expected, strict=True):
        np.testing.assert_array_equal(found, right)
        clean = ~np.isnan(right)
        np.testing.assert_array_equal(np.signbit(found[clean]), np.signbit(right[clean]))


def test_bfloat16_constants_have_their_value() -> None:
    block, _ = scheduled(lambda x: x * relay.const(1.5, "bfloat16"), [((4,), "bfloat16")])
    (constant,) = (t for o in block.operators for t in o.inputs if t.op.name == "constant")
    assert constant.op.body[0].value == 1.5
