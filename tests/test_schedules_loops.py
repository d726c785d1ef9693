"""Loops of scheduled blocks: no recomputation without bound, threads for big ones; and who schedules them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import tvm
from tvm import relay, te, tir
from tvm_dnnfusion.schedules import block_schedule, registry

from tvm_dnnfusion.block_body import decode_body, encode_body
from tvm_dnnfusion.block_lowering import LoweredBlock, lower_body
from tvm_dnnfusion.errors import RegistrationError

TARGET = tvm.target.Target("llvm -mcpu=znver1")
F32 = "float32"
Build = Callable[..., relay.Expr]


def lowered(build: Build, types: Sequence[tuple[tuple[int, ...], str]]) -> LoweredBlock:
    """A group as the TE graph that schedules are given."""
    params = [relay.var(f"x{i}", shape=s, dtype=d) for i, (s, d) in enumerate(types)]
    result = build(*params)
    result = result.astuple() if isinstance(result, relay.expr.TupleWrapper) else result
    function = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, result)))["main"]
    inputs = [te.placeholder(s, d, f"x{i}") for i, (s, d) in enumerate(types)]
    with TARGET:
        return lower_body(decode_body(encode_body(function)), inputs, TARGET)


def lowered_tir(block: LoweredBlock, schedule: te.Schedule) -> tir.Stmt:
    """The kernel's loops."""
    return tvm.lower(schedule, [*block.inputs, *block.outputs])["main"].body


