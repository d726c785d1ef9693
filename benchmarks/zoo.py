"""Every network of the zoo: kernels, bytes, compile time, latency and error, ours against stock and ONNX Runtime.

    python benchmarks/zoo.py                    all models, resumed where it stopped
    python benchmarks/zoo.py squeezenet1_1 ...  these, measured anew
    python benchmarks/zoo.py --table            only write RESULTS.md from what was measured

One process per model, so that one cannot disturb the next; one JSON file per model in
``benchmarks/results``, written when it is complete; ``benchmarks/RESULTS.md`` is made from them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
sys.path.insert(0, str(HERE / "models"))

import materialize  # noqa: E402  (lives beside the models)

# Kernels that the paper reports (Table 5, column DNNF).
PAPER = {
    "efficientnet_b0": 97,
    "vgg16": 17,
    "mobilenet_v1_ssd": 71,
    "yolov4": 135,
    "c3d": 16,
    "s3d": 98,
    "unet": 82,
    "faster_rcnn": 942,
    "mask_rcnn": 981,
    "tinybert": 74,
    "distilbert": 109,
    "albert_base": 225,
    "bert_base": 216,
    "mobilebert": 510,
    "gpt2": 254,
}
DETECTORS = ("faster_rcnn", "mask_rcnn")


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Build, check and time one model in this process."""
    import tvm_dnnfusion as dnnfusion
    from tvm_dnnfusion.bench import time_in_turns
    from tvm_dnnfusion.bench_peers import OnnxRuntimeRunner, Workload
    from tvm_dnnfusion.runner import runner_of
    from tvm_dnnfusion.target import host_target
    from tvm_dnnfusion.threads import configure_threads

    target, threads = host_target(), configure_threads()
    model = materialize.load(name)
    feeds = materialize.example_inputs(name, model)
    start = time.perf_counter()
    mod, params = dnnfusion.from_onnx(model)
    seconds = time.perf_counter() - start
    ours = dnnfusion.build(mod, target, params)
    stock = dnnfusion.build_stock(mod, target, params)
    workload = Workload(name, mod, params, feeds, target, threads, model.SerializeToString())
    runners = {
        "ours": runner_of(ours.lib, target),
        "stock": runner_of(stock.lib, target),
        "onnxruntime": OnnxRuntimeRunner(workload),
    }
    for runner in runners.values():
        runner.set_inputs(feeds)
        runner.run()
    compare = box_error if name in DETECTORS else max_error
    error = compare(runners["ours"].outputs(), runners["onnxruntime"].outputs())
    times = time_in_turns(runners, rounds)
    return {
        "model": name,
        "target": str(target),
        "threads": threads,
        "machine": machine(),
        "operators": sum(len(g.nodes) for p in ours.trace.plans for g in p.plan.groups),
        "kernels": ours.count.kernels,
        "planned_kernels": sum(len(p.plan.groups) for p in ours.trace.plans),
        "opaque": sum(len(p.graph.why_opaque) for p in ours.trace.plans),
        "stock_kernels": stock.count.kernels,
        "intermediate_bytes": ours.count.intermediate_bytes,
        "stock_intermediate_bytes": stock.count.intermediate_bytes,
        "import_seconds": seconds,
        "seconds": ours.seconds,
        "stock_seconds": stock.seconds,
        "error": error,
        "runs": {engine: len(runs) for engine, runs in times.items()},
        **{f"{engine}_ms": median(runs) for engine, runs in times.items()},
    }


def median(values: list[float]) -> float:
    """The middle one."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def machine() -> str:
    """Processor and number of CPUs."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} CPUs"


def max_error(ours: list[Any], reference: list[Any]) -> float:
    """Largest difference relative to the output's largest value; infinite where shapes differ."""
    import numpy as np

    worst = 0.0
    for a, b in zip(ours, reference, strict=True):
        if a.shape != b.shape:
            return float("inf")
        if b.size:
            gap = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
            worst = max(worst, float(gap / max(np.abs(b.astype(np.float64)).max(), 1e-30)))
    return worst


def box_error(ours: list[Any], reference: list[Any]) -> float:
    """Largest distance of a detection to its counterpart, relative to the largest coordinate.

    Detections are sets: each is matched with the nearest box of the same label, in both directions. The
    outputs are boxes, labels, scores and, for Mask R-CNN, masks.
    """
    import numpy as np

    def one_way(first: list[Any], second: list[Any]) -> float:
        worst = 0.0
        for box, label, score in zip(*first[:3], strict=True):
            same = second[1] == label
            if not same.any():
                return float("inf")
            distance = np.abs(second[0][same] - box).max(axis=1) / max(np.abs(second[0]).max(), 1e-30)
            distance = np.maximum(distance, np.abs(second[2][same] - score))
            worst = max(worst, float(distance.min()))
        return worst

    def boxes_labels_scores(outputs: list[Any]) -> list[Any]:
        boxes = next(o for o in outputs if o.ndim == 2 and o.shape[-1] == 4)
        labels = next(o for o in outputs if o.ndim == 1 and o.dtype.kind == "i")
        scores = next(o for o in outputs if o.ndim == 1 and o.dtype.kind == "f")
        return [boxes, labels, scores]

    a, b = boxes_labels_scores(ours), boxes_labels_scores(reference)
    return max(one_way(a, b), one_way(b, a)) if len(a[1]) == len(b[1]) else float("inf")


