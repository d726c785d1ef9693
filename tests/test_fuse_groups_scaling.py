"""Large graphs: the passes neither recurse over depth nor take more than near-linear time."""

from __future__ import annotations

import time
from collections.abc import Callable

import tvm
from tvm import relay
from tvm_dnnfusion.passes import FuseByMappingType, SealBlocks

from tvm_dnnfusion import DNNFusion
from tvm_dnnfusion.block_body import decode_body
from tvm_dnnfusion.block_operator import block_text, is_block
from tvm_dnnfusion.relay_graph import visit_order

# Four times the operators: linear time is 4 times as long, quadratic time 16 times.
GROWTH, MOST = 4, 8.0

Transform = Callable[[tvm.IRModule], tvm.IRModule]


def measured(transform: Transform, mod: tvm.IRModule) -> tuple[float, tvm.IRModule]:
    """Processor seconds of a transformation of a typed module, and its result."""
    mod = relay.transform.InferType()(mod)
    start = time.process_time()
    result = transform(mod)
    return time.process_time() - start, result


def fuse_and_seal(mod: tvm.IRModule) -> tvm.IRModule:
    """Plan, realise and seal."""
    return SealBlocks()(FuseByMappingType()(mod))


def operators_in(mod: tvm.IRModule) -> tuple[int, int]:
    """Calls of a sealed module, and the operators in them: blocks opened, none lost."""
    calls = [v.expr for v in visit_order(mod["main"].body) if isinstance(v.expr, relay.Call)]
    operators = sum(len(decode_body(block_text(c)).calls) if is_block(c) else 1 for c in calls)
    return len(calls), operators


def chain_of(length: int) -> tvm.IRModule:
    """One operator after another, of three kinds, so that no simplification shortens it."""
    x = relay.var("x", shape=(64,))
    y: relay.Expr = x
    for i in range(length):
        y = (relay.tanh, relay.negative, relay.sigmoid)[i % 3](y)
    return tvm.IRModule.from_expr(relay.Function([x], y))


def summed(level: list[relay.Expr]) -> relay.Expr:
    """The sum of a power of two of values, as a balanced tree."""
    while len(level) > 1:
        level = [relay.add(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def branches(count: int) -> tvm.IRModule:
    """Independent branches of two operators."""
    x = relay.var("x", shape=(16, 16))
    level = [relay.nn.relu(relay.multiply(x, relay.const(float(i)))) for i in range(count)]
    return tvm.IRModule.from_expr(relay.Function([x], summed(level)))


def consumers(count: int) -> tvm.IRModule:
    """One operator that all the others read."""
    x = relay.var("x", shape=(16, 16))
    y = relay.tanh(x)
    return tvm.IRModule.from_expr(
        relay.Function([x], summed([relay.add(y, relay.const(float(i))) for i in range(count)]))
    )


def test_chain_of_ten_thousand_operators_takes_linear_time() -> None:
    fusion = DNNFusion("llvm -mcpu=znver1")
    few, _ = measured(fusion, chain_of(10_000 // GROWTH))
    many, sealed = measured(fusion, chain_of(10_000))
    print(few, many)
    calls, operators = operators_in(sealed)
    assert operators == 10_000 and calls < 200
    assert many < MOST * few


def test_branches_summed_in_a_tree_take_linear_time() -> None:
    few, _ = measured(fuse_and_seal, branches(4_096 // GROWTH))
    many, sealed = measured(fuse_and_seal, branches(4_096))
    print(few, many)
    calls, operators = operators_in(sealed)
    assert operators == 2 * 4_096 + 4_095 and calls < operators / 10
    assert many < MOST * few


def test_one_operator_with_many_consumers_takes_linear_time() -> None:
    few, _ = measured(fuse_and_seal, consumers(4_096 // GROWTH))
    many, sealed = measured(fuse_and_seal, consumers(4_096))
    print(few, many)
    assert operators_in(sealed)[1] == 1 + 4_096 + 4_095
    assert many < MOST * few
