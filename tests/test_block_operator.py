"""Block operators in TVM's own flows: every executor, saved and printed modules, and back to functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.backend import Executor, Runtime
from tvm.runtime.executor import AotModule
from tvm.runtime.vm import VirtualMachine
from tvm_dnnfusion.passes import Canonicalize, FuseByMappingType, SealBlocks

from tvm_dnnfusion import DNNFusion, Unseal
from tvm_dnnfusion.block_body import encode_body
from tvm_dnnfusion.block_operator import MAX_BLOCK_INPUTS, is_block, make_block
from tvm_dnnfusion.errors import BlockError

TARGET = "llvm -mcpu=znver1"
# Relay keeps six digits of these when it prints, and its equality of doubles is to 1e-9.
SCALE, SLOPE = 0.7071067811865476, 0.3000000000000000444


def typed(params: list[relay.Var], body: relay.Expr) -> tvm.IRModule:
    """A module of one typed function."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))


def one_output() -> tvm.IRModule:
    """Element-wise work with broadcasting: one block of one output."""
    x, b = relay.var("x", shape=(3, 17)), relay.var("b", shape=(17,))
    y = relay.nn.leaky_relu(relay.multiply(x + b, relay.const(SCALE)), SLOPE)
    return typed([x, b], relay.exp(relay.negative(y)))


def several_outputs() -> tvm.IRModule:
    """A split whose parts go different ways, of different shapes and types."""
    x, b = relay.var("x", shape=(3, 16)), relay.var("b", shape=(16,))
    parts = relay.split(relay.tanh(x + b), 2, axis=1)
    swapped = relay.concatenate([parts[1], relay.negative(parts[0])], axis=1)
    counted = relay.cast(relay.greater(parts[0], relay.const(0.0)), "int32")
    return typed([x, b], relay.Tuple([swapped, parts[0], counted]))


def convolution() -> tvm.IRModule:
    """A convolution with bias, activation, residual and pooling."""
    x, w = relay.var("x", shape=(1, 8, 7, 7)), relay.var("w", shape=(8, 8, 3, 3))
    b = relay.var("b", shape=(8, 1, 1))
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)) + b) + x
    return typed([x, w, b], relay.Tuple([y, relay.mean(y, axis=(2, 3))]))


MODULES = {"one output": one_output, "several outputs": several_outputs, "convolution": convolution}


def values_of(mod: tvm.IRModule, rng: np.random.Generator) -> list[np.ndarray]:
    """Random inputs of ``main``."""
    types = [p.checked_type for p in mod["main"].params]
    return [rng.standard_normal(tuple(int(d) for d in t.shape)).astype(t.dtype) for t in types]


def run_graph(mod: tvm.IRModule, values: list[np.ndarray], opt_level: int = 3) -> list[np.ndarray]:
    with tvm.transform.PassContext(opt_level=opt_level):
        module = graph_executor.GraphModule(relay.build(mod, TARGET)["default"](tvm.cpu()))
    for i, value in enumerate(values):
        module.set_input(i, value)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def run_vm(mod: tvm.IRModule, values: list[np.ndarray], opt_level: int = 3) -> list[np.ndarray]:
    with tvm.transform.PassContext(opt_level=opt_level):
        machine = VirtualMachine(relay.vm.compile(mod, TARGET), tvm.cpu())
    result = machine.invoke("main", *map(tvm.nd.array, values))
    return [r.numpy() for r in ([result] if isinstance(result, tvm.nd.NDArray) else result)]


