"""Plans as nested functions: the structure before and after, control flow and dynamic parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relay
from tvm.runtime.vm import VirtualMachine
from tvm_dnnfusion.passes import FuseByMappingType, SealBlocks
from tvm_dnnfusion.passes.fuse_by_mapping_type import MAPPING_TYPE
from tvm_dnnfusion.passes.seal_blocks import is_group

from tvm_dnnfusion import DNNFusion
from tvm_dnnfusion.block_operator import is_block
from tvm_dnnfusion.relay_graph import visit_order

TARGET = "llvm -mcpu=znver1"
ONE = "One-to-One"


def typed(params: list[relay.Var], body: relay.Expr) -> tvm.IRModule:
    """A module of one typed function."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))


def group(mapping_type: str, args: list[relay.Expr], build: Callable[..., relay.Expr]) -> relay.Call:
    """A call of a group's function, as the pass is expected to make it."""
    params = [relay.var(f"p{i}", a.type_annotation) for i, a in enumerate(args)]
    function = relay.Function(params, build(*params)).with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return relay.Call(function.with_attr(MAPPING_TYPE, mapping_type), args)


def assert_fused(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    tvm.ir.assert_structural_equal(FuseByMappingType(verify=True)(before), expected, map_free_vars=True)


def groups_in(mod: tvm.IRModule) -> list[relay.Call]:
    return [v.expr for f in mod.functions.values() for v in visit_order(f.body) if is_group(v.expr)]


def test_chain_becomes_one_group() -> None:
    def chain(x: relay.Expr) -> relay.Expr:
        return relay.exp(relay.negative(relay.tanh(x)))

    x = relay.var("x", shape=(4, 16))
    assert_fused(typed([x], chain(x)), typed([x], group(ONE, [x], chain)))


def test_diamond_becomes_one_group_with_one_copy_of_each_operator() -> None:
    def diamond(x: relay.Expr) -> relay.Expr:
        y = relay.tanh(x)
        return relay.multiply(relay.exp(y), relay.negative(y))

    x = relay.var("x", shape=(4, 16))
    assert_fused(typed([x], diamond(x)), typed([x], group(ONE, [x], diamond)))


def test_scalar_constants_move_in_and_tensors_stay_out() -> None:
    x = relay.var("x", shape=(2, 3))
    table = relay.const(np.arange(3, dtype="float32"))
    before = typed([x], relay.tanh(relay.multiply(x, relay.const(2.0)) + table))
    (call,) = groups_in(FuseByMappingType()(before))
    assert [isinstance(a, relay.Constant) for a in call.args] == [False, True]
    inside = [v.expr for v in visit_order(call.op.body) if isinstance(v.expr, relay.Constant)]
    assert [c.data.shape for c in inside] == [()]


def test_split_and_concatenate_are_grouped_with_their_neighbours() -> None:
    def halves(x: relay.Expr) -> relay.Expr:
        parts = relay.split(relay.tanh(x), 2, axis=1)
        return relay.concatenate([parts[1], relay.exp(parts[0])], axis=1)

    x = relay.var("x", shape=(4, 16))
    fused = FuseByMappingType(verify=True)(typed([x], halves(x)))
    (call,) = groups_in(fused)
    names = [v.expr.op.name for v in visit_order(call.op.body) if isinstance(v.expr, relay.Call)]
    assert sorted(names) == ["concatenate", "exp", "split", "tanh"]
    assert_fused(typed([x], halves(x)), typed([x], group(str(call.op.attrs[MAPPING_TYPE]), [x], halves)))


def test_group_returns_what_others_read() -> None:
    """The function returns a tuple of exactly the values that leave the group."""
    x = relay.var("x", shape=(4, 16))

    def both(x: relay.Expr) -> relay.Expr:
        y = relay.tanh(x)
        return relay.Tuple([y, relay.exp(y)])

    before = typed([x], both(x))
    call = group(ONE, [x], both)
    expected = typed([x], relay.Tuple([relay.TupleGetItem(call, 0), relay.TupleGetItem(call, 1)]))
    assert_fused(before, expected)


def test_tuple_of_an_operator_that_leaves_whole_is_put_together_again() -> None:
    x = relay.var("x", shape=(4, 16))
    before = typed([x], relay.split(relay.tanh(x), 2, axis=1).astuple())
    fused = FuseByMappingType(verify=True)(before)
    assert tvm.ir.structural_equal(fused["main"].checked_type, before["main"].checked_type)
    assert len(groups_in(fused)) == 1


def test_single_operators_stay_as_they_are() -> None:
    x = relay.var("x", shape=(4, 16))
    before = typed([x], relay.tanh(x))
    assert_fused(before, before)


def test_second_run_changes_nothing() -> None:
    x = relay.var("x", shape=(4, 16))
    once = FuseByMappingType()(typed([x], relay.exp(relay.tanh(x))))
    tvm.ir.assert_structural_equal(FuseByMappingType()(once), once)


def test_spans_name_the_seed_and_each_operator() -> None:
    x = relay.var("x", shape=(4, 16))
    span = relay.Span(relay.SourceName("layer/exp"), 0, 0, 0, 0)
    y = relay.Call(relay.op.get("exp"), [relay.tanh(x)], span=span)
    (call,) = groups_in(FuseByMappingType()(typed([x], y)))
    inner = {v.expr.op.name: v.expr.span for v in visit_order(call.op.body) if isinstance(v.expr, relay.Call)}
    assert inner["exp"].source_name.name == "layer/exp"


def run_vm(mod: tvm.IRModule, *values: object) -> np.ndarray:
    with tvm.transform.PassContext(opt_level=3):
        machine = VirtualMachine(relay.vm.compile(mod, TARGET), tvm.cpu())
    return machine.invoke("main", *values).numpy()


def blocks_in(mod: tvm.IRModule) -> int:
    return sum(is_block(v.expr) for f in mod.functions.values() for v in visit_order(f.body))


def test_branches_that_use_values_of_groups(rng: np.random.Generator) -> None:
    x, flag = relay.var("x", shape=(4, 16)), relay.var("flag", shape=(), dtype="bool")
    y = relay.tanh(relay.exp(relay.negative(x)))
    branch = relay.If(flag, relay.exp(relay.add(y, x)), relay.multiply(y, y))
    mod = typed([x, flag], relay.negative(relay.add(branch, y)))
    sealed = DNNFusion(TARGET)(mod)
    assert blocks_in(sealed) >= 2
    value = rng.standard_normal((4, 16)).astype("float32")
    y_ = np.tanh(np.exp(-value))
    for taken, expected in ((True, np.exp(y_ + value)), (False, y_ * y_)):
        np.testing.assert_allclose(run_vm(sealed, value, np.array(taken)), -(expected + y_), rtol=1e-5)


def test_closure_bound_by_let_that_captures_a_value_of_a_group(rng: np.random.Generator) -> None:
    x, z = relay.var("x", shape=(4, 16)), relay.var("z", shape=(4, 16))
    y = relay.tanh(relay.exp(relay.negative(x)))
    closure, bound = relay.var("closure"), relay.var("bound")
    function = relay.Function([z], relay.exp(relay.multiply(relay.add(z, y), z)))
    twice = relay.add(relay.Call(closure, [bound]), relay.Call(closure, [x]))
    body = relay.Let(closure, function, relay.Let(bound, relay.negative(y), twice))
    sealed = DNNFusion(TARGET)(typed([x], body))
    value = rng.standard_normal((4, 16)).astype("float32")
    y_ = np.tanh(np.exp(-value))
    expected = np.exp((-y_ + y_) * -y_) + np.exp((value + y_) * value)
    np.testing.assert_allclose(run_vm(sealed, value), expected, rtol=1e-5)


def test_dynamic_parts_stay_and_static_parts_around_them_fuse(rng: np.random.Generator) -> None:
    x = relay.var("x", shape=(relay.Any(), 16))
    table = relay.var("table", shape=(16,))
    scale = relay.sqrt(relay.add(relay.exp(table), relay.const(1.0)))
    mod = typed([x, table], relay.tanh(relay.multiply(x, scale)))
    sealed = DNNFusion(TARGET)(mod)
    assert blocks_in(sealed) == 1
    left = [v.expr.op.name for v in visit_order(sealed["main"].body) if isinstance(v.expr, relay.Call)]
    assert left[-2:] == ["multiply", "tanh"]
    values = [rng.standard_normal(s).astype("float32") for s in ((3, 16), (16,))]
    expected = np.tanh(values[0] * np.sqrt(np.exp(values[1]) + 1))
    np.testing.assert_allclose(run_vm(sealed, *values), expected, rtol=1e-5)


def test_wholly_dynamic_function_is_left_untouched() -> None:
    x = relay.var("x", shape=(relay.Any(), 16))
    before = typed([x], relay.exp(relay.tanh(x)))
    assert_fused(before, before)


def test_functions_of_other_compilers_are_left_untouched() -> None:
    x, p = relay.var("x", shape=(4, 16)), relay.var("p", shape=(4, 16))
    foreign = relay.Function([p], relay.exp(relay.tanh(p))).with_attr("Compiler", "other")
    fused = FuseByMappingType()(typed([x], relay.Call(foreign, [relay.negative(relay.tanh(x))])))
    (call,) = groups_in(fused)
    names = {v.expr.op.name for v in visit_order(call.op.body) if isinstance(v.expr, relay.Call)}
    assert names == {"negative", "tanh"}


def test_deep_diamonds_are_planned_without_blowing_up() -> None:
    depth = 500
    x = relay.var("x", shape=(64,))
    y: relay.Expr = x
    for _ in range(depth):
        y = relay.add(relay.tanh(y), y)
    fused = SealBlocks()(FuseByMappingType()(typed([x], y)))
    assert 0 < blocks_in(fused) < depth
