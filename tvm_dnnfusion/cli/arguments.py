"""Command-line arguments that several sub-commands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from tvm_dnnfusion.errors import OptionError

Shape = tuple[str, tuple[int, ...]]


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage above them."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with 2."""
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def positive_int(text: str) -> int:
    """Convert an argument that counts something."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


def shape(text: str) -> Shape:
    """Convert ``NAME=1x3x224x224``; the name may hold ``=`` itself, nothing behind it is a scalar."""
    name, equals, extents = text.rpartition("=")
    parts = extents.split("x") if extents else []
    if not name or not equals or not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form NAME=1x3x224x224")
    return name, tuple(int(part) for part in parts)


def shapes_by_name(shapes: Sequence[Shape]) -> dict[str, tuple[int, ...]]:
    """Turn the repeated ``--shape`` into a mapping.

    Raises
    ------
    OptionError
        A name is given twice.
    """
    by_name = dict(shapes)
    if len(by_name) != len(shapes):
        names = [name for name, _ in shapes]
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"--shape is given more than once for input '{twice}'; give it once")
    return by_name


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add ``--target``."""
    parser.add_argument(
        "--target",
        metavar="T",
        help="TVM target, as in 'llvm -mcpu=core-avx2' or 'opencl -device=adreno' (default: this CPU)",
    )


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Add ``--shape``."""
    parser.add_argument(
        "--shape",
        metavar="NAME=1x3x224x224",
        type=shape,
        action="append",
        default=[],
        help="shape of an input whose extents the model leaves open; repeat per input",
    )


def add_run_options(parser: argparse.ArgumentParser, repeat: int) -> None:
    """Add ``--repeat``, ``--threads`` and ``--seed``."""
    parser.add_argument(
        "--repeat", metavar="N", type=positive_int, default=repeat, help="repetitions (default: %(default)s)"
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=positive_int,
        help="threads (default: TVM_NUM_THREADS, else the number of physical cores)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=0, help="seed of random inputs (default: %(default)s)"
    )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--verbose``."""
    parser.add_argument("--json", action="store_true", help="print one JSON value instead of text")
    add_verbose(parser)


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add ``--verbose``."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="say what is going on, on the error output"
    )
