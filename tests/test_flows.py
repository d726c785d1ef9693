"""DNNFusion in front of TVM's own flows: builds at every level and executor, AutoTVM, the auto-scheduler."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import auto_scheduler, autotvm, relay
from tvm.auto_scheduler.measure_record import dump_record_to_string
from tvm.autotvm.measure import MeasureResult
from tvm.autotvm.record import encode
from tvm.contrib import graph_executor
from tvm.relay.backend import Executor, Runtime
from tvm.runtime.executor import AotModule
from tvm.runtime.vm import VirtualMachine

from tvm_dnnfusion import DNNFusion, Options
from tvm_dnnfusion.block_operator import is_block
from tvm_dnnfusion.relay_graph import visit_order

TARGET = tvm.target.Target("llvm -mcpu=znver1")


def typed(params: list[relay.Var], body: relay.Expr) -> tvm.IRModule:
    """A module of one typed function."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))


def network(rng: np.random.Generator) -> tuple[tvm.IRModule, dict[str, np.ndarray]]:
    """Convolution, batch norm, activation, pooling, dense; weights by name."""
    shapes = {"w": (16, 8, 3, 3), "gamma": (16,), "beta": (16,), "mean": (16,), "var": (16,), "fc": (10, 16)}
    params = {n: rng.uniform(0.1, 1.0, s).astype("float32") for n, s in shapes.items()}
    x = relay.var("x", shape=(1, 8, 8, 8))
    v = {n: relay.var(n, shape=s) for n, s in shapes.items()}
    y = relay.nn.conv2d(x, v["w"], padding=(1, 1), channels=16, kernel_size=(3, 3))
    y = relay.nn.relu(relay.nn.batch_norm(y, v["gamma"], v["beta"], v["mean"], v["var"])[0])
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    return typed([x, *v.values()], relay.nn.softmax(relay.nn.dense(y, v["fc"]))), params


def expected_of(x: np.ndarray, p: dict[str, np.ndarray]) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, p["w"])
    scale, shift, mean, var = (p[n][:, None, None] for n in ("gamma", "beta", "mean", "var"))
    y = np.maximum((y - mean) / np.sqrt(var + 1e-5) * scale + shift, 0).mean((2, 3))
    logits = y @ p["fc"].T
    e = np.exp(logits - logits.max())
    return e / e.sum()


