"""Optimise a real network, run it, and compare with stock Relay: kernels, time and numbers.

    python examples/quickstart.py [MODEL]

MODEL is a name in ``benchmarks/models`` (default: squeezenet1_1).
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks" / "models"))
import materialize  # the networks, their weights filled in

import tvm_dnnfusion as dnnfusion
from tvm_dnnfusion.bench import time_in_turns
from tvm_dnnfusion.runner import runner_of
from tvm_dnnfusion.target import host_target
from tvm_dnnfusion.threads import configure_threads


def main(name: str = "squeezenet1_1") -> None:
    """Build a network twice and compare."""
    target, threads = host_target(), configure_threads()
    print(f"{name} for {target}, {threads} threads")
    mod, params = dnnfusion.from_onnx(materialize.load(name))
    inputs = materialize.example_inputs(name)

    results = {
        "ours": dnnfusion.build(mod, target, params),
        "stock": dnnfusion.build_stock(mod, target, params),
    }
    runners = {label: runner_of(result.lib, target) for label, result in results.items()}
    outputs = {}
    for label, runner in runners.items():
        runner.set_inputs(inputs)
        runner.run()
        outputs[label] = runner.outputs()
    times = time_in_turns(runners, rounds=10)

    for label, result in results.items():
        moved = result.count.intermediate_bytes / 1e6
        seconds = sum(result.seconds.values())
        print(
            f"{label:6s} {result.count.kernels:4d} kernels, {moved:7.1f} MB between them, "
            f"{np.median(times[label]):8.2f} ms, built in {seconds:.0f} s"
        )
    for ours, stock in zip(outputs["ours"], outputs["stock"], strict=True):
        gap = float(np.abs(ours - stock).max() / np.abs(stock).max())
        print(f"largest difference {gap:.1e} of the largest output")
        assert gap < 1e-4, "the fused network must compute what the unfused one does"
    assert results["ours"].count.kernels <= results["stock"].count.kernels


if __name__ == "__main__":
    main(*sys.argv[1:2])