def run_all(names: list[str], rounds: int, again: bool) -> None:
    """Measure each model in a process of its own; a failure is printed and the others go on."""
    RESULTS.mkdir(exist_ok=True)
    for number, name in enumerate(names, start=1):
        path = RESULTS / f"{name}.json"
        if path.exists() and not again:
            continue
        start = time.perf_counter()
        command = [sys.executable, __file__, "--one", name, "--rounds", str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.perf_counter() - start
        if done.returncode:
            print(f"{number}/{len(names)} {name}: failed after {took:.0f} s\n{done.stderr[-1500:]}", flush=True)
            continue
        partial = path.with_suffix(".partial")
        partial.write_text(done.stdout.strip().splitlines()[-1] + "\n", encoding="utf-8")
        partial.rename(path)
        row = json.loads(path.read_text(encoding="utf-8"))
        print(f"{number}/{len(names)} {name}: {took:.0f} s, {summary(row)}", flush=True)


def summary(row: dict[str, Any]) -> str:
    """One line."""
    return (
        f"kernels {row['kernels']} (stock {row['stock_kernels']}), {row['ours_ms']:.2f} ms "
        f"(stock {row['stock_ms']:.2f}, onnxruntime {row['onnxruntime_ms']:.2f}), error {row['error']:.1e}"
    )


def table() -> str:
    """RESULTS.md from the measured files."""
    rows = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(RESULTS.glob("*.json"))]
    if not rows:
        return "Nothing measured yet: run `python benchmarks/zoo.py`.\n"
    head = (
        "# Results\n\n"
        f"{len(rows)} networks on {rows[0]['machine']}, {rows[0]['threads']} threads, float32, batch 1, untuned, "
        f"target `{rows[0]['target']}`. Made by `python benchmarks/zoo.py`, which repeats it.\n\n"
        "Times are medians of interleaved runs in one process per model. *MB* are bytes that pass between "
        "kernels. *Compile* is importing excluded, our passes included. *Error* is the largest difference from "
        "ONNX Runtime relative to the output's largest value; for the two R-CNNs the largest distance between "
        "matched boxes and scores. *Paper* is DNNFusion's own number of fused layers (PLDI 2021, Table 5).\n\n"
        "| model | operators | kernels | stock | paper | MB | stock | compile s | stock | passes s | import s | "
        "ms | stock | onnxruntime | stock / ours | error |\n|" + "---|" * 16 + "\n"
    )
    lines = [_line(row) for row in rows]
    return head + "\n".join(lines) + "\n\n" + _closing(rows)


def _line(row: dict[str, Any]) -> str:
    passes = sum(v for k, v in row["seconds"].items() if k != "build")
    cells = [
        row["model"],
        row["operators"] + row["opaque"],
        row["kernels"],
        row["stock_kernels"],
        PAPER.get(row["model"], ""),
        f"{row['intermediate_bytes'] / 1e6:.1f}",
        f"{row['stock_intermediate_bytes'] / 1e6:.1f}",
        f"{sum(row['seconds'].values()):.0f}",
        f"{sum(row['stock_seconds'].values()):.0f}",
        f"{passes:.1f}",
        f"{row['import_seconds']:.1f}",
        f"{row['ours_ms']:.2f}",
        f"{row['stock_ms']:.2f}",
        f"{row['onnxruntime_ms']:.2f}",
        f"{row['stock_ms'] / row['ours_ms']:.2f}",
        f"{row['error']:.1e}",
    ]
    return "| " + " | ".join(str(c) for c in cells) + " |"


def _geometric(values: list[float]) -> float:
    import math

    return math.exp(sum(math.log(v) for v in values) / len(values))


def _closing(rows: list[dict[str, Any]]) -> str:
    slower = [r for r in rows if r["ours_ms"] > 1.05 * r["stock_ms"]]
    named = ", ".join(f"{r['model']} ({r['ours_ms'] / r['stock_ms']:.2f} times)" for r in slower) or "none"
    stock = _geometric([r["stock_ms"] / r["ours_ms"] for r in rows])
    peer = _geometric([r["onnxruntime_ms"] / r["ours_ms"] for r in rows])
    moved = _geometric([r["intermediate_bytes"] / r["stock_intermediate_bytes"] for r in rows])
    return (
        f"Geometric means: {stock:.2f} times as fast as stock TVM, {peer:.2f} times as fast as ONNX Runtime, "
        f"{moved:.2f} of stock's bytes between kernels.\n\n"
        f"Slower than stock by more than 5 %: {named}.\n"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each engine")
    parser.add_argument("--table", action="store_true", help="only write RESULTS.md")
    parser.add_argument("--one", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.rounds)))
        return
    if not args.table:
        run_all(args.models or materialize.names(), args.rounds, again=bool(args.models))
    partial = HERE / "RESULTS.md.partial"
    partial.write_text(table(), encoding="utf-8")
    partial.rename(HERE / "RESULTS.md")


if __name__ == "__main__":
    main()