def run_aot(mod: tvm.IRModule, values: list[np.ndarray], opt_level: int = 3) -> list[np.ndarray]:
    executor = Executor("aot", {"interface-api": "packed", "unpacked-api": False})
    with tvm.transform.PassContext(opt_level=opt_level):
        library = relay.build(mod, TARGET, executor=executor, runtime=Runtime("cpp"))
    directory = tvm.contrib.utils.tempdir()
    path = directory.relpath("aot.so")
    library.export_library(path)
    module = AotModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    for param, value in zip(mod["main"].params, values, strict=True):
        module.set_input(param.name_hint, value)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def blocks_in(mod: tvm.IRModule) -> list[relay.Call]:
    found: list[relay.Call] = []
    relay.analysis.post_order_visit(mod["main"], lambda e: found.append(e) if is_block(e) else None)
    return found


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert [(f.shape, f.dtype) for f in found] == [(e.shape, e.dtype) for e in expected]
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("run", [run_graph, run_vm, run_aot])
@pytest.mark.parametrize("name", MODULES)
def test_blocks_run_right_in_every_executor(name: str, run: object, rng: np.random.Generator) -> None:
    mod = MODULES[name]()
    sealed = DNNFusion(TARGET)(mod)
    assert blocks_in(sealed)
    values = values_of(mod, rng)
    assert_close(run(sealed, values), run_graph(mod, values, opt_level=0))


def test_aot_passes_each_tensor_of_a_tuple_to_the_block(rng: np.random.Generator) -> None:
    """Tuples around blocks: results of one as inputs of the next, in another order, and as outputs."""
    x, b = relay.var("x", shape=(3, 16)), relay.var("b", shape=(16,))
    parts = relay.split(relay.tanh(x + b), [4, 10], axis=1)
    first = typed([x, b], relay.Tuple([parts[2], parts[0], parts[1]]))["main"]
    block = make_block(encode_body(first), [x, b], "One-to-Many")
    fields = [relay.TupleGetItem(block, i) for i in range(3)]
    joined = relay.concatenate([fields[1], fields[2], fields[0]], axis=1)
    mod = typed([x, b], relay.Tuple([joined, fields[2], fields[0]]))
    values = values_of(mod, rng)
    y = np.tanh(values[0] + values[1])
    assert_close(run_aot(mod, values), [y, y[:, 4:10], y[:, 10:]])


def realised(mod: tvm.IRModule) -> tvm.IRModule:
    """Canonical module with its groups as primitive functions."""
    return FuseByMappingType()(Canonicalize()(mod))


def numbers_of(mod: tvm.IRModule) -> list[str]:
    """Floats in attributes and scalar constants of a module, to the bit."""
    found: list[str] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Constant):
            found.append(expr.data.numpy().tobytes().hex())
        elif isinstance(expr, relay.Call) and expr.attrs is not None and not is_block(expr):
            values = [expr.attrs[k] for k in expr.attrs.keys()]  # noqa: SIM118 (TVM's have no iterator)
            found.extend(float(v).hex() for v in values if isinstance(v, float))

    relay.analysis.post_order_visit(mod["main"], visit)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_unsealed_blocks_are_the_realised_groups(name: str) -> None:
    groups = realised(MODULES[name]())
    sealed = SealBlocks()(groups)
    assert blocks_in(sealed) and not blocks_in(groups)
    back = Unseal()(sealed)
    tvm.ir.assert_structural_equal(back, groups, map_free_vars=True)
    assert numbers_of(back) == numbers_of(groups)


def test_unsealing_keeps_every_digit() -> None:
    assert SLOPE.hex() in numbers_of(Unseal()(SealBlocks()(realised(one_output()))))
    assert np.float32(SCALE).tobytes().hex() in numbers_of(Unseal()(SealBlocks()(realised(one_output()))))


@pytest.mark.parametrize("name", MODULES)
def test_dnnfusion_twice_changes_nothing_more(name: str) -> None:
    once = DNNFusion(TARGET)(MODULES[name]())
    twice = DNNFusion(TARGET)(once)
    tvm.ir.assert_structural_equal(twice, once)
    assert [b.attrs["body"] for b in blocks_in(twice)] == [b.attrs["body"] for b in blocks_in(once)]


def test_blocks_survive_stock_passes() -> None:
    """What ``relay.build`` runs before lowering leaves the plan alone: layout changes and stock fusion."""
    sealed = DNNFusion(TARGET)(convolution())
    with tvm.transform.PassContext(opt_level=4):
        optimised, _ = relay.optimize(sealed, tvm.target.Target(TARGET))
    texts = [b.attrs["body"] for b in blocks_in(optimised)]
    assert texts == [b.attrs["body"] for b in blocks_in(sealed)]


