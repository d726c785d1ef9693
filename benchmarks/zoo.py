"""Every network of the zoo: kernels, bytes, compile time, latency and error, against stock and ONNX Runtime.

    python benchmarks/zoo.py                    build, time and tabulate all models; resumes where it stopped
    python benchmarks/zoo.py build ours resnet50 ...     build these anew (engines: ours, stock)
    python benchmarks/zoo.py time resnet50 ...           time these anew, on a machine that does nothing else
    python benchmarks/zoo.py table                       only write RESULTS.md and the README's table

Each step of each model runs in a process of its own. What is built lies in ``benchmarks/built`` (gigabytes;
another folder by the environment variable ``ZOO_BUILT``), timings in ``benchmarks/results``, one file per
model, written when complete.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
BUILT = Path(os.environ.get("ZOO_BUILT", HERE / "built"))
ENGINES = ("ours", "stock")
ROUNDS = 11
# Stock TVM's schedule of a one-dimensional convolution keeps LLVM busy for longer than anybody waits.
BUILD_SECONDS = 1500
sys.path[:0] = [str(HERE), str(HERE / "models")]

import materialize  # noqa: E402  (lives beside the models)
from zoo_error import box_error, max_error  # noqa: E402
from zoo_table import results_table, short_table, summary  # noqa: E402

MARKS = ("<!-- zoo table -->", "<!-- end of zoo table -->")
DETECTORS = ("faster_rcnn", "mask_rcnn")


def build(engine: str, name: str) -> None:
    """Build one model for one engine in this process and save it with what was counted."""
    import tvm_dnnfusion as dnnfusion
    from tvm_dnnfusion.artifact import output_directory, save
    from tvm_dnnfusion.target import host_target

    target = host_target()
    mod, params = dnnfusion.from_onnx(materialize.load(name))
    cpu = time.process_time()
    compile_ = dnnfusion.build if engine == "ours" else dnnfusion.build_stock
    result = compile_(mod, target, params)
    plans = [p.plan for p in result.trace.plans]
    facts = {
        "operators": sum(len(g.nodes) for plan in plans for g in plan.groups),
        "opaque": sum(len(p.graph.why_opaque) for p in result.trace.plans),
        "planned_kernels": sum(len(plan.groups) for plan in plans),
        "kernels": result.count.kernels,
        "intermediate_bytes": result.count.intermediate_bytes,
        "seconds": result.seconds,
        "cpu_seconds": time.process_time() - cpu,
    }
    BUILT.mkdir(parents=True, exist_ok=True)
    with output_directory(BUILT / f"{name}.{engine}") as folder:
        save(folder, result.lib, target, {"inputs": [], "outputs": [], "zoo": facts}, None)


def measure(name: str) -> dict[str, Any]:
    """Check and time one model, built before, in this process."""
    from tvm_dnnfusion.artifact import load
    from tvm_dnnfusion.bench import time_in_turns
    from tvm_dnnfusion.bench_peers import OnnxRuntimeRunner, Workload
    from tvm_dnnfusion.target import host_target
    from tvm_dnnfusion.threads import configure_threads

    target, threads = host_target(), configure_threads()
    model = materialize.load(name)
    feeds = materialize.example_inputs(name, model)
    folders = {engine: BUILT / f"{name}.{engine}" for engine in ENGINES}
    artifacts = {engine: load(folder) for engine, folder in folders.items() if folder.exists()}
    workload = Workload(name, None, {}, feeds, target, threads, model.SerializeToString())
    runners = {engine: artifact.runner() for engine, artifact in artifacts.items()}
    runners["onnxruntime"] = OnnxRuntimeRunner(workload)
    for runner in runners.values():
        runner.set_inputs(feeds)
        runner.run()
    outputs = {engine: runner.outputs() for engine, runner in runners.items()}
    compare = box_error if name in DETECTORS else max_error
    times = time_in_turns(runners, ROUNDS)
    import_seconds, pass_seconds = time_passes(model, target)
    return {
        "model": name,
        "target": str(target),
        "threads": threads,
        "machine": machine(),
        **artifacts["ours"].manifest["zoo"],
        "import_seconds": import_seconds,
        "pass_seconds": pass_seconds,
        "stock": artifacts["stock"].manifest["zoo"] if "stock" in artifacts else stock_plan(model),
        "errors": {engine: compare(outputs[engine], outputs["onnxruntime"]) for engine in artifacts},
        "runs": {engine: len(runs) for engine, runs in times.items()},
        **{f"{engine}_ms": sorted(runs)[len(runs) // 2] for engine, runs in times.items()},
    }


def time_passes(model: Any, target: Any) -> tuple[float, dict[str, float]]:
    """Wall seconds of importing, and of each of our phases, of a second run: the first one loads code."""
    import tvm_dnnfusion as dnnfusion

    fusions = []
    for _ in range(2):
        start = time.perf_counter()
        mod, params = dnnfusion.from_onnx(model)
        took = time.perf_counter() - start
        fusions.append(dnnfusion.DNNFusion(target, params))
        fusions[-1](mod)
    return took, fusions[-1].trace.seconds


def stock_plan(model: Any) -> dict[str, Any]:
    """What stock TVM would build, of a model that it does not get built in time."""
    from tvm_dnnfusion.passes.dnnfusion import bind_params

    import tvm_dnnfusion as dnnfusion
    from tvm_dnnfusion.build import optimise_stock
    from tvm_dnnfusion.kernels import count_kernels
    from tvm_dnnfusion.target import host_target

    mod, params = dnnfusion.from_onnx(model)
    count = count_kernels(optimise_stock(bind_params(mod, params), host_target()))
    return {"kernels": count.kernels, "intermediate_bytes": count.intermediate_bytes}


def machine() -> str:
    """Processor and number of CPUs."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'unknown processor'}, {os.cpu_count()} CPUs"


