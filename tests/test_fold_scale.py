"""Scales folded into weights: where they fold, where they stay, and that the numbers survive."""

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


def random_constant(rng: np.random.Generator, *shape: int) -> relay.Constant:
    return constant(rng.standard_normal(shape))


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
        alone = tvm.IRModule.from_expr(function)
        counts.update({str(k): int(v) for k, v in relay.analysis.list_op_freqs(alone).items()})
    return dict(counts)


def evaluate(mod: tvm.IRModule, *feeds: np.ndarray) -> np.ndarray:
    # Stock SimplifyExpr, which runs at every level, gets some binomials wrong.
    with tvm.transform.PassContext(opt_level=0, disabled_pass=["SimplifyExpr"]):
        return relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(*feeds).numpy()


def test_batch_norm_folds_into_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = relay.var("x", shape=(1, 3, 8, 8))
    conv = relay.nn.conv2d(x, random_constant(rng, 6, 3, 3, 3), padding=(1, 1))
    norm = [constant(np.abs(rng.standard_normal(6)) + 0.5) for _ in range(4)]
    body = relay.nn.relu(relay.nn.batch_norm(conv, *norm)[0])
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    after = canonical([x], body)
    assert operators(after) == {"nn.conv2d": 1, "add": 1, "nn.relu": 1}
    data = rng.standard_normal((1, 3, 8, 8)).astype("float32")
    np.testing.assert_allclose(evaluate(after, data), evaluate(mod, data), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "scale_shape", "expected"),
    [
        (lambda x, w: relay.nn.conv2d(x, w(4, 1, 3, 3), groups=4), (4, 1, 1), True),
        (lambda x, w: relay.nn.conv2d(x, w(8, 2, 3, 3), groups=2), (8, 1, 1), True),
        (lambda x, w: relay.nn.conv2d_transpose(x, w(4, 5, 2, 2)), (5, 1, 1), True),
        (lambda x, w: relay.nn.conv2d(x, w(5, 4, 3, 3)), (), True),
        (lambda x, w: relay.nn.conv2d(x, w(6, 4, 3, 3)), (6,), False),
        (lambda x, w: relay.nn.dense(relay.reshape(x, (-1, 8)), w(5, 8)), (5,), True),
        (lambda x, w: relay.nn.dense(relay.reshape(x, (-1, 8)), w(5, 8)), (32, 1), False),
        (lambda x, w: relay.nn.conv2d(x, w(1, 4, 3, 3)), (3, 1, 1), False),
    ],
)
def test_scales_fold_along_output_channels_only(
    layer: Callable[..., relay.Expr], scale_shape: tuple[int, ...], expected: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = relay.var("x", shape=(1, 4, 8, 8))
    linear = layer(x, lambda *shape: random_constant(rng, *shape))
    body = relay.multiply(random_constant(rng, *scale_shape), relay.add(linear, constant(0.5)))
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    after = canonical([x], body)
    assert ("multiply" not in operators(after)) == expected
    data = rng.standard_normal((1, 4, 8, 8)).astype("float32")
    np.testing.assert_allclose(evaluate(after, data), evaluate(mod, data), rtol=1e-4, atol=1e-4)


def test_scale_stays_if_the_unscaled_result_is_used() -> None:
    x = relay.var("x", shape=(1, 8))
    linear = relay.nn.dense(x, constant(np.ones((4, 8))))
    after = canonical([x], relay.Tuple([linear, relay.multiply(linear, constant(3.0))]))
    assert operators(after) == {"nn.dense": 1, "multiply": 1}


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_scale_stays_if_weights_would_leave_the_normal_range(scale: float) -> None:
    x = relay.var("x", shape=(1, 8))
    weights = constant(np.full((4, 8), scale * 10 if scale > 1 else scale / 10))
    after = canonical([x], relay.multiply(relay.nn.dense(x, weights), constant(scale)))
    assert operators(after) == {"nn.dense": 1, "multiply": 1}


def squeeze_excite(rng: np.random.Generator, x: relay.Var) -> relay.Expr:
    def conv(data: relay.Expr, out: int, channels: int) -> relay.Expr:
        return relay.nn.conv2d(data, random_constant(rng, out, channels, 1, 1))

    y = conv(x, 8, 8)
    gate = conv(relay.nn.relu(conv(relay.nn.global_avg_pool2d(y), 2, 8)), 8, 2)
    gate = relay.clip(relay.add(relay.divide(gate, constant(6.0)), constant(0.5)), 0.0, 1.0)
    return conv(relay.multiply(y, gate), 8, 8)


def test_squeeze_excite_keeps_constant_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = relay.var("x", shape=(1, 8, 6, 6))
    body = squeeze_excite(rng, x)
    after = canonical([x], body)
    weights: list[relay.Expr] = []
    relay.analysis.post_order_visit(
        after["main"],
        lambda e: (
            weights.append(e.args[1]) if isinstance(e, relay.Call) and e.op.name == "nn.conv2d" else None
        ),
    )
    assert len(weights) == 4 and all(isinstance(w, relay.Constant) for w in weights)
    data = rng.standard_normal((1, 8, 6, 6)).astype("float32")
    mod = tvm.IRModule.from_expr(relay.Function([x], body))
    np.testing.assert_allclose(evaluate(after, data), evaluate(mod, data), rtol=1e-5, atol=1e-5)


def test_folding_scales_changes_nothing_twice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = relay.var("x", shape=(1, 8, 6, 6))
    once = canonical([x], relay.nn.bias_add(squeeze_excite(rng, x), constant(np.ones(8))))
    tvm.ir.assert_structural_equal(Canonicalize()(once), once, map_free_vars=True)