def run(block: LoweredBlock, schedule: te.Schedule, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs of one kernel."""
    kernel = tvm.build(schedule, [*block.inputs, *block.outputs], TARGET)
    outputs = [tvm.nd.empty(tuple(int(d) for d in t.shape), t.dtype) for t in block.outputs]
    kernel(*map(tvm.nd.array, values), *outputs)
    return [o.numpy() for o in outputs]


def scheduled(build: Build, types: list[tuple[tuple[int, ...], str]]) -> tuple[LoweredBlock, te.Schedule]:
    block = lowered(build, types)
    with TARGET:
        return block, registry.schedule_block(block)


def test_deep_diamonds_compile_in_seconds(rng: np.random.Generator) -> None:
    """Inlined through and through, the 40 stages would make an expression of 2**40 terms."""

    def diamonds(x: relay.Expr, c: relay.Expr) -> relay.Expr:
        for _ in range(40):
            x = x + x * c
        return x

    start = time.process_time()
    block, schedule = scheduled(diamonds, [((4, 32), F32), ((32,), F32)])
    x, c = rng.standard_normal((4, 32)).astype(F32), rng.uniform(-0.1, 0.1, 32).astype(F32)
    (found,) = run(block, schedule, [x, c])
    assert time.process_time() - start < 30
    np.testing.assert_allclose(found, x * (1 + c.astype("float64")) ** 40, rtol=1e-4)


def calls_of(body: tir.Stmt, name: str) -> int:
    """How often an intrinsic is evaluated, loops multiplied out."""
    total = 0
    stack: list[tuple[tir.Stmt, int]] = [(body, 1)]
    while stack:
        stmt, times = stack.pop()
        if isinstance(stmt, tir.For):
            stack.append((stmt.body, times * int(stmt.extent)))
        elif isinstance(stmt, tir.SeqStmt):
            stack += [(s, times) for s in stmt.seq]
        elif isinstance(stmt, tir.IfThenElse):
            stack += [(s, times) for s in (stmt.then_case, stmt.else_case) if s is not None]
        elif hasattr(stmt, "body"):
            stack.append((stmt.body, times))
        else:
            found: list[tir.Call] = []
            tir.stmt_functor.post_order_visit(
                stmt, lambda n, found=found: found.append(n) if isinstance(n, tir.Call) else None
            )
            lanes = [tvm.DataType(c.dtype).lanes for c in found if getattr(c.op, "name", "") == name]
            total += times * sum(lanes)
    return total


@pytest.mark.parametrize(
    ("consumer", "types"),
    [
        (lambda x: relay.nn.max_pool2d(relay.exp(x), (3, 3), padding=(1, 1)), [((1, 4, 16, 16), F32)]),
        (
            lambda x, w: relay.nn.conv2d(relay.exp(x), w, padding=(1, 1)),
            [((1, 4, 16, 16), F32), ((8, 4, 3, 3), F32)],
        ),
        (lambda x, w: relay.nn.dense(relay.exp(x), w), [((16, 64), F32), ((32, 64), F32)]),
        (lambda x: relay.nn.softmax(relay.exp(relay.exp(x))), [((16, 64), F32)]),
    ],
    ids=["pooling", "convolution", "dense", "softmax"],
)
def test_costly_prologue_is_computed_once_per_element(consumer: Build, types: list) -> None:
    block, schedule = scheduled(consumer, types)
    elements = int(np.prod(types[0][0]))
    found = calls_of(lowered_tir(block, schedule), "tir.dnnfusion_exp")  # vector_math's; softmax's own is not
    prologue = sum(operator.name == "exp" for operator in block.operators)
    assert found == prologue * elements


def loop_kinds(body: tir.Stmt) -> set[int]:
    kinds: set[int] = set()
    tir.stmt_functor.post_order_visit(
        body, lambda n: kinds.add(int(n.kind)) if isinstance(n, tir.For) else None
    )
    return kinds


def has_vectors(body: tir.Stmt) -> bool:
    found: list[bool] = []
    tir.stmt_functor.post_order_visit(body, lambda n: found.append(True) if isinstance(n, tir.Ramp) else None)
    return bool(found)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: relay.tanh(x) * x,
        lambda x: relay.sum(relay.tanh(x), 0),
        lambda x: relay.sum(relay.tanh(x), 1),
        lambda x: relay.nn.softmax(relay.tanh(x)),
    ],
    ids=["elementwise", "sum across", "sum along", "softmax"],
)
def test_big_groups_are_parallel_and_vectorised(build: Build) -> None:
    big = lowered_tir(*scheduled(build, [((256, 512), F32)]))
    assert tir.ForKind.PARALLEL in loop_kinds(big)
    assert has_vectors(big)


@pytest.mark.parametrize("build", [lambda x: relay.tanh(x) * x, lambda x: relay.sum(relay.tanh(x), 1)])
def test_tiny_groups_wake_no_thread(build: Build) -> None:
    assert tir.ForKind.PARALLEL not in loop_kinds(lowered_tir(*scheduled(build, [((4, 16), F32)])))


@pytest.fixture
def scratch_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry whose additions go away again."""
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    yield


def test_schedule_that_raises_is_logged_and_the_next_one_claims(
    scratch_registry: None, caplog: pytest.LogCaptureFixture, rng: np.random.Generator
) -> None:
    @block_schedule("broken", targets=("cpu",), priority=99)
    def broken(block: LoweredBlock) -> te.Schedule:
        raise IndexError("no such axis")

    with caplog.at_level(logging.WARNING, "tvm_dnnfusion"):
        block, schedule = scheduled(lambda x: relay.tanh(-x), [((3, 5), F32)])
    assert "block schedule broken failed on [negative, tanh]: no such axis" in caplog.text
    x = rng.standard_normal((3, 5)).astype(F32)
    np.testing.assert_allclose(run(block, schedule, [x])[0], np.tanh(-x), rtol=1e-5)


def test_schedule_from_outside_claims_what_it_knows(scratch_registry: None) -> None:
    @block_schedule("mine", targets=("llvm",), priority=99)
    def mine(block: LoweredBlock) -> te.Schedule | None:
        if [o.name for o in block.operators] != ["negative", "tanh"]:
            return None
        return te.create_schedule([t.op for t in block.outputs])

    known, other = (lowered(b, [((3, 5), F32)]) for b in (lambda x: relay.tanh(-x), lambda x: relay.exp(-x)))
    assert registry.claim(known)[0] == "mine"
    assert registry.claim(other)[0] != "mine"
    with pytest.raises(RegistrationError, match="'mine' is registered already"):
        block_schedule("mine", targets=("llvm",))(mine)
    block_schedule("mine", targets=("cuda",), override=True)(mine)
    assert registry.claim(known)[0] != "mine"


def test_target_without_a_schedule_is_named(scratch_registry: None) -> None:
    registry._REGISTRY.clear()
    block_schedule("elsewhere", targets=("cuda",))(lambda block: None)
    with pytest.raises(LookupError, match=r"no block schedule for target llvm .*; known kinds: cuda"):
        registry.claim(lowered(lambda x: relay.tanh(-x), [((3, 5), F32)]))
