"""What a case is checked against: the graph without our passes, other executors, and itself, changed.

The value itself comes from NumPy in each test. Everything here runs on this machine's CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relay

import tvm_dnnfusion as D
from tvm_dnnfusion.block_operator import is_block
from tvm_dnnfusion.ecg import ECG
from tvm_dnnfusion.fusion_legality import Limits
from tvm_dnnfusion.fusion_verify import kernel_arguments
from tvm_dnnfusion.pipeline import Trace, limits_of, phases
from tvm_dnnfusion.plan import Plan
from tvm_dnnfusion.relay_graph import visit_order
from tvm_dnnfusion.relay_to_ecg import tensor_infos
from tvm_dnnfusion.runner import runner_of
from tvm_dnnfusion.target import host_target

F32 = np.float32
Feeds = Mapping[str, np.ndarray]


def var(name: str, *shape: int, dtype: str = "float32") -> relay.Var:
    """A static input."""
    return relay.var(name, shape=shape, dtype=dtype)


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normally distributed float32 numbers."""
    return rng.normal(size=shape).astype(F32)


def module(
    outputs: relay.Expr | Sequence[relay.Expr], params: Sequence[relay.Var] | None = None
) -> tvm.IRModule:
    """A module that returns one expression, or a tuple of several."""
    body = outputs if isinstance(outputs, relay.Expr) else relay.Tuple(list(outputs))
    function = relay.Function(list(params or relay.analysis.free_vars(body)), body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def verified(**options: object) -> D.Options:
    """Options with every check of the pipeline on."""
    return D.Options(verify=True, **options)  # type: ignore[arg-type]


def run_fused(
    mod: tvm.IRModule, feeds: Feeds, executor: str = "auto", options: D.Options | None = None
) -> tuple[list[np.ndarray], D.BuildResult]:
    """Outputs through our passes, and what was built."""
    built = D.build(mod, host_target(), options=options or verified(), executor=executor)
    runner = runner_of(built.lib, built.target)
    runner.set_inputs(feeds)
    runner.run()
    return runner.outputs(), built


def run_plain(mod: tvm.IRModule, feeds: Feeds, dynamic: bool = False) -> list[np.ndarray]:
    """Outputs without our passes at the lowest level: 0, or 1 on the VM, which refuses 0.

    Quantised operators are written out first: TVM has no kernels for them and skips that below level 1.
    """
    target = host_target()
    with target, tvm.transform.PassContext(opt_level=3):
        mod = relay.qnn.transform.CanonicalizeOps()(mod)
    with tvm.transform.PassContext(opt_level=1 if dynamic else 0):
        lib = relay.vm.compile(mod, target) if dynamic else relay.build(mod, target)
    runner = runner_of(lib, target)
    runner.set_inputs(feeds)
    runner.run()
    return runner.outputs()


def check(
    mod: tvm.IRModule,
    feeds: Feeds,
    expected: Sequence[np.ndarray],
    rtol: float = 1e-5,
    atol: float = 1e-6,
    options: D.Options | None = None,
    vm: bool = False,
) -> D.BuildResult:
    """Every oracle for a static module, the VM on request; returns what was built for the graph executor."""
    options = options or verified()
    check_phases(mod, options)
    found, built = run_fused(mod, feeds, "graph", options)
    assert_close(found, expected, rtol, atol)
    assert_close(found, run_plain(mod, feeds), rtol, atol)
    if vm:
        on_vm, _ = run_fused(mod, feeds, "vm", options)
        assert_bit_equal(found, on_vm)
    return built


def check_dynamic(
    mod: tvm.IRModule, feeds: Feeds, expected: Sequence[np.ndarray], rtol: float = 1e-5
) -> None:
    """Every oracle for a module that only the VM runs."""
    check_phases(mod, verified())
    found, built = run_fused(mod, feeds)
    assert built.executor == "vm"
    assert_close(found, expected, rtol)
    assert_close(found, run_plain(mod, feeds, dynamic=True), rtol)


def check_phases(mod: tvm.IRModule, options: D.Options) -> tvm.IRModule:
    """Each phase keeps types and leaves no free variable; groups can run; a second run changes nothing."""
    target, trace = host_target(), Trace()
    result = mod["main"].checked_type.ret_type
    for name, phase in phases(target, options, trace):
        mod = relay.transform.InferType()(phase(mod))
        assert tvm.ir.structural_equal(mod["main"].checked_type.ret_type, result), name
        assert not relay.analysis.free_vars(mod["main"]), name
    limits = limits_of(target, options)
    for planned in trace.plans:
        check_plan(planned.graph.ecg, planned.plan, limits)
    assert max(block_arguments(mod), default=0) <= limits.max_arguments
    again = D.DNNFusion(target, options=options)(mod)
    assert tvm.ir.structural_equal(again, mod, map_free_vars=True), "a second run changed the module"
    return mod


def check_plan(ecg: ECG, plan: Plan, limits: Limits) -> None:
    """Groups can run in their order, so that no two wait for each other, and keep within the limits."""
    position = {node: i for i, group in enumerate(plan.groups) for node in group.nodes}
    for node in ecg.nodes:
        for value in node.inputs:
            assert position.get(value.node, -1) <= position.get(node.id, len(plan.groups))
    for group in plan.groups:
        if len(group.nodes) > 1:
            assert len(group.nodes) <= limits.max_operators
            assert kernel_arguments(ecg, group) <= limits.max_arguments


def block_arguments(mod: tvm.IRModule) -> list[int]:
    """Per block the parameters of its kernel: tensors read and written."""
    calls = [v.expr for v in visit_order(mod["main"].body) if is_block(v.expr)]
    return [len(call.args) + len(tensor_infos(call.checked_type) or ()) for call in calls]


def assert_close(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float = 1e-5, atol: float = 1e-6
) -> None:
    """Same number of outputs, shapes, dtypes; values within the tolerance, exact for integers."""
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        assert (f.shape, f.dtype) == (np.shape(e), np.asarray(e).dtype)
        if np.issubdtype(f.dtype, np.floating):
            np.testing.assert_allclose(f, e, rtol, atol)
        else:
            np.testing.assert_array_equal(f, e)


def assert_bit_equal(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Equal to the last bit, the signs of zeros and NaN included."""
    for f, e in zip(found, expected, strict=True):
        assert (f.shape, f.dtype) == (e.shape, e.dtype)
        assert f.tobytes() == e.tobytes(), f"{np.sum(f != e)} of {f.size} elements differ"


def assert_independent_of_outputs(
    params: Sequence[relay.Var], feeds: Feeds, output: relay.Expr, extras: Sequence[relay.Expr]
) -> None:
    """``output`` keeps every bit when each intermediate, and when all of them, are returned as well.

    Strictly: rewriting may round differently where an intermediate is needed by somebody else.
    """
    strict = verified(numerics="strict")
    (alone,), _ = run_fused(module(output, params), feeds, options=strict)
    for added in [*([e] for e in extras), *([list(extras)] if len(extras) > 1 else [])]:
        found, _ = run_fused(module([output, *added], params), feeds, options=strict)
        assert_bit_equal(found[:1], [alone])
