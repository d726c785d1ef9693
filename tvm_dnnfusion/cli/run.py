"""``tvm-dnnfusion run``: run a model file or a compiled folder once or more."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_dnnfusion import artifact
from tvm_dnnfusion.build import build
from tvm_dnnfusion.cli import arguments
from tvm_dnnfusion.cli.model_file import load_model
from tvm_dnnfusion.errors import ImportModelError, OptionError, OutputError
from tvm_dnnfusion.runner import Runner, device_of, runner_of
from tvm_dnnfusion.target import parse_target
from tvm_dnnfusion.tensor_spec import TensorSpec, check_arrays, format_shape, random_arrays
from tvm_dnnfusion.threads import configure_threads

EXAMPLES = """\
examples:
  tvm-dnnfusion run resnet50.onnx
  tvm-dnnfusion run resnet50 --inputs image.npz --outputs scores.npz
  tvm-dnnfusion run gpt2.onnx --shape input_ids=1x64 --repeat 20 --threads 4 --json
"""


def add_parser(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "run",
        help="run a model",
        description="Run an ONNX file, a Relay module or a folder made by compile.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL_OR_DIR", help="model file, or folder made by compile")
    parser.add_argument("--inputs", metavar="FILE.npz", help="an array per input, by name (default: random)")
    parser.add_argument("--outputs", metavar="FILE.npz", help="where to write an array per output, by name")
    arguments.add_target(parser)
    arguments.add_shape(parser)
    arguments.add_run_options(parser, repeat=1)
    arguments.add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run ``args.model``, print what came out and how long it took."""
    if args.outputs:
        _check_writable(Path(args.outputs))
    given = _read_npz(args.inputs) if args.inputs else None
    threads = configure_threads(args.threads)
    runner, inputs, outputs = _load(args)
    if given is None:
        arrays = random_arrays(inputs, args.seed, arguments.shapes_by_name(args.shape))
    else:
        arrays = given
    check_arrays(inputs, arrays)
    milliseconds = _time(runner, arrays, args.repeat)
    results = dict(zip([spec.name for spec in outputs], runner.outputs(), strict=True))
    if args.outputs:
        _write_npz(Path(args.outputs), results)
    summary = {
        "model": args.model,
        "threads": threads,
        "seed": None if given is not None else args.seed,
        "median_ms": statistics.median(milliseconds),
        "min_ms": min(milliseconds),
        "max_ms": max(milliseconds),
        "repeat": args.repeat,
        "outputs": [_summary(name, array) for name, array in results.items()],
    }
    print(json.dumps(summary) if args.json else _text(summary))


def _load(args: argparse.Namespace) -> tuple[Runner, list[TensorSpec], list[TensorSpec]]:
    """Load a compiled folder, or compile a model file in memory."""
    if Path(args.model).is_dir():
        if args.target:
            raise OptionError("a compiled folder has its target already; --target is for model files")
        compiled = artifact.load(args.model)
        return compiled.runner(), compiled.inputs, compiled.outputs
    target = parse_target(args.target)
    device_of(target)  # before minutes of compiling for a device that is not there
    model = load_model(args.model, arguments.shapes_by_name(args.shape))
    result = build(model.mod, target, params=model.params)
    if args.verbose:
        print(f"target {target}, executor {result.executor}", file=sys.stderr)
    return runner_of(result.lib, target), model.inputs, model.outputs


def _time(runner: Runner, arrays: Mapping[str, np.ndarray], repeat: int) -> list[float]:
    """Run ``repeat`` times after a warm-up; milliseconds of each."""
    runner.set_inputs(arrays)
    if repeat > 1:
        runner.run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter_ns()
        runner.run()
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


def _read_npz(path: str) -> dict[str, np.ndarray]:
    """Read arrays by name; nothing in the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise ImportModelError(f"'{path}' holds one array without a name; write it with numpy.savez")
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise ImportModelError(f"inputs '{path}' cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ImportModelError(
            f"inputs '{path}' are no arrays by name ({error}); write them with numpy.savez"
        ) from error


def _check_writable(path: Path) -> None:
    """Find out before the model runs that its outputs cannot be written."""
    if path.is_dir():
        raise OutputError(f"'{path}' is a folder; name a file for the outputs")
    if not os.access(path.absolute().parent, os.W_OK):
        raise OutputError(f"'{path}' cannot be written: its folder is missing or not writable")


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, all or nothing, as ``numpy.savez`` does; that cannot take the name ``file``."""
    try:
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=f".{path.name}.") as folder:
            partial = Path(folder) / "outputs.npz"
            with zipfile.ZipFile(partial, "w") as archive:
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
            partial.replace(path)
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror or error}") from error


def _summary(name: str, array: np.ndarray) -> dict[str, Any]:
    """Shape, type and range of an output; the range is null where it is not finite."""
    numbers = array.astype(np.float64)
    statistics_of = {
        "min": np.min(numbers, initial=np.inf),
        "mean": np.mean(numbers) if numbers.size else np.nan,
        "max": np.max(numbers, initial=-np.inf),
    }
    finite = {key: float(value) if np.isfinite(value) else None for key, value in statistics_of.items()}
    return {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), **finite}


def _text(summary: Mapping[str, Any]) -> str:
    lines = []
    if summary["seed"] is not None:
        lines.append(f"random inputs, seed {summary['seed']}")
    outputs: Sequence[Mapping[str, Any]] = summary["outputs"]
    for output in outputs:
        numbers = ", ".join(
            f"{key} {'not finite' if output[key] is None else format(output[key], '.6g')}"
            for key in ("min", "mean", "max")
        )
        lines.append(f"{output['name']} {output['dtype']}{format_shape(output['shape'])}: {numbers}")
    lines.append(
        f"median {summary['median_ms']:.3f} ms, min {summary['min_ms']:.3f}, max {summary['max_ms']:.3f} "
        f"over {summary['repeat']} runs on {summary['threads']} threads"
    )
    return "\n".join(lines)
