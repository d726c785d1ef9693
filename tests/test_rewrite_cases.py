"""Cases from public bug reports about rewriting (numbers, dtypes, shapes): right in strict and relaxed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm_dnnfusion.passes.fold_constants import FoldConstants
from tvm_dnnfusion.passes.rewrite_properties import RewriteProperties

Build = Callable[..., relay.Expr]
INF, NAN = np.inf, np.nan


@dataclass(frozen=True)
class Case:
    """An expression of operands of ``dtype``, and its value in each mode.

    ``stock_errs``: TVM 0.19 itself drops a cast on the way; we must be no worse.
    ``folded``: LLVM refuses TVM's kernel of the original, so that both are evaluated by constant folding.
    """

    build: Build
    operands: tuple[object, ...]
    right: object
    dtype: str = "float32"
    rtol: float = 1e-6
    relaxed_too: bool = True
    stock_errs: bool = False
    folded: bool = False


def const(value: object, dtype: str = "float32") -> relay.Constant:
    return relay.Constant(tvm.nd.array(np.asarray(value, dtype)))


def binomial(a: float, b: float, c: float, dtype: str) -> Build:
    def build(x: relay.Expr, y: relay.Expr) -> relay.Expr:
        def term(factor: float, of: relay.Expr) -> relay.Expr:
            return of if factor == 1 else relay.multiply(const(factor, dtype), of)

        return term(a, x * x) + term(b, x * y) + term(c, y * y)

    return build


def squeeze_excite(y: relay.Expr, w: relay.Expr) -> relay.Expr:
    """R13: the scale of a product depends on what is scaled."""
    pooled = relay.nn.global_avg_pool2d(y)
    gate = relay.clip(
        relay.nn.conv2d(pooled, w, channels=8, kernel_size=(1, 1)) / const(6.0) + const(0.5), 0, 1
    )
    return relay.nn.conv2d(relay.multiply(y, gate), w, channels=8, kernel_size=(1, 1))


def softmax_times(scale: float) -> Build:
    return lambda x: relay.nn.softmax(relay.multiply(x, const(scale)))


def cast_chain(*dtypes: str) -> Build:
    def build(x: relay.Expr) -> relay.Expr:
        for dtype in dtypes:
            x = relay.cast(x, dtype)
        return x

    return build


I32, I64 = "int32", "int64"
A64, B64 = [8, -8, 7, -7], [-3, 3, -2, 2]
X123, Y456 = [1, 2, 3], [4, 5, 6]
R13_Y = np.linspace(-1, 1, 32).reshape(1, 8, 2, 2)
R13_W = np.linspace(-0.5, 0.5, 64).reshape(8, 8, 1, 1)


def r13_value() -> np.ndarray:
    w = R13_W[:, :, 0, 0]
    gate = np.clip(np.einsum("oi,i->o", w, R13_Y.mean((2, 3))[0]) / 6 + 0.5, 0, 1)
    return np.einsum("oi,nihw->nohw", w, R13_Y * gate[None, :, None, None])


CASES = {
    "r01a": Case(binomial(2, 5, 3, I32), ([1, 2, -3], [1, 5, 4]), [10, 133, 6], I32),
    "r01b": Case(binomial(1, 3, 1, I32), ([1, 2, -3], [1, 5, 4]), [5, 59, -11], I32),
    "r01c": Case(lambda x, y: x * x + const([2, 3, 4]) * (x * y) + y * y, (X123, Y456), [25, 59, 117]),
    "r03a": Case(lambda x: (x + const(1e30)) * const(1e10), (-1e30,), 0),
    "r03b": Case(lambda x: (x * const(1e-30)) * const(1e-30), ([1e38, 2e38],), [1e-22, 2e-22]),
    "r03c": Case(lambda x: (x * const(1e30)) * const(1e-30), (1e10,), INF, relaxed_too=False),
    "r03d": Case(lambda x: (x + const(3e38)) + const(-3e38), (1e38,), INF, relaxed_too=False),
    "r03e": Case(lambda x: (x + const(1000)) * const(1000.1), (-1000.0001,), -0.12208252, rtol=1e-4),
    "r05a": Case(lambda x: x * const(0.0), ([INF, NAN, 3, -INF],), [NAN, NAN, 0, NAN]),
    "r05b": Case(lambda x: x / const([0.0]), ([1, 0, -2],), [INF, NAN, -INF]),
    "r05c": Case(lambda x, z: x / z, ([1, 0, -2], [0]), [INF, NAN, -INF]),
    "r07a": Case(cast_chain("bool", I32), ([1, 2, -1, 256, 0],), [1, 1, 1, 1, 0], I64),
    "r07b": Case(cast_chain("uint32", "float32"), ([-1, 5, -(2**31)],), [2.0**32, 5, 2.0**31], I32, stock_errs=True),
    "r07b64": Case(cast_chain("uint32", I64), ([-1, 5, -(2**31)],), [2**32 - 1, 5, 2**31], I32, stock_errs=True),
    "r07c": Case(cast_chain("float32", I32), ([16777217, -16777217],), [16777216, -16777216], I32),
    "r07d": Case(cast_chain("float16", "float32"), ([2049, -2049],), [2048, -2048], "int16", stock_errs=True),
    "r07e": Case(cast_chain("float64", I64), (9007199254740993,), 9007199254740992, I64),
    "r09a": Case(lambda x: relay.log(relay.exp(x)), ([1, 88, 89, 100],), [1, 88, INF, INF]),
    "r09b": Case(lambda x: relay.sqrt(x * x), ([3, 1e19, -1e20],), [3, 1e19, INF], relaxed_too=True, rtol=1e-5),
    "r09c": Case(lambda a, b: relay.exp(a) * relay.exp(b), ([100, 1], [-50, 2]), [INF, 20.085537]),
    "r11a": Case(lambda x: const(1.0, "float64") / relay.sqrt(x), (3.0,), 0.5773502691896258, "float64", 3e-16),
    "r11b": Case(lambda a, b: a / relay.sqrt(b), ([0, 1, INF], [0, 0, INF]), [NAN, INF, NAN]),
    "r13": Case(squeeze_excite, (R13_Y, R13_W), r13_value(), rtol=1e-4),
    "r15a": Case(
        lambda x: relay.transpose(relay.transpose(relay.transpose(x, (0, 3, 1, 2)))),
        (np.arange(24).reshape(1, 2, 3, 4),),
        np.arange(24).reshape(1, 2, 3, 4).transpose(0, 3, 1, 2),
    ),
    "r15b": Case(
        lambda x: relay.transpose(x, (0, -1, 1)), (np.arange(24).reshape(2, 3, 4),),
        np.arange(24).reshape(2, 3, 4).transpose(0, 2, 1),
    ),
    "r17a": Case(
        lambda a: relay.nn.matmul(a, const(np.ones((3, 1)))) + const(2.0) * const([[1, 2, 3, 4]]),
        (np.arange(9).reshape(3, 3),), [[5, 7, 9, 11], [14, 16, 18, 20], [23, 25, 27, 29]],
    ),
    "r17b": Case(
        lambda a, b, c, d: relay.nn.matmul(a, b) + relay.nn.matmul(c, d),
        (np.ones((1, 2)), [[1, 2, 3], [4, 5, 6]], np.ones((4, 2)), np.ones((2, 3))), [[7, 9, 11]] * 4,
    ),
    "r19": Case(lambda a, b: relay.max(relay.concatenate([a, b], 0), 0), ([1, 5, 2], [4]), 5),
    "r19min": Case(lambda a, b: relay.min(relay.concatenate([a, b], 0), 0), ([1, 5, 2], [4]), 1),
    "r21a": Case(
        lambda t: relay.max(relay.strided_slice(t, [1], [4])) - relay.min(relay.strided_slice(t, [1], [3])),
        ([0, 1, 2, 3],), 2, I32,
    ),
    "r21b": Case(
        lambda a, b, w: a * (const(1.0) - w) + b * w, ([[1, 2], [3, 4]], [[5, 6], [7, 9]], [0.3]),
        [[2.2, 3.2], [4.2, 5.5]],
    ),
    "r23divide": Case(relay.divide, (A64, B64), [-2, -2, -3, -3], I64),
    "r23floor": Case(relay.floor_divide, (A64, B64), [-3, -3, -4, -4], I64, folded=True),
    "r23mod": Case(relay.mod, (A64, B64), [2, -2, 1, -1], I64),
    "r23floormod": Case(relay.floor_mod, (A64, B64), [-1, 1, -1, 1], I64, folded=True),
    "r23factor": Case(lambda a, b, c: a / c + b / c, ([7, 7], [7, -8], [2, 3]), [6, 0], I64),
    "r25": Case(
        lambda x: relay.sum(
            relay.cast(relay.concatenate([relay.negative(relay.abs(x)), relay.negative(relay.abs(x))], 0), I64)
        ),
        ([200, 200],), 224, "uint8",
    ),
    "n01a": Case(softmax_times(INF), ([[-1, 1, 2]],), [[NAN] * 3]),
    "n01b": Case(softmax_times(1e14), ([[-0.9, 0.75, 0.98, 0.31]],), [[0, 0, 1, 0]]),
    "n01c": Case(softmax_times(-1.7197e14), ([[0.5, -0.25, 0.125]],), [[0, 1, 0]]),
    "n01d": Case(softmax_times(0.0), ([[0.5, -0.25, 0.125]],), [[1 / 3] * 3]),
}  # fmt: skip


def evaluate(mod: tvm.IRModule, feeds: list[np.ndarray]) -> np.ndarray:
    # Stock SimplifyExpr, which runs at every level, gets some binomials wrong; and what shares subexpressions in
    # kernels makes debug information that recent LLVM refuses.
    config = {"tir.disable_cse_tir": True}
    with tvm.transform.PassContext(opt_level=0, disabled_pass=["SimplifyExpr"], config=config):
        return relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(*feeds).numpy()


def fold(mod: tvm.IRModule, feeds: list[np.ndarray]) -> np.ndarray:
    constants = [relay.Constant(tvm.nd.array(feed)) for feed in feeds]
    body = relay.bind(mod["main"].body, dict(zip(mod["main"].params, constants, strict=True)))
    return FoldConstants()(tvm.IRModule.from_expr(relay.Function([], body)))["main"].body.data.numpy()


@pytest.mark.parametrize("numerics", ["strict", "relaxed"])
@pytest.mark.parametrize("name", CASES)
def test_case_has_the_right_value(name: str, numerics: str) -> None:
    case = CASES[name]
    if numerics == "relaxed" and not case.relaxed_too:
        pytest.skip("the original overflows on the way: relaxed may do better")
    feeds = [np.asarray(value, case.dtype) for value in case.operands]
    parameters = [relay.var(f"x{i}", shape=f.shape, dtype=case.dtype) for i, f in enumerate(feeds)]
    function = relay.Function(parameters, case.build(*parameters))
    before = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    after = RewriteProperties(numerics)(before)
    tvm.ir.assert_structural_equal(after["main"].ret_type, before["main"].ret_type)
    value = fold(after, feeds) if case.folded else evaluate(after, feeds)
    right = evaluate(before, feeds) if case.stock_errs else np.asarray(case.right)
    np.testing.assert_allclose(value, right, rtol=case.rtol, atol=1e-30)
