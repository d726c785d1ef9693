"""``tvm-dnnfusion explain``: what was fused, and why the rest was not."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tvm_dnnfusion.cli import arguments
from tvm_dnnfusion.cli.model_file import load_model
from tvm_dnnfusion.report import explain
from tvm_dnnfusion.target import parse_target

EXAMPLES = """\
examples:
  tvm-dnnfusion explain mobilenet.onnx
  tvm-dnnfusion explain bert.onnx --json > report.json
  tvm-dnnfusion explain resnet50.onnx --edge /layer1/Conv,/layer1/Relu
"""


def edge(text: str) -> tuple[str, str]:
    """Convert ``A,B``, two operators."""
    producer, comma, consumer = text.partition(",")
    if not producer or not comma or not consumer:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form PRODUCER,CONSUMER")
    return producer, consumer


def add_parser(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "explain",
        help="say what is fused and why",
        description="Plan a model's fusion without compiling it; print kernels, blocks, bytes saved and "
        "why neighbours stay apart.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help="ONNX file, or Relay module (.relay, .txt, .json)")
    arguments.add_target(parser)
    arguments.add_shape(parser)
    parser.add_argument(
        "--edge",
        metavar="A,B",
        type=edge,
        help="explain only whether A is fused into B and why; each a node id, an operator or an ONNX node",
    )
    arguments.add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the report on ``args.model``."""
    target = parse_target(args.target)
    model = load_model(args.model, arguments.shapes_by_name(args.shape))
    report = explain(model.mod, target, params=model.params)
    if args.edge:
        reason = report.edge(*args.edge)
        print(json.dumps({"edge": list(args.edge), "reason": reason}) if args.json else reason)
    else:
        print(json.dumps(report.to_json()) if args.json else report.to_text())
