"""MODEL: an ONNX file or a Relay module, as text or as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import tvm
from tvm import relay

from tvm_dnnfusion.diagnostics import collect_diagnostics
from tvm_dnnfusion.errors import ImportModelError, ShapeError
from tvm_dnnfusion.onnx_import import from_onnx
from tvm_dnnfusion.tensor_spec import TensorSpec, format_shape, input_specs, output_specs

ACCEPTED = "an ONNX file (.onnx) or a Relay module as text (.relay, .txt) or JSON (.json)"


@dataclass(frozen=True)
class Model:
    """A model read from a file, with what the commands need to know of it."""

    path: Path
    mod: tvm.IRModule
    params: dict[str, tvm.nd.NDArray]
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    import_seconds: float
    is_onnx: bool = field(default=False)


def load_model(path: str, shapes: Mapping[str, Sequence[int]]) -> Model:
    """Read MODEL.

    Parameters
    ----------
    path : str
        The file; its suffix tells its kind.
    shapes : mapping of str to sequence of int
        Shapes of inputs by name, where the model leaves extents open.

    Raises
    ------
    ImportModelError
        The file is missing, unreadable, of another kind, damaged or holds what cannot be imported.
    ShapeError
        ``shapes`` names no input, or does not fit it.
    """
    file = Path(path)
    _check_readable(file)
    start = time.perf_counter()
    names: list[str] = []
    params: dict[str, tvm.nd.NDArray] = {}
    if file.suffix == ".onnx":
        mod, params = from_onnx(file, shapes=shapes)
        graph = onnx.load(file, load_external_data=False).graph
        names = [output.name for output in graph.output]
    elif file.suffix in (".relay", ".txt", ".json"):
        mod = _with_shapes(_read_relay(file), shapes)
    else:
        raise ImportModelError(f"'{path}' is not a kind of model that is known; accepted: {ACCEPTED}")
    return Model(
        file,
        mod,
        params,
        input_specs(mod, params),
        output_specs(mod, names),
        time.perf_counter() - start,
        file.suffix == ".onnx",
    )


def _check_readable(file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except IsADirectoryError as error:
        raise ImportModelError(f"'{file}' is a folder; accepted: {ACCEPTED}") from error
    except OSError as error:
        raise ImportModelError(f"'{file}' cannot be read: {error.strerror}") from error


def _read_relay(file: Path) -> tvm.IRModule:
    """Parse a Relay module and infer its types."""
    with collect_diagnostics() as messages:
        try:
            text = file.read_text(encoding="utf-8")
            node = tvm.ir.load_json(text) if file.suffix == ".json" else relay.fromtext(text)
            mod = tvm.IRModule.from_expr(node) if isinstance(node, relay.Expr) else node
            if not isinstance(mod, tvm.IRModule) or "main" not in [var.name_hint for var in mod.functions]:
                raise ImportModelError(f"'{file}' holds no Relay module with a function @main")
            return relay.transform.InferType()(mod)
        except ImportModelError:
            raise
        except Exception as error:
            # Whatever a damaged file makes TVM's readers raise: KeyError, TypeError, TVMError, ...
            reason = messages[0] if messages else " ".join(str(error).split("\n")[-1].split())
            raise ImportModelError(
                f"'{file}' is not a Relay module: {reason or type(error).__name__}"
            ) from error


def _with_shapes(mod: tvm.IRModule, shapes: Mapping[str, Sequence[int]]) -> tvm.IRModule:
    """Replace inputs of ``main`` by inputs of the given shapes."""
    if not shapes:
        return mod
    main = mod["main"]
    specs = {spec.name: spec for spec in input_specs(mod)}
    for name, extents in shapes.items():
        if name not in specs:
            raise ShapeError(
                f"the model has no input '{name}'; its inputs are {', '.join(map(str, specs.values()))}"
            )
        declared = specs[name].shape
        if len(declared) != len(extents) or any(
            d not in (None, given) for d, given in zip(declared, extents, strict=False)
        ):
            raise ShapeError(
                f"input '{name}' has shape {format_shape(declared)}; "
                f"the given {format_shape(tuple(extents))} does not fit it"
            )
    new = [
        relay.var(var.name_hint, shape=shapes[var.name_hint], dtype=var.checked_type.dtype)
        if var.name_hint in shapes
        else var
        for var in main.params
    ]
    body = relay.bind(main.body, dict(zip(main.params, new, strict=True)))
    result = tvm.IRModule(dict(mod.functions.items()), mod.type_definitions)
    result["main"] = relay.Function(new, body, attrs=main.attrs)
    return relay.transform.InferType()(result)
