"""``tvm-dnnfusion compile``: a model file to a folder that TVM's runtime loads."""

from __future__ import annotations

import argparse
import hashlib
import platform
import sys
import time
from pathlib import Path
from typing import Any

import tvm

from tvm_dnnfusion.artifact import kernel_names, output_directory, save
from tvm_dnnfusion.build import EXECUTORS, BuildResult, build
from tvm_dnnfusion.cli import arguments
from tvm_dnnfusion.cli.model_file import Model, load_model
from tvm_dnnfusion.target import parse_target
from tvm_dnnfusion.tuning_log import apply_logs
from tvm_dnnfusion.version import __version__

EXAMPLES = """\
examples:
  tvm-dnnfusion compile resnet50.onnx -o resnet50
  tvm-dnnfusion compile bert.onnx -o bert --shape input_ids=1x128 --log tuned.json
  tvm-dnnfusion compile net.onnx -o net_arm --target 'llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76' \\
      --cc aarch64-linux-gnu-g++
"""


def add_parser(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "compile",
        help="compile a model into a folder",
        description="Compile an ONNX file or Relay module into a folder: library, graph or bytecode, "
        "parameters and a manifest.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help="ONNX file, or Relay module (.relay, .txt, .json)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        required=True,
        help="folder to write; one made by compile is replaced",
    )
    arguments.add_target(parser)
    arguments.add_shape(parser)
    parser.add_argument(
        "--log",
        metavar="FILE",
        action="append",
        default=[],
        help="tuning records of AutoTVM or Ansor to apply; repeat for several",
    )
    parser.add_argument(
        "--executor",
        choices=EXECUTORS,
        default="auto",
        help="runtime to compile for (default: graph, or vm for models with dynamic shapes or control flow)",
    )
    parser.add_argument("--cc", metavar="COMPILER", help="C++ compiler that links for the target")
    arguments.add_verbose(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Compile ``args.model`` into ``args.output``."""
    target = parse_target(args.target)
    shapes = arguments.shapes_by_name(args.shape)
    with output_directory(args.output) as folder, apply_logs(args.log):
        model = load_model(args.model, shapes)
        result = build(model.mod, target, params=model.params, executor=args.executor)
        start = time.perf_counter()
        save(folder, result.lib, target, _manifest(model, result, args), args.cc)
        seconds = time.perf_counter() - start
    total = sum(result.seconds.values())
    print(f"{args.output}: {len(kernel_names(result.lib))} kernels, executor {result.executor}")
    if args.verbose:
        print(
            f"import {model.import_seconds:.1f} s, build {total:.1f} s, save {seconds:.1f} s", file=sys.stderr
        )


def _manifest(model: Model, result: BuildResult, args: argparse.Namespace) -> dict[str, Any]:
    """Say what was compiled from what, and how."""
    return {
        "model": {"file": model.path.name, "sha256": _sha256(model.path)},
        "inputs": [spec.to_json() for spec in model.inputs],
        "outputs": [spec.to_json() for spec in model.outputs],
        "blocks": {kernel: list(operators) for kernel, operators in result.kernel_blocks().items()},
        "options": {"executor": args.executor, "shapes": dict(args.shape), "logs": args.log},
        "seconds": {"import": model.import_seconds, **result.seconds},
        "versions": {
            "tvm_dnnfusion": __version__,
            "tvm": tvm.__version__,
            "llvm": tvm.target.codegen.llvm_version_major(allow_none=True),
            "python": platform.python_version(),
        },
    }


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
