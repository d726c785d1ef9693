"""``tvm-dnnfusion bench``: latency against other engines."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from tvm_dnnfusion.bench import BenchResult, bench_model
from tvm_dnnfusion.bench_peers import OURS, PEERS, Workload, find_peer
from tvm_dnnfusion.cli import arguments
from tvm_dnnfusion.cli.model_file import load_model
from tvm_dnnfusion.runner import device_of
from tvm_dnnfusion.target import parse_target
from tvm_dnnfusion.tensor_spec import random_arrays
from tvm_dnnfusion.threads import configure_threads

EXAMPLES = """\
examples:
  tvm-dnnfusion bench resnet50.onnx
  tvm-dnnfusion bench resnet50.onnx bert.onnx --against stock --threads 4 --json

Engines take turns within one process, on the same number of threads; medians are reported. A peer's ratio is
its time over ours: above 1, this package is faster.
"""


def names(text: str) -> list[str]:
    """Convert ``stock,onnxruntime``; each name once."""
    return list(dict.fromkeys(name for name in text.split(",") if name))


def add_parser(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "bench",
        help="time models against other engines",
        description="Time models on this package and on other engines, interleaved.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "models", metavar="MODEL", nargs="+", help="ONNX file, or Relay module (.relay, .txt, .json)"
    )
    parser.add_argument(
        "--against",
        metavar="PEER,...",
        type=names,
        help=f"engines to compare with, of {', '.join(PEERS)} (default: all; stock for Relay modules)",
    )
    arguments.add_target(parser)
    arguments.add_shape(parser)
    arguments.add_run_options(parser, repeat=10)
    arguments.add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Time every model of ``args.models``; text appears model by model, JSON at the end."""
    target = parse_target(args.target)
    device_of(target)  # before minutes of compiling for a device that is not there
    shapes = arguments.shapes_by_name(args.shape)
    for name in args.against or ():
        find_peer(name)
    threads = configure_threads(args.threads)
    if args.verbose:
        print(f"{threads} threads, target {target}", file=sys.stderr)
    results = []
    for path in args.models:
        model = load_model(path, shapes)
        against = args.against if args.against is not None else list(PEERS) if model.is_onnx else ["stock"]
        workload = Workload(
            name=model.path.stem,
            mod=model.mod,
            params=model.params,
            inputs=random_arrays(model.inputs, args.seed, shapes),
            target=target,
            threads=threads,
            onnx_model=str(model.path) if model.is_onnx else None,
        )
        results.append(bench_model(workload, against, rounds=args.repeat))
        if not args.json:
            print(_text(results[-1]), flush=True)
    if args.json:
        print(json.dumps([_finite(result.to_json()) for result in results]))


def _text(result: BenchResult) -> str:
    """One line per model."""
    ours = result.median(OURS)
    parts = [f"{result.model}: {OURS} {ours:.3f} ms"]
    for peer, difference in result.difference.items():
        time = result.median(peer)
        parts.append(
            f"{peer} {time:.3f} ms ({time / ours:.2f} times ours, outputs differ by {difference:.1e})"
        )
    return ", ".join(parts)


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Replace what JSON has no number for by null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in fields.items()
    }