LOAD_AND_RUN = """
import sys
import numpy as np
import tvm_dnnfusion
import tvm
from tvm import relay
from tvm.contrib import graph_executor

mod = tvm.ir.load_json(open(sys.argv[1]).read())
module = graph_executor.GraphModule(relay.build(mod, "llvm -mcpu=znver1")["default"](tvm.cpu()))
values = np.load(sys.argv[2])
for i, name in enumerate(values.files):
    module.set_input(i, values[name])
module.run()
np.savez(sys.argv[3], *[module.get_output(i).numpy() for i in range(module.get_num_outputs())])
"""


def test_saved_module_builds_in_another_process(tmp_path: Path, rng: np.random.Generator) -> None:
    mod = several_outputs()
    sealed = DNNFusion(TARGET)(mod)
    (tmp_path / "mod.json").write_text(tvm.ir.save_json(sealed))
    values = values_of(mod, rng)
    np.savez(tmp_path / "in.npz", *values)
    paths = [str(tmp_path / name) for name in ("mod.json", "in.npz", "out.npz")]
    command = [sys.executable, "-c", LOAD_AND_RUN, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "out.npz")
    assert_close([found[n] for n in found.files], run_graph(mod, values, opt_level=0))


@pytest.mark.parametrize("name", MODULES)
def test_printed_module_can_be_read_again(name: str, rng: np.random.Generator) -> None:
    """Relay's text keeps the bodies, since they are strings; read and printed twice they still unseal."""
    sealed = DNNFusion(TARGET)(MODULES[name]())
    assert "dnnfusion.block" in sealed.astext(show_meta_data=False)
    read = relay.fromtext(sealed.astext())
    again = relay.fromtext(read.astext())
    tvm.ir.assert_structural_equal(Unseal()(read), Unseal()(sealed), map_free_vars=True)
    tvm.ir.assert_structural_equal(Unseal()(again), Unseal()(sealed), map_free_vars=True)
    values = values_of(sealed, rng)
    assert_close(run_graph(again, values), run_graph(sealed, values))


def test_every_arity_is_registered() -> None:
    names = {n for n in tvm.ir.Op.list_op_names() if n.startswith("dnnfusion.block")}
    assert names == {f"dnnfusion.block{n}" for n in range(1, MAX_BLOCK_INPUTS + 1)}


def test_block_of_as_many_inputs_as_allowed(rng: np.random.Generator) -> None:
    params = [relay.var(f"x{i}", shape=(5,)) for i in range(MAX_BLOCK_INPUTS - 1)]
    total: relay.Expr = params[0]
    for param in params[1:]:
        total = total + param
    text = encode_body(typed(params, total)["main"])
    mod = typed(params, make_block(text, params, "One-to-One"))
    values = values_of(mod, rng)
    assert_close(run_graph(mod, values), [np.sum(values, axis=0)])


def test_make_block_refuses_too_many_inputs_and_none() -> None:
    x = relay.var("x", shape=(5,))
    for count in (0, MAX_BLOCK_INPUTS + 1):
        with pytest.raises(BlockError, match="1 to 128 are accepted"):
            make_block("", [x] * count, "One-to-One")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((5, 1), "float32"), ((6,), "float32"), ((5,), "float16"), ((relay.Any(),), "float32")],
)
def test_block_refuses_operands_of_other_types(shape: tuple[int, ...], dtype: str) -> None:
    x, other = relay.var("x", shape=(5,)), relay.var("y", shape=shape, dtype=dtype)
    block = make_block(encode_body(typed([x], relay.tanh(x))["main"]), [other], "One-to-One")
    with pytest.raises(BlockError, match=r"a block's input is .* but its body takes"):
        typed([other], block)


def test_block_refuses_another_number_of_operands() -> None:
    x, y = relay.var("x", shape=(5,)), relay.var("y", shape=(5,))
    block = make_block(encode_body(typed([x], relay.tanh(x))["main"]), [x, y], "One-to-One")
    with pytest.raises(BlockError, match="a block of 2 inputs has a body of 1"):
        typed([x, y], block)
