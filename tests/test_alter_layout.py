"""Layout alteration: stock Relay's anchors and layouts, weights packed, and no failure on stock's bugs."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.backend import te_compiler
from tvm_dnnfusion.passes import layout_choice
from tvm_dnnfusion.passes.alter_layout import AlterLayout
from tvm_dnnfusion.passes.canonicalize import Canonicalize

from tvm_dnnfusion.errors import TargetError

TARGET = "llvm -mcpu=core-avx2"
ARM = "llvm -mtriple=aarch64-linux-gnu -device=arm_cpu -mcpu=cortex-a76"


def constant(value: object) -> relay.Constant:
    return relay.Constant(tvm.nd.array(np.asarray(value, "float32")))


def operators(mod: tvm.IRModule, function: str = "main") -> dict[str, int]:
    """How often each operator is called in one function."""
    alone = tvm.IRModule.from_expr(mod[function])
    return {str(name): int(count) for name, count in relay.analysis.list_op_freqs(alone).items()}


def evaluate(mod: tvm.IRModule, *feeds: np.ndarray) -> np.ndarray:
    with tvm.transform.PassContext(opt_level=0):
        return relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(*feeds).numpy()


def network(rng: np.random.Generator) -> tvm.IRModule:
    """Three convolutions, one depthwise, with a residual connection, and a dense layer."""
    x = relay.var("x", shape=(1, 3, 16, 16))

    def conv(data: relay.Expr, *shape: int, **attrs: object) -> relay.Expr:
        kernel = constant(rng.standard_normal(shape) * 0.2)
        biased = relay.nn.bias_add(
            relay.nn.conv2d(data, kernel, **attrs), constant(rng.standard_normal(shape[0]))
        )
        return relay.nn.relu(biased)

    first = conv(x, 16, 3, 3, 3, padding=(1, 1))
    second = conv(first, 16, 1, 3, 3, padding=(1, 1), groups=16)
    third = relay.add(conv(second, 16, 16, 1, 1), first)
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(third))
    body = relay.nn.dense(flat, constant(rng.standard_normal((32, 16))))
    return Canonicalize()(tvm.IRModule.from_expr(relay.Function([x], body)))


def stock(mod: tvm.IRModule, target: str) -> tvm.IRModule:
    prefix = tvm.get_global_func("relay.backend.GetPassPrefixSeq")(True, False)
    with tvm.target.Target(target), tvm.transform.PassContext(opt_level=3):
        return prefix(mod)


@pytest.mark.parametrize("target", [TARGET, ARM])
def test_layout_has_the_operators_of_stock_relay(target: str, seed: int) -> None:
    mod = network(np.random.default_rng(seed))
    ours = operators(AlterLayout(target)(mod))
    assert ours == operators(stock(mod, target))
    assert "nn.conv2d" not in ours or target == ARM


def test_weights_are_packed_and_numbers_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mod = network(rng)
    after = AlterLayout(TARGET)(mod)
    packed: list[bool] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and expr.op.name.startswith("nn.contrib"):
            packed.append(isinstance(expr.args[1], relay.Constant))

    relay.analysis.post_order_visit(after["main"], visit)
    assert packed == [True] * 4
    data = rng.standard_normal((1, 3, 16, 16)).astype("float32")
    np.testing.assert_allclose(evaluate(after, data), evaluate(mod, data), rtol=1e-4, atol=1e-4)


def test_layout_is_altered_at_any_optimisation_level(seed: int) -> None:
    mod = network(np.random.default_rng(seed))
    with tvm.transform.PassContext(opt_level=0):
        low = AlterLayout(TARGET)(mod)
    assert operators(low) == operators(AlterLayout(TARGET)(mod))


def test_layout_honours_the_callers_context(seed: int) -> None:
    mod = network(np.random.default_rng(seed))
    with tvm.transform.PassContext(disabled_pass=["AlterOpLayout"]):
        assert operators(AlterLayout(TARGET)(mod))["nn.conv2d"] == 3
    with tvm.transform.PassContext(config={"relay.backend.use_auto_scheduler": True}):
        tuned = AlterLayout(TARGET)(mod)
    with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
        prefix = tvm.get_global_func("relay.backend.GetPassPrefixSeq")(True, False)
        with tvm.target.Target(TARGET):
            expected = prefix(mod)
    assert operators(tuned) == operators(expected)


@pytest.mark.parametrize(("padding", "stride"), [(1, 1), (3, 2)])
def test_layout_of_convolution_and_squeezed_channel(padding: int, stride: int) -> None:
    x = relay.var("x", shape=(2, 2, 1, 1))
    conv = relay.nn.conv2d(
        x, constant(np.ones((1, 2, 3, 1))), strides=(stride, stride), padding=[padding] * 4
    )
    mod = Canonicalize()(tvm.IRModule.from_expr(relay.Function([x], relay.squeeze(conv, axis=[1]))))
    alter = AlterLayout(TARGET)
    after = alter(mod)
    assert operators(after)["nn.contrib_conv2d_NCHWc"] == 1
    assert not alter.refusals
    data = np.ones((2, 2, 1, 1), "float32")
    result = evaluate(after, data)
    assert result.any() == (stride == 1)
    np.testing.assert_array_equal(result, evaluate(mod, data))


def test_layout_refuses_only_the_function_that_fails(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A layout rule that raises for one kernel size, in a function of its own."""
    mod = network(np.random.default_rng(seed))
    y = relay.var("y", shape=(1, 4, 8, 8))
    odd = relay.nn.conv2d(y, constant(np.ones((4, 2, 5, 5))), kernel_size=(5, 5), channels=4, groups=2)
    mod[relay.GlobalVar("other")] = relay.Function([y], odd)
    rule = tvm.topi.nn.conv2d_alter_layout

    def failing(attrs: tvm.ir.Attrs, *rest: object) -> object:
        if int(attrs.kernel_size[0]) == 5:
            raise tvm.TVMError("no layout for 5x5")
        return rule(attrs, *rest)

    monkeypatch.setattr(tvm.topi.nn, "conv2d_alter_layout", failing)
    alter = AlterLayout(TARGET)
    after = alter(mod)
    assert list(alter.refusals) == ["other"] and "5x5" in alter.refusals["other"]
    assert operators(after, "other") == {"nn.conv2d": 1}
    assert "nn.conv2d" not in operators(after)
    assert after["other"].attrs is None or "SkipOptimization" not in after["other"].attrs


