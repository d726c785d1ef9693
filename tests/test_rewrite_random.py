"""Random graphs of the operators that rules speak of: rewritten is original under the licence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm_dnnfusion.passes.fold_constants import FoldConstants
from tvm_dnnfusion.passes.rewrite_properties import RewriteProperties, RewritingLog

Rng = np.random.Generator
SHAPE = (4, 6)
UNARY = (
    relay.exp,
    relay.tanh,
    relay.negative,
    relay.abs,
    relay.nn.relu,
    relay.sigmoid,
    relay.erf,
    relay.floor,
)
BINARY = (relay.add, relay.subtract, relay.multiply, relay.maximum, relay.minimum)
REDUCE = (relay.sum, relay.mean, relay.max, relay.min)


def weight(rng: Rng, *shape: int) -> relay.Constant:
    return relay.Constant(tvm.nd.array(rng.uniform(0.5, 1.5, shape).astype("float32")))


def rows(rng: Rng, x: relay.Expr) -> relay.Expr:
    axis = int(rng.integers(0, 2))
    return REDUCE[rng.integers(0, len(REDUCE))](x, axis=axis, keepdims=True)


def pieces(rng: Rng, x: relay.Expr) -> relay.Expr:
    at = int(rng.integers(1, 5))
    parts = [relay.strided_slice(x, [0, 0], [4, at]), relay.strided_slice(x, [0, at], [4, 6])]
    return relay.concatenate([UNARY[1](p) for p in parts] if rng.integers(0, 2) else parts, 1)


def dense(rng: Rng, x: relay.Expr) -> relay.Expr:
    found = relay.nn.dense(x, weight(rng, 6, 6))
    return found * weight(rng, 6) + weight(rng, 6) if rng.integers(0, 2) else found


def matrices(rng: Rng, x: relay.Expr) -> relay.Expr:
    batch = relay.reshape(x, (1, 4, 6))
    scores = relay.nn.batch_matmul(
        batch, relay.transpose(relay.reshape(x, (1, 4, 6)), (0, 2, 1)), transpose_b=False
    )
    return relay.reshape(relay.nn.batch_matmul(scores * relay.const(0.25), batch, transpose_b=False), SHAPE)


def convolution(rng: Rng, x: relay.Expr) -> relay.Expr:
    found = relay.nn.conv1d(
        relay.reshape(x, (1, 4, 6)), weight(rng, 4, 4, 3), padding=1, channels=4, kernel_size=3
    )
    return relay.reshape(found * weight(rng, 4, 1), SHAPE)


MOVES: tuple[Callable[[Rng, relay.Expr], relay.Expr], ...] = (
    lambda rng, x: relay.transpose(UNARY[rng.integers(0, 8)](relay.transpose(x))),
    lambda rng, x: relay.reshape(UNARY[rng.integers(0, 8)](relay.reshape(x, (2, 2, 6))), SHAPE),
    lambda rng, x: relay.take(x, relay.const(rng.integers(0, 4, 4)), axis=0),
    lambda rng, x: relay.strided_slice(relay.nn.pad(x, ((1, 0), (0, 2))), [1, 0], [5, 6]),
    lambda rng, x: x + relay.broadcast_to(rows(rng, x), SHAPE),
    lambda rng, x: relay.where(relay.greater(x, relay.const(0.5)), x * relay.const(2.0), x),
    lambda rng, x: relay.nn.softmax(x, axis=int(rng.integers(0, 2))),
    lambda rng, x: relay.clip(relay.clip(x, -2.0, 3.0), -1.0, 4.0),
    lambda rng, x: relay.sqrt(x * x + relay.const(1.0)),
    lambda rng, x: x * weight(rng, 6) / weight(rng, 4, 1),
    lambda rng, x: x * weight(rng) + x * weight(rng, 6),
    pieces,
    dense,
    matrices,
    convolution,
)  # fmt: skip


def random_graph(rng: Rng) -> relay.Function:
    """About ten operators on two inputs; magnitudes are kept near one by a tanh now and then."""
    inputs = [relay.var(f"x{i}", shape=SHAPE) for i in range(2)]
    known: list[relay.Expr] = list(inputs)
    for _ in range(int(rng.integers(4, 10))):
        x = known[int(rng.integers(0, len(known)))]
        kind = int(rng.integers(0, 4))
        if kind == 0:
            made = relay.tanh(UNARY[rng.integers(0, len(UNARY))](x))
        elif kind == 1:
            made = BINARY[rng.integers(0, len(BINARY))](x, known[int(rng.integers(0, len(known)))])
        else:
            made = relay.tanh(MOVES[rng.integers(0, len(MOVES))](rng, x))
        known.append(made)
    return relay.Function(inputs, known[-1] + known[-2])


def evaluate(function: relay.Function, feeds: list[np.ndarray]) -> np.ndarray:
    """Its value, by folding constants in the place of inputs."""
    given = {
        var: relay.Constant(tvm.nd.array(feed)) for var, feed in zip(function.params, feeds, strict=True)
    }
    mod = FoldConstants()(tvm.IRModule.from_expr(relay.Function([], relay.bind(function.body, given))))
    body = mod["main"].body
    if isinstance(body, relay.Constant):
        return body.data.numpy()
    with tvm.transform.PassContext(opt_level=0, disabled_pass=["SimplifyExpr"]):
        mod = relay.transform.InferType()(mod)
        return relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()().numpy()


def check_graphs(count: int, numerics: str, seed: int) -> Counter[str]:
    fired: Counter[str] = Counter()
    logs: list[RewritingLog] = []
    rewrite = RewriteProperties(numerics, on_log=logs.append)
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(random_graph(rng)))
        after = rewrite(mod)
        fired.update(f.rule for f in logs[-1].fired)
        if not logs[-1].fired:
            continue
        assert logs[-1].after < logs[-1].before
        feeds = [rng.uniform(-2, 2, SHAPE).astype("float32") for _ in range(2)]
        wanted, found = evaluate(mod["main"], feeds), evaluate(after["main"], feeds)
        tolerance = {"rtol": 1e-6, "atol": 1e-6} if numerics == "strict" else {"rtol": 1e-3, "atol": 1e-4}
        np.testing.assert_allclose(found, wanted, err_msg=f"seed {seed}, graph {number}", **tolerance)
    return fired


@pytest.mark.parametrize("numerics", ["strict", "relaxed", "fast"])
def test_random_graphs_keep_their_values(numerics: str, seed: int) -> None:
    print(f"seed {seed}")
    fired = check_graphs(15, numerics, seed)
    assert sum(fired.values()) >= 5


@pytest.mark.zoo
def test_a_thousand_random_graphs_keep_their_values(seed: int) -> None:
    print(f"seed {seed}")
    print(check_graphs(1000, "relaxed", seed).most_common())