def run_graph(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    module = graph_executor.GraphModule(relay.build(mod, TARGET)["default"](tvm.cpu()))
    module.run(**{mod["main"].params[0].name_hint: x})
    return module.get_output(0).numpy()


def run_vm(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    return VirtualMachine(relay.vm.compile(mod, TARGET), tvm.cpu()).invoke("main", x).numpy()


def run_aot(mod: tvm.IRModule, x: np.ndarray) -> np.ndarray:
    executor = Executor("aot", {"interface-api": "packed", "unpacked-api": False})
    library = relay.build(mod, TARGET, executor=executor, runtime=Runtime("cpp"))
    directory = tvm.contrib.utils.tempdir()  # it is removed with the object
    path = directory.relpath("aot.so")
    library.export_library(path)
    module = AotModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    module.set_input(mod["main"].params[0].name_hint, x)
    module.run()
    return module.get_output(0).numpy()


LEVELS = [(run, level) for run in (run_graph, run_vm, run_aot) for level in range(5)]
LEVELS.remove((run_vm, 0))


@pytest.mark.parametrize(("run", "opt_level"), LEVELS)
def test_pass_in_a_sequence_before_a_plain_build(
    run: Callable[[tvm.IRModule, np.ndarray], np.ndarray], opt_level: int, rng: np.random.Generator
) -> None:
    mod, params = network(rng)
    passes = tvm.transform.Sequential([relay.transform.InferType(), DNNFusion(TARGET, params)])
    x = rng.standard_normal((1, 8, 8, 8)).astype("float32")
    with tvm.transform.PassContext(opt_level=opt_level):
        fused = passes(mod)
        found = run(fused, x)
    assert any(is_block(v.expr) for v in visit_order(fused["main"].body))
    np.testing.assert_allclose(found, expected_of(x, params), rtol=1e-4, atol=1e-6)


def test_virtual_machine_at_level_0_refuses_as_it_does_without_blocks(rng: np.random.Generator) -> None:
    mod, params = network(rng)
    for module in (mod, DNNFusion(TARGET, params)(mod)):
        with (
            tvm.transform.PassContext(opt_level=0),
            pytest.raises(tvm.TVMError, match="set opt_level >= 1 in the pass context"),
        ):
            relay.vm.compile(module, TARGET)


def autotvm_tasks(mod: tvm.IRModule) -> dict[str, autotvm.task.Task]:
    return {t.name: t for t in autotvm.task.extract_from_program(mod["main"], target=TARGET, params={})}


def test_autotvm_still_sees_the_anchors_of_blocks(rng: np.random.Generator) -> None:
    mod, params = network(rng)
    found = autotvm_tasks(DNNFusion(TARGET, params)(mod))
    assert {"conv2d_NCHWc.x86"} <= set(found)
    assert any(name.startswith("dense") for name in found)


def lowered_kernels(mod: tvm.IRModule) -> str:
    """Source of the kernels, to see whether a schedule changed."""
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, TARGET).get_lib().get_source("ll")


def test_autotvm_record_changes_the_schedule_of_a_block(tmp_path: Path, rng: np.random.Generator) -> None:
    mod, params = network(rng)
    fused = DNNFusion(TARGET, params)(mod)
    task = autotvm_tasks(fused)["conv2d_NCHWc.x86"]
    x = rng.standard_normal((1, 8, 8, 8)).astype("float32")
    kernels = set()
    for index in (0, len(task.config_space) - 1):
        config = task.config_space.get(index)
        result = MeasureResult([1e-6], 0, 1.0, 0.0)
        log = tmp_path / f"{index}.log"
        log.write_text(encode(autotvm.MeasureInput(TARGET, task, config), result) + "\n")
        with autotvm.apply_history_best(str(log)), tvm.transform.PassContext(opt_level=3):
            kernels.add(lowered_kernels(fused))
            np.testing.assert_allclose(run_graph(fused, x), expected_of(x, params), rtol=1e-4, atol=1e-6)
    assert len(kernels) == 2


@contextlib.contextmanager
def ansor(log: Path | None = None) -> Iterator[None]:
    """Build with the auto-scheduler, with or without records."""
    records = auto_scheduler.ApplyHistoryBest(str(log)) if log else contextlib.nullcontext()
    config = {"relay.backend.use_auto_scheduler": True}
    with records, tvm.transform.PassContext(opt_level=3, config=config):
        yield


def test_a_block_is_one_task_of_the_auto_scheduler(rng: np.random.Generator) -> None:
    q, k, v = (relay.var(n, shape=(2, 16, 16)) for n in "qkv")
    scores = relay.nn.softmax(relay.nn.batch_matmul(q, k) * relay.const(0.25))
    fused = DNNFusion(TARGET, options=Options(alter_layout=False))(
        typed([q, k, v], relay.nn.batch_matmul(scores, v, transpose_b=False))
    )
    calls = [v.expr for v in visit_order(fused["main"].body) if isinstance(v.expr, relay.Call)]
    assert len(calls) == 1 and is_block(calls[0])
    tasks, weights = auto_scheduler.extract_tasks(fused, {}, TARGET, opt_level=3)
    assert len(tasks) == len(weights) == 1


def keys_asked(mod: tvm.IRModule) -> set[str]:
    """Workload keys that a build asks records for."""
    asked: set[str] = set()

    class Recorder(auto_scheduler.dispatcher.DispatchContext):
        def _query_inside(self, target: object, workload_key: str, func_name: str) -> None:
            asked.add(workload_key)

        def query(self, target: object, workload_key: str, *rest: object) -> None:
            asked.add(workload_key)

        def update(self, target: object, workload_key: str, state: object) -> None:
            pass

    with Recorder(), ansor():
        relay.build(mod, TARGET)
    return asked


def joined(rng: np.random.Generator) -> tuple[tvm.IRModule, list[np.ndarray], np.ndarray]:
    """A concatenation and a matrix product whose operand is computed, all in one block."""
    a, b, w = (relay.var(n, shape=s) for n, s in (("a", (8, 8)), ("b", (8, 8)), ("w", (16, 16))))
    x = relay.concatenate([relay.negative(a), b], axis=1)
    mod = typed([a, b, w], relay.nn.relu(relay.nn.dense(x, relay.tanh(w))))
    values = [rng.standard_normal(s).astype("float32") for s in ((8, 8), (8, 8), (16, 16))]
    right = np.maximum(np.concatenate([-values[0], values[1]], 1) @ np.tanh(values[2]).T, 0)
    return mod, values, right


def test_auto_scheduler_keys_at_build_are_those_extracted(rng: np.random.Generator) -> None:
    fused = DNNFusion(TARGET, options=Options(alter_layout=False))(joined(rng)[0])
    tasks, _ = auto_scheduler.extract_tasks(fused, {}, TARGET, opt_level=3, include_simple_tasks=True)
    extracted = {t.workload_key for t in tasks}
    assert extracted and extracted <= keys_asked(fused)


def test_auto_scheduler_tunes_and_builds_a_block(tmp_path: Path, rng: np.random.Generator) -> None:
    """Neither the concatenation nor the product of a computed operand stops the search or its workers."""
    mod, values, right = joined(rng)
    fused = DNNFusion(TARGET, options=Options(alter_layout=False))(mod)
    tasks, _ = auto_scheduler.extract_tasks(fused, {}, TARGET, opt_level=3)
    task = max(tasks, key=lambda t: t.compute_dag.flop_ct)
    log = tmp_path / "ansor.json"
    options = auto_scheduler.TuningOptions(
        num_measure_trials=2,
        num_measures_per_round=2,
        runner=auto_scheduler.LocalRunner(number=1, repeat=1, min_repeat_ms=0, timeout=60),
        builder=auto_scheduler.LocalBuilder(timeout=60, n_parallel=min(2, os.cpu_count() or 1)),
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
        verbose=0,
    )
    # The smallest search that still goes through sketches, mutation and the measuring processes.
    search = {
        "sample_init_min_population": 4,
        "evolutionary_search_population": 8,
        "evolutionary_search_num_iters": 1,
    }
    task.tune(options, search_policy=auto_scheduler.SketchPolicy(task, params=search, verbose=0))
    records = list(auto_scheduler.RecordReader(str(log)))
    errors = [r.error_no for _, r in records]
    assert len(records) == 2 and 0 in errors, [dump_record_to_string(*r) for r in records]
    with ansor(log):
        module = graph_executor.GraphModule(relay.build(fused, TARGET)["default"](tvm.cpu()))
    for param, value in zip(mod["main"].params, values, strict=True):
        module.set_input(param.name_hint, value)
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), right, rtol=1e-4, atol=1e-5)