def step(label: str, *arguments: str) -> str | None:
    """Run one step of this script in a process of its own; its last line, or None if it failed."""
    start = time.perf_counter()
    command = [sys.executable, __file__, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"{label}: given up after {BUILD_SECONDS} s", flush=True)
        return None
    took = f"{time.perf_counter() - start:.0f} s"
    if done.returncode:
        print(f"{label}: failed after {took}\n{done.stderr[-2000:]}", flush=True)
        return None
    print(f"{label}: {took}", flush=True)
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def build_all(engine: str, names: list[str], again: bool) -> None:
    """Build what is not built yet, or everything named again."""
    for number, name in enumerate(names, start=1):
        if again or not (BUILT / f"{name}.{engine}").exists():
            step(f"{number}/{len(names)} build {engine} {name}", "build-one", engine, name)


def time_all(names: list[str], again: bool) -> None:
    """Time what is not timed yet, or everything named again."""
    RESULTS.mkdir(exist_ok=True)
    for number, name in enumerate(names, start=1):
        path = RESULTS / f"{name}.json"
        if path.exists() and not again:
            continue
        line = step(f"{number}/{len(names)} time {name}", "time-one", name)
        if line:
            partial = path.with_suffix(".partial")
            partial.write_text(line + "\n", encoding="utf-8")
            partial.rename(path)
            print("  " + summary(json.loads(line)), flush=True)


def write_table() -> None:
    """RESULTS.md, and the README's table between its marks, from the timings."""
    rows = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("*.json"))]
    _replace(HERE / "RESULTS.md", results_table(rows))
    readme = HERE.parent / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    _replace(readme, f"{before}{MARKS[0]}\n{short_table(rows)}{MARKS[1]}{after}")


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def main(arguments: list[str]) -> None:
    """Command line, see the top of the file."""
    match arguments:
        case ["build-one", engine, name]:
            build(engine, name)
        case ["time-one", name]:
            print(json.dumps(measure(name)))
        case ["build", engine, *names] if engine in ENGINES:
            build_all(engine, names or materialize.names(), again=bool(names))
        case ["time", *names]:
            time_all(names or materialize.names(), again=bool(names))
            write_table()
        case ["table"]:
            write_table()
        case []:
            for engine in ENGINES:
                build_all(engine, materialize.names(), again=False)
            time_all(materialize.names(), again=False)
            write_table()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
