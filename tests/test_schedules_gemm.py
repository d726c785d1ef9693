"""Blocks around matrix products: right for odd shapes, and in the loops that make them fast."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import autotvm, relay, te
from tvm.contrib import graph_executor
from tvm_dnnfusion.schedules import registry
from tvm_dnnfusion.schedules.gemm import gemm

import tvm_dnnfusion as dnnfusion
from tvm_dnnfusion.block_body import decode_body, encode_body
from tvm_dnnfusion.block_lowering import LoweredBlock, lower_body
from tvm_dnnfusion.block_operator import is_block

TARGET = tvm.target.Target("llvm -mcpu=core-avx2 -num-cores=2")
AVX512 = tvm.target.Target("llvm -mcpu=skylake-avx512")
NEON = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")
F32 = "float32"
Build = Callable[..., relay.Expr]
Shapes = Sequence[tuple[int, ...]]


def block_of(build: Build, shapes: Shapes, dtype: str, target: tvm.target.Target) -> LoweredBlock:
    """A group as the TE graph that schedules are given."""
    params = [relay.var(f"x{i}", shape=s, dtype=dtype) for i, s in enumerate(shapes)]
    function = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, build(*params))))
    inputs = [te.placeholder(s, dtype, f"x{i}") for i, s in enumerate(shapes)]
    with target:
        return lower_body(decode_body(encode_body(function["main"])), inputs, target)


def scheduled(build: Build, shapes: Shapes, dtype: str = F32, target: tvm.target.Target = TARGET) -> tuple:
    """The block and the schedule that claims it, which must be the one under test."""
    block = block_of(build, shapes, dtype, target)
    with target:
        name, schedule = registry.claim(block)
    assert name == "gemm"
    return block, schedule


def check(
    build: Build, reference: Callable, shapes: Shapes, rng: np.random.Generator, dtype: str = F32
) -> None:
    """One kernel against NumPy in double precision, to 1e-5 of the largest element."""
    block, schedule = scheduled(build, shapes, dtype)
    values = [rng.standard_normal(s).astype(dtype) for s in shapes]
    kernel = tvm.build(schedule, [*block.inputs, *block.outputs], TARGET)
    outputs = [tvm.nd.array(np.full([int(d) for d in t.shape], np.nan, dtype)) for t in block.outputs]
    kernel(*map(tvm.nd.array, values), *outputs)
    expected = reference(*(v.astype("float64") for v in values))
    for found, right in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-5, atol=1e-5 * np.abs(right).max())


def packed(x: relay.Expr, w: relay.Expr) -> relay.Expr:
    panel = int(w.type_annotation.shape[2])
    return relay.nn.contrib_dense_pack(x, w, f"NC{panel}n", None)


def packed_reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x @ w.transpose(0, 2, 1).reshape(-1, x.shape[1]).T


# Rows, columns, depth, panel: primes, ones, fewer rows than a tile, wide panels and several of them.
@pytest.mark.parametrize(
    ("m", "n", "k", "panel"),
    [(13, 24, 7, 24), (1, 48, 31, 16), (1, 8, 1, 8), (37, 80, 5, 40), (2, 64, 6, 64), (127, 48, 2, 24)],
)
def test_packed_weights(m: int, n: int, k: int, panel: int, rng: np.random.Generator) -> None:
    check(packed, packed_reference, [(m, k), (n // panel, k, panel)], rng)


def test_double_precision(rng: np.random.Generator) -> None:
    check(packed, packed_reference, [(7, 11), (2, 11, 12)], rng, "float64")


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("batch_b", "m", "n", "k"), [(3, 17, 24, 8), (1, 19, 40, 5)])
def test_batch_matmul(
    transpose_a: bool, transpose_b: bool, batch_b: int, m: int, n: int, k: int, rng: np.random.Generator
) -> None:
    shapes = [(3, k, m) if transpose_a else (3, m, k), (batch_b, n, k) if transpose_b else (batch_b, k, n)]
    check(
        lambda a, b: relay.nn.batch_matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b),
        lambda a, b: (a.swapaxes(1, 2) if transpose_a else a) @ (b.swapaxes(1, 2) if transpose_b else b),
        shapes,
        rng,
    )


@pytest.mark.parametrize("m", [1, 5, 17])
def test_operands_that_lie_in_rows(m: int, rng: np.random.Generator) -> None:
    check(relay.nn.matmul, np.matmul, [(m, 9), (9, 16)], rng)


def test_weights_that_are_inputs(rng: np.random.Generator) -> None:
    check(relay.nn.dense, lambda x, w: x @ w.T, [(19, 12), (32, 12)], rng)


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


TAILS: dict[str, tuple[Build, Callable, Shapes]] = {
    "bias, activation, residual": (
        lambda y, b, r: (y + b) * relay.erf(y + b) + r,
        lambda y, b, r: (y + b) * erf(y + b) + r,
        [(48,), (13, 48)],
    ),
    "split into heads": (
        lambda y, b: relay.transpose(relay.reshape(y + b, (1, 13, 3, 16)), (0, 2, 1, 3)),
        lambda y, b: (y + b).reshape(1, 13, 3, 16).transpose(0, 2, 1, 3),
        [(48,)],
    ),
    "columns cut off": (
        lambda y: relay.tanh(relay.strided_slice(y, [0, 0], [13, 43])),
        lambda y: np.tanh(y[:, :43]),
        [],
    ),
    "residual of another layout": (
        lambda y, r: relay.nn.relu(y) + relay.reshape(relay.exp(r), (13, 48)),
        lambda y, r: np.maximum(y, 0) + np.exp(r).reshape(13, 48),
        [(16, 39)],
    ),
    "row sums": (lambda y: relay.sum(relay.abs(y), 1), lambda y: np.abs(y).sum(1), []),
    "itself and more": (
        lambda y: relay.Tuple([y, relay.nn.relu(y)]),
        lambda y: (y, np.maximum(y, 0)),
        [],
    ),
    "one row to many": (
        lambda y, r: relay.nn.relu(y) + r,
        lambda y, r: np.maximum(y, 0) + r,
        [(2, 13, 48)],
    ),
}


@pytest.mark.parametrize("name", TAILS)
def test_tail(name: str, rng: np.random.Generator) -> None:
    tail, reference, shapes = TAILS[name]
    check(
        lambda x, w, *rest: tail(packed(x, w), *rest),
        lambda x, w, *rest: reference(packed_reference(x, w), *rest),
        [(13, 6), (2, 6, 24), *shapes],
        rng,
    )


def test_product_of_a_computed_operand(rng: np.random.Generator) -> None:
    check(
        lambda x, w, v: packed(relay.nn.relu(packed(relay.exp(x), w)), v),
        lambda x, w, v: packed_reference(np.maximum(packed_reference(np.exp(x), w), 0), v),
        [(5, 6), (2, 6, 8), (3, 16, 8)],
        rng,
    )


def test_sum_of_two_products(rng: np.random.Generator) -> None:
    """Both could take the addition into their tile; only one may."""
    check(
        lambda x, w, v: relay.tanh(packed(x, w) + packed(x, v)),
        lambda x, w, v: np.tanh(packed_reference(x, w) + packed_reference(x, v)),
        [(5, 6), (2, 6, 8), (2, 6, 8)],
        rng,
    )


def test_product_that_vectors_do_not_divide_beside_one_that_they_do(rng: np.random.Generator) -> None:
    check(
        lambda x, w, v: relay.nn.dense(relay.nn.relu(packed(x, w)), v),
        lambda x, w, v: np.maximum(packed_reference(x, w), 0) @ v.T,
        [(5, 6), (2, 6, 8), (3, 16)],
        rng,
    )


def test_attention(rng: np.random.Generator) -> None:
    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    check(
        lambda q, k, v: relay.nn.batch_matmul(
            relay.nn.softmax(relay.nn.batch_matmul(q, k)), v, transpose_b=False
        ),
        lambda q, k, v: softmax(q @ k.transpose(0, 2, 1)) @ v,
        [(2, 17, 8), (2, 24, 8), (2, 24, 16)],
        rng,
    )


@pytest.mark.parametrize(
    ("build", "shapes", "dtype"),
    [
        (relay.nn.dense, [(16, 8), (13, 8)], F32),  # no vector divides thirteen columns
        (relay.nn.batch_matmul, [(2, 3, 8), (2, 16, 8)], F32),  # packing would cost more than it saves
        (relay.nn.dense, [(16, 8), (16, 8)], "int32"),
        (lambda x, y: relay.nn.relu(x + y), [(16, 8), (16, 8)], F32),
    ],
)
def test_gemm_refuses(build: Build, shapes: Shapes, dtype: str) -> None:
    block = block_of(build, shapes, dtype, TARGET)
    with TARGET:
        assert gemm(block) is None


def test_gemm_refuses_tuned_operators() -> None:
    block = block_of(relay.nn.dense, [(16, 8), (32, 8)], F32, TARGET)
    workload = autotvm.task.get_workload(block.operators[0].outputs)
    task = autotvm.task.create("dense_pack.x86", workload[1:], TARGET)
    inputs = autotvm.MeasureInput(TARGET, task, task.config_space.get(0))
    record = (inputs, autotvm.MeasureResult([1e-3], 0, 0.1, 0))
    with TARGET, autotvm.apply_history_best([record]):
        assert gemm(block_of(relay.nn.dense, [(16, 8), (32, 8)], F32, TARGET)) is None


def assembly(target: tvm.target.Target, m: int, n: int, k: int, panel: int) -> str:
    block, schedule = scheduled(packed, [(m, k), (n // panel, k, panel)], target=target)
    return tvm.build(schedule, [*block.inputs, *block.outputs], target).get_source("asm")


@pytest.mark.parametrize(
    ("target", "panel", "multiply_add", "spilled"),
    [
        (TARGET, 24, r"vfmadd\d+ps\s.*ymm", "%rsp"),
        (AVX512, 32, r"vfmadd\d+ps\s.*zmm", "%rsp"),
        (NEON, 8, r"fmla\s+v", "[sp"),
    ],
)
def test_accumulators_stay_in_registers(
    target: tvm.target.Target, panel: int, multiply_add: str, spilled: str
) -> None:
    """The innermost loop multiplies and adds vectors, and stores nothing."""
    text = assembly(target, 128, 96, 512, panel)
    blocks = re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE)
    loop = max(blocks, key=lambda b: len(re.findall(multiply_add, b)))
    loop = loop[: loop.index("\tj" if target is not NEON else "\tb.")]
    assert len(re.findall(multiply_add, loop)) >= 8
    assert spilled not in loop


def one_dense(rng: np.random.Generator, columns: int) -> tvm.IRModule:
    weight = relay.const(rng.standard_normal((columns, 20)).astype(F32))
    return tvm.IRModule.from_expr(relay.nn.dense(relay.var("x", shape=(7, 20)), weight))


def test_lone_product_becomes_a_block(rng: np.random.Generator) -> None:
    mod = one_dense(rng, 72)
    result = dnnfusion.build(mod, TARGET)
    (call,) = [v for v in visits(result.mod) if isinstance(v, relay.Call)]
    assert is_block(call)
    assert list(call.args[1].checked_type.shape) == [3, 20, 24]
    assert result.count.kernels == sum(len(p.plan.groups) for p in result.trace.plans) == 1


def visits(mod: tvm.IRModule) -> list[relay.Expr]:
    found: list[relay.Expr] = []
    relay.analysis.post_order_visit(mod["main"], found.append)
    return found


def test_second_run_changes_nothing(rng: np.random.Generator) -> None:
    once = dnnfusion.DNNFusion(TARGET)(one_dense(rng, 72))
    tvm.ir.assert_structural_equal(dnnfusion.DNNFusion(TARGET)(once), once)


@pytest.mark.parametrize("columns", [72, 13, 1, 50])
def test_lone_product_computes(columns: int, rng: np.random.Generator) -> None:
    mod = one_dense(rng, columns)
    x = rng.standard_normal((7, 20)).astype(F32)
    module = graph_executor.GraphModule(dnnfusion.build(mod, TARGET).lib["default"](tvm.cpu()))
    module.run(x=x)
    (weight,) = [v.data.numpy() for v in visits(mod) if isinstance(v, relay.Constant)]
    np.testing.assert_allclose(module.get_output(0).numpy(), x @ weight.T, rtol=1e-5, atol=1e-5)