def test_equal_layers_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers, for which no formula gives the layout."""
    x = relay.var("x", shape=(4, 16), dtype="int32")
    body: relay.Expr = x
    for _ in range(5):
        body = relay.nn.dense(body, relay.const(np.ones((16, 16), "int32")), out_dtype="int32")
    body = relay.nn.dense(body, relay.const(np.ones((8, 16), "int32")), out_dtype="int32")
    select, workloads = te_compiler.select_implementation, []

    def counting(op: tvm.ir.Op, *rest: object) -> object:
        workloads.append(op.name)
        return select(op, *rest)

    monkeypatch.setattr(te_compiler, "select_implementation", counting)
    after = AlterLayout(TARGET)(tvm.IRModule.from_expr(relay.Function([x], body)))
    assert operators(after)["nn.contrib_dense_pack"] == 6
    assert workloads == ["nn.dense"] * 2
    assert te_compiler.select_implementation is counting


@pytest.mark.parametrize("target", [TARGET, "llvm -mcpu=skylake-avx512", "llvm"])
def test_formulas_choose_what_topi_chooses(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Where no register tile decides: 26 columns are no multiple of a vector."""
    rng = np.random.default_rng(3)
    y = relay.var("y", shape=(1, 24, 9, 9))
    body = relay.nn.conv2d(y, constant(rng.random((32, 24, 3, 3))), strides=(2, 2), padding=(1, 1))
    body = relay.nn.conv2d(body, constant(rng.random((32, 1, 3, 3))), groups=32)
    body = relay.nn.conv2d(body, constant(rng.random((16, 32, 1, 1))))
    body = relay.nn.dense(relay.nn.batch_flatten(body), constant(rng.random((26, 144))))
    mod = Canonicalize()(tvm.IRModule.from_expr(relay.Function([y], body)))
    ours = AlterLayout(target)(mod)
    monkeypatch.setattr(layout_choice, "covers", lambda target: False)
    topis = AlterLayout(target)(mod)
    assert _layouts(ours) == _layouts(topis) and len(_layouts(ours)) == 4


def test_layers_that_share_weights_share_the_packed_ones() -> None:
    x, weights = relay.var("x", shape=(4, 16)), constant(np.ones((16, 16)))
    body = relay.nn.dense(relay.nn.relu(relay.nn.dense(x, weights)), weights)
    altered = AlterLayout(TARGET)(tvm.IRModule.from_expr(relay.Function([x], body)))
    found: set[relay.Expr] = set()

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and expr.op.name == "nn.contrib_dense_pack":
            found.add(expr.args[1])

    relay.analysis.post_order_visit(altered["main"], visit)
    assert operators(altered)["nn.contrib_dense_pack"] == 2 and len(found) == 1


def test_a_tensor_has_one_layout() -> None:
    """12 channels are written in blocks of 6, and read by a convolution whose output has blocks of 5."""
    y = relay.var("y", shape=(1, 16, 9, 9))
    body = relay.nn.conv2d(y, constant(np.ones((12, 16, 1, 1))))
    body = relay.nn.conv2d(body, constant(np.ones((10, 12, 1, 1))))
    altered = AlterLayout(TARGET)(Canonicalize()(tvm.IRModule.from_expr(relay.Function([y], body))))
    assert operators(altered)["layout_transform"] == 2


def _layouts(mod: tvm.IRModule) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and "contrib" in expr.op.name:
            names = ("data_layout", "kernel_layout", "out_layout", "weight_layout")
            found.append((expr.op.name, *(str(expr.attrs[n]) for n in names if n in expr.attrs.keys())))  # noqa: SIM118

    relay.analysis.post_order_visit(mod["main"], visit)
    return found


def test_altering_twice_changes_nothing(seed: int) -> None:
    once = AlterLayout(TARGET)(network(np.random.default_rng(seed)))
    assert operators(AlterLayout(TARGET)(once)) == operators(once)


def test_alter_layout_refuses_an_unknown_target() -> None:
    with pytest.raises(TargetError, match="accepted"):
        AlterLayout("abacus -beads=7")


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["squeezenet1_1", "mobilenet_v3_large", "tinybert"])
def test_layout_of_networks_needs_no_more_conversions_than_stock(name: str) -> None:
    materialize = pytest.importorskip("benchmarks.models.materialize")
    from tvm_dnnfusion.onnx_import import from_onnx

    mod, params = from_onnx(materialize.load(name))
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    ours = operators(AlterLayout(TARGET)(Canonicalize()(mod)))
    expected = operators(stock(mod, TARGET))
    anchors = ("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc", "nn.contrib_dense_pack")
    assert [ours.get(a) for a in anchors] == [expected.get(a) for a in anchors]
    assert ours.get("layout_transform", 0) <= expected.get("layout_transform", 0)
