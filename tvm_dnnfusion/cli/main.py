"""Dispatcher of ``tvm-dnnfusion``, and the one place that turns errors into exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Sequence

import tvm

from tvm_dnnfusion.cli import bench, compile, explain, rules, run
from tvm_dnnfusion.cli.arguments import OneLineParser
from tvm_dnnfusion.diagnostics import collect_diagnostics
from tvm_dnnfusion.errors import DNNFusionError
from tvm_dnnfusion.version import __version__

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
COMMANDS = (compile, run, explain, bench, rules)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser with every sub-command's own."""
    parser = OneLineParser(
        prog="tvm-dnnfusion",
        description="Compile, run, explain and time models with operator fusion by mapping type.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.

    Returns
    -------
    int
        The exit code: 0; 2 for bad input, with one line on the error output; 130 if interrupted.
    """
    # Where TVM's own defaults suit a library, not a command: no downloads, no advice to tune.
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    arguments = make_parser().parse_args(argv)
    with collect_diagnostics() as diagnostics:
        try:
            arguments.run(arguments)
            sys.stdout.flush()
        except DNNFusionError as error:
            return _fail(arguments, str(error))
        except tvm.error.TVMError as error:
            reason = diagnostics[0] if diagnostics else str(error).strip().splitlines()[-1]
            return _fail(arguments, f"TVM refuses the model: {reason}")
        except KeyboardInterrupt:
            print(f"tvm-dnnfusion {arguments.command}: interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:
            # The reader (head, less) has gone; keep the interpreter from flushing into the closed pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _fail(arguments: argparse.Namespace, message: str) -> int:
    """Print one line, after the traceback if ``--verbose`` asks for it."""
    if arguments.verbose:
        traceback.print_exc()
    print(f"tvm-dnnfusion {arguments.command}: error: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT
