"""Cases about what surrounds fusion: layouts, dynamic shapes, dtypes, aliasing, concatenation, time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.graph_executor import GraphModule

import tvm_dnnfusion as D

from .oracles import (
    F32,
    assert_close,
    check,
    check_dynamic,
    module,
    random,
    var,
    verified,
)

# F11, apache/tvm#10528: stock AlterOpLayout fails on a squeeze of the channels at level 3; ours must compile.


@pytest.mark.parametrize("padding", [3, 1])
def test_f11_squeeze_of_channels(padding: int) -> None:
    x, w = np.ones((2, 2, 1, 1), F32), np.ones((1, 2, 3, 1), F32)
    conv = relay.nn.conv2d(var("x", 2, 2, 1, 1), relay.const(w), strides=(2, 2), padding=(padding,) * 4)
    mod = module(relay.squeeze(conv, axis=[1]))
    padded = np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    size = padded.shape[2]
    rows, columns = range(0, size - 2, 2), range(0, size, 2)
    expected = [[[padded[n, :, r : r + 3, c].sum() for c in columns] for r in rows] for n in range(2)]
    check(mod, {"x": x}, [np.array(expected, F32)])
    if padding == 3:
        assert np.array(expected).shape == (2, 3, 4) and not np.any(expected)


# F13, apache/tvm PR#6396, PR#6906: dynamic shapes beside fusion.


def test_f13_concatenate_of_dynamic_reshapes(rng: np.random.Generator) -> None:
    unknown = relay.Any()
    d0, d1 = (relay.var(n, shape=(unknown, unknown)) for n in ("d0", "d1"))
    s0, s1 = (relay.var(n, shape=(unknown,) * 3) for n in ("s0", "s1"))
    parts = [relay.reshape_like(d0, s0), relay.reshape_like(d1, s1)]
    shapes = {"d0": (2, 6), "d1": (4, 3), "s0": (2, 3, 2), "s1": (2, 3, 2)}
    feeds = {k: random(rng, *s) for k, s in shapes.items()}
    expected = np.concatenate([feeds["d0"].reshape(2, 3, 2), feeds["d1"].reshape(2, 3, 2)])
    check_dynamic(module(relay.concatenate(parts, axis=0), [d0, d1, s0, s1]), feeds, [expected])


def test_f13_take_of_a_dynamic_slice(rng: np.random.Generator) -> None:
    """The slice starts behind the end: TVM clamps its start to the last row, and ours must agree with it."""
    x = relay.var("x", shape=(relay.Any(), relay.Any(), 4))
    i = relay.var("i", shape=(relay.Any(),), dtype="int64")
    rows = relay.strided_slice(relay.squeeze(x, [0]), [0, 0], [15130, 2147483647])
    feeds = {"x": random(rng, 1, 2, 4), "i": np.array([0], np.int64)}
    check_dynamic(module(relay.take(rows, i, axis=0), [x, i]), feeds, [feeds["x"][0, :1]])


# F15, apache/tvm#13045, #13031, #13029: int64 extents change the dtype of indices.


@pytest.mark.parametrize("reduce", [relay.argmin, relay.argmax], ids=["argmin", "argmax"])
def test_f15_index_dtype_behind_an_int64_shape(reduce: Callable) -> None:
    wide = relay.const(np.array([2], np.int64))
    mod = module(reduce(relay.broadcast_to(relay.squeeze(var("i0", 1, 2, dtype="int32"), [0]), wide), 0))
    assert mod["main"].checked_type.ret_type.dtype == "int32"
    check(mod, {"i0": np.array([[7, 3]], np.int32)}, [np.int32(1 if reduce is relay.argmin else 0)])


def test_f15_index_beside_its_operand() -> None:
    i0 = var("i0", 2, 1, dtype="float64")
    b = relay.broadcast_to(i0, relay.const(np.array([2, 1], np.int64)))
    data = np.array([[1.0], [5.0]])
    check(module([b, relay.argmax(b, axis=[0])]), {"i0": data}, [data, np.array([1], np.int32)], vm=True)


# F17, apache/tvm#9448, PR#17152, #14978: reshapes without a kernel, and outputs that are inputs.

TWICE = relay.const(np.eye(4, dtype=F32) * 2)
ALIASING: dict[str, tuple[tuple[int, ...], Callable, Callable]] = {
    "reshape": ((1, 512, 1, 1), lambda x: [relay.reshape(x, (1, 512))], lambda x: [x.reshape(1, 512)]),
    "input": ((4,), lambda x: [x, x + relay.const(1.0)], lambda x: [x, x + F32(1)]),
    "transpose": (
        (3, 4),
        lambda x: [relay.reshape(relay.transpose(x), (2, 6)), relay.reshape(x, (12,))],
        lambda x: [x.T.reshape(2, 6), x.reshape(12)],
    ),
    "matmul": (
        (2, 8),
        lambda x: [relay.reshape(relay.nn.matmul(relay.reshape(x, (4, 4)), TWICE), (16,))],
        lambda x: [2 * x.reshape(16)],
    ),
}


@pytest.mark.parametrize("zero_copy", [False, True], ids=["copied", "zero-copy"])
@pytest.mark.parametrize("name", ALIASING)
def test_f17_runs_see_their_own_input(name: str, zero_copy: bool, rng: np.random.Generator) -> None:
    shape, build, reference = ALIASING[name]
    built = D.build(module(build(var("x", *shape))), "llvm", options=verified())
    executor = GraphModule(built.lib["default"](tvm.cpu()))
    for _ in range(2):
        data = random(rng, *shape)
        given = tvm.nd.array(data)
        if zero_copy:
            executor.set_input_zero_copy("x", given)
        else:
            executor.set_input("x", given)
        executor.run()
        found = [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
        assert_close(found, reference(data))
        np.testing.assert_array_equal(given.numpy(), data)


# F19, pytorch PR#180930, tvm#2183: concatenation fused with what makes its parts, not into a reduction.


def test_f19_upsampling_joins_concatenate(rng: np.random.Generator) -> None:
    x = var("x", 1, 16, 64, 64)
    pooled = relay.nn.max_pool2d(x, (2, 2), strides=(2, 2))
    mod = module(relay.concatenate([relay.nn.upsampling(pooled, 2, 2), x], axis=1))
    data = random(rng, 1, 16, 64, 64)
    small = data.reshape(1, 16, 32, 2, 32, 2).max((3, 5))
    built = check(mod, {"x": data}, [np.concatenate([small.repeat(2, 2).repeat(2, 3), data], axis=1)])
    assert built.count.kernels <= 2


def test_f19_concatenate_is_stored_before_a_reduction(rng: np.random.Generator) -> None:
    """Each part is read once; three stages read the whole, so inlining would read it thrice."""
    sizes = [3, 5, 16, 7, 1, 32, 9, 23]
    feeds = {f"x{i}": random(rng, 1, n) for i, n in enumerate(sizes)}
    whole = relay.concatenate([var(k, *v.shape) for k, v in feeds.items()], axis=1)
    gamma, beta = random(rng, sum(sizes)), random(rng, sum(sizes))
    mod = module(relay.nn.layer_norm(whole, relay.const(gamma), relay.const(beta)))
    x = np.concatenate(list(feeds.values()), axis=1)
    expected = (x - x.mean()) / np.sqrt(x.var() + F32(1e-5)) * gamma + beta
    check(mod, feeds, [expected], 1e-4, 1e-5)
    assert set(reads_per_input(mod, set(sizes)).values()) == {1}


def reads_per_input(mod: tvm.IRModule, sizes: set[int]) -> dict[int, int]:
    """How many loads the kernels make, as code, of each (1, n) parameter with n in ``sizes``."""
    found: dict[int, int] = dict.fromkeys(sizes, 0)

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def look(function: tvm.tir.PrimFunc, mod: tvm.IRModule, ctx: object) -> tvm.tir.PrimFunc:
        inputs = {b.data.handle.value: int(b.shape[-1]) for b in function.buffer_map.values()}

        def visit(node: tvm.runtime.Object) -> None:
            if isinstance(node, tvm.tir.BufferLoad):
                size = inputs.get(node.buffer.data.handle.value)
                if size in found:
                    found[size] += 1

        tvm.tir.stmt_functor.post_order_visit(function.body, visit)
        return function

    fused = D.DNNFusion("llvm")(mod)
    with tvm.transform.PassContext(opt_level=3, config={"tir.add_lower_pass": [(1, look)]}):
        relay.build(fused, "llvm")
    return found


# F21, pytorch#154652: a search that is quadratic in the branches.


def balanced_sum(terms: list[relay.Expr]) -> relay.Expr:
    while len(terms) > 1:
        pairs = [relay.add(*terms[i : i + 2]) for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0]


def branches(count: int) -> tvm.IRModule:
    xs = [var(f"x{i}", 8) for i in range(count)]
    return module(balanced_sum([relay.nn.relu(x) for x in xs]), xs)


def one_producer(count: int) -> tvm.IRModule:
    e = relay.exp(var("x", 8))
    return module(balanced_sum([relay.add(e, relay.const(float(i))) for i in range(count)]))


@pytest.mark.parametrize(
    "counts", [(200, 800), pytest.param((750, 1500, 3000), marks=pytest.mark.zoo)], ids=["short", "full"]
)
@pytest.mark.parametrize("graph", [branches, one_producer])
def test_f21_time_is_not_quadratic(graph: Callable[[int], tvm.IRModule], counts: tuple[int, ...]) -> None:
    seconds = {}
    for count in counts:
        fusion = D.DNNFusion("llvm", options=D.Options(alter_layout=False))
        mod = graph(count)
        start = time.process_time()  # not the wall: other processes share the machine
        fusion(mod)
        seconds[count] = time.process_time() - start
    first, *_, last = seconds.values()
    assert last < 60
    assert last < 8 * first, seconds  # four times as many branches: linear is 4, quadratic 16


@pytest.mark.parametrize("graph", [branches, one_producer])
def test_f21_value_of_many_branches(graph: Callable[[int], tvm.IRModule], rng: np.random.Generator) -> None:
    mod = graph(24)
    feeds = {p.name_hint: random(rng, 8) for p in mod["main"].params}
    if graph is branches:
        expected = sum(np.maximum(v, 0) for v in feeds.values())
    else:
        expected = sum(np.exp(feeds["x"]) + F32(i) for i in range(24))
    check(mod, feeds, [expected.astype(F32)])
