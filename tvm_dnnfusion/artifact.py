"""A compiled model on disk: one folder with library, graph or bytecode, parameters and a manifest.

=================  =========================================================================
``model.so``       kernels (``tvm.runtime.load_module``)
``graph.json``     graph executor only: the graph (``graph_executor.create``)
``params.bin``     graph executor only: parameters (``GraphModule.load_params``)
``bytecode.ro``    virtual machine only: bytecode and constants (``Executable.load_exec``)
``manifest.json``  what this is: see :py:data:`MANIFEST_FORMAT`
=================  =========================================================================

TVM's C++ runtime alone runs the folder's content; this package is not needed on the device.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm.contrib import cc, graph_executor, ndk
from tvm.runtime.vm import Executable

from tvm_dnnfusion.errors import ImportModelError, OutputError
from tvm_dnnfusion.runner import GraphRunner, Runner, VMRunner, device_of
from tvm_dnnfusion.tensor_spec import TensorSpec

MANIFEST = "manifest.json"
MANIFEST_FORMAT = "tvm-dnnfusion compiled model, version 1"
LIBRARY, GRAPH, PARAMS, BYTECODE = "model.so", "graph.json", "params.bin", "bytecode.ro"


@dataclass(frozen=True)
class Artifact:
    """A compiled model read from a folder."""

    directory: Path
    manifest: dict[str, Any]

    @property
    def inputs(self) -> list[TensorSpec]:
        """The model's inputs, in order."""
        return [TensorSpec.from_json(fields) for fields in self.manifest["inputs"]]

    @property
    def outputs(self) -> list[TensorSpec]:
        """The model's outputs, in order."""
        return [TensorSpec.from_json(fields) for fields in self.manifest["outputs"]]

    def runner(self) -> Runner:
        """Load the library and get ready to run.

        Raises
        ------
        ImportModelError
            The library is for another machine or damaged.
        TargetError
            This machine lacks the device that the model was compiled for.
        """
        device = device_of(tvm.target.Target(self.manifest["target"], self.manifest["host"]))
        try:
            library = _load_library(self.directory / LIBRARY)
            if self.manifest["executor"] == "vm":
                bytecode = (self.directory / BYTECODE).read_bytes()
                return VMRunner(Executable.load_exec(bytearray(bytecode), library), device)
            graph = graph_executor.create((self.directory / GRAPH).read_text(), library, device)
            graph.load_params(bytearray((self.directory / PARAMS).read_bytes()))
            return GraphRunner(graph, device)
        except (OSError, ValueError, RuntimeError, tvm.error.TVMError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise ImportModelError(
                f"'{self.directory}' cannot be loaded on this machine: {reason}"
            ) from error


def _load_library(path: Path) -> tvm.runtime.Module:
    """Load a library under a name of its own.

    ``dlopen`` gives back what it has under the same name, even after the file was replaced. So the file is
    opened through a link, past ``tvm.runtime.load_module``, which would follow it first.
    """
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / path.name
        link.symlink_to(path.resolve())
        return tvm.get_global_func("runtime.ModuleLoadFromFile")(str(link), "so")


@contextmanager
def output_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new folder that becomes ``path`` when the ``with`` block ends well, and vanishes otherwise.

    Raises
    ------
    OutputError
        ``path`` is a file, a folder with other content, or cannot be written. Raised before the block runs.
    """
    final = Path(os.path.realpath(path))
    _check_replaceable(final, path)
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".partial", dir=final.parent))
    except OSError as error:
        raise OutputError(f"'{path}' cannot be written: {error.strerror}; name a writable folder") from error
    try:
        yield partial
        try:
            _replace(final, partial)
        except OSError as error:
            raise OutputError(f"'{path}' cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_replaceable(final: Path, path: str | os.PathLike[str]) -> None:
    """Refuse to replace what is neither an empty folder nor one of ours."""
    if not final.exists():
        return
    if not final.is_dir():
        raise OutputError(f"'{path}' is not a folder; name a new one, an empty one or one made by compile")
    if any(final.iterdir()) and not is_artifact(final):
        raise OutputError(
            f"folder '{path}' has other content; name a new one, an empty one or one made by compile"
        )


def _replace(final: Path, partial: Path) -> None:
    """Rename ``partial`` to ``final``; the old content survives a failure."""
    umask = os.umask(0)
    os.umask(umask)
    partial.chmod(0o777 & ~umask)  # mkdtemp made it private
    if not is_artifact(final):
        partial.rename(final)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{final.name}.", suffix=".old", dir=final.parent))
    final.rename(old / final.name)
    try:
        partial.rename(final)
    except OSError:
        (old / final.name).rename(final)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def is_artifact(directory: Path) -> bool:
    """Tell whether a folder holds a manifest of ours."""
    try:
        fields = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(fields, dict) and str(fields.get("format", "")).startswith(
        "tvm-dnnfusion compiled model"
    )


def save(
    directory: Path,
    compiled: Any,
    target: tvm.target.Target,
    manifest: Mapping[str, Any],
    compiler: str | None,
) -> None:
    """Write a compiled model into an existing folder.

    Parameters
    ----------
    directory : Path
        Where to; see :py:func:`output_directory`.
    compiled : GraphExecutorFactoryModule or Executable
        What ``relay.build`` or ``relay.vm.compile`` gave.
    target : Target
        What it was compiled for; a library for another architecture needs a compiler for it.
    manifest : mapping
        JSON values to add to the manifest, ``inputs`` and ``outputs`` (of ``TensorSpec.to_json``) among them.
    compiler : str, optional
        The C++ compiler that links the library; by default the host's, or for Android ``TVM_NDK_CC``.

    Raises
    ------
    OutputError
        A file cannot be written, or the library cannot be linked.
    """
    executor = "vm" if isinstance(compiled, Executable) else "graph"
    try:
        if executor == "vm":
            bytecode, library = compiled.save()
            (directory / BYTECODE).write_bytes(bytes(bytecode))
        else:
            library = compiled.get_lib()
            (directory / GRAPH).write_text(compiled.get_graph_json(), encoding="utf-8")
            (directory / PARAMS).write_bytes(tvm.runtime.save_param_dict(compiled.get_params()))
        _link(library, directory / LIBRARY, target, compiler)
        sizes = {file.name: file.stat().st_size for file in sorted(directory.iterdir())}
        fields = {
            "format": MANIFEST_FORMAT,
            "executor": executor,
            "target": str(target),
            "host": str(target.host or target),
            "kernels": kernel_names(compiled),
            **manifest,
            "files": sizes,
        }
        (directory / MANIFEST).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"the compiled model cannot be written: {error.strerror or error}") from error


def kernel_names(compiled: Any) -> list[str]:
    """Name the kernels that a compiled model calls: once per call in a graph, each once in bytecode."""
    if isinstance(compiled, Executable):
        return [str(name) for name in compiled.primitive_ops]
    nodes = json.loads(compiled.get_graph_json())["nodes"]
    names = [node["attrs"]["func_name"] for node in nodes if node["op"] == "tvm_op"]
    return [name for name in names if name != "__nop"]  # a reshape that only renames memory


def _link(library: tvm.runtime.Module, path: Path, target: tvm.target.Target, compiler: str | None) -> None:
    """Link the kernels' object files into a shared library."""
    host = target.host or target
    triple = str(host.attrs.get("mtriple", ""))
    link: Any = cc.cross_compiler(compiler) if compiler else cc.create_shared
    if "android" in triple and not compiler:
        if "TVM_NDK_CC" not in os.environ:
            raise OutputError(
                f"linking for {triple} needs the NDK's compiler; name it with --cc or TVM_NDK_CC"
            )
        link = ndk.create_shared
    try:
        library.export_library(str(path), fcompile=link)
    except (RuntimeError, ValueError, FileNotFoundError) as error:
        reason = " ".join(str(error).split())[:300]
        raise OutputError(
            f"the library for {triple or 'this machine'} cannot be linked: {reason}; "
            f"name a C++ compiler for it with --cc"
        ) from error


def load(directory: str | os.PathLike[str]) -> Artifact:
    """Read a folder's manifest and check that its files are whole.

    Raises
    ------
    ImportModelError
        The folder is none of ours, was written in another format, or a file is missing or cut off.
    """
    folder = Path(directory)
    if not is_artifact(folder):
        raise ImportModelError(
            f"folder '{directory}' has no {MANIFEST} of a compiled model; make one with compile"
        )
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if manifest["format"] != MANIFEST_FORMAT:
        raise ImportModelError(
            f"folder '{directory}' is a {manifest['format']}; this version reads {MANIFEST_FORMAT}"
        )
    for name, size in manifest["files"].items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            found = f"has {file.stat().st_size} bytes" if file.is_file() else "is missing"
            raise ImportModelError(f"'{file}' {found}, {size} bytes were written; compile the model again")
    return Artifact(folder, manifest)
