"""Reading ONNX files."""

from __future__ import annotations

import os

import onnx
from google.protobuf.message import DecodeError

from .errors import ImportModelError


def read_model(source: str | os.PathLike[str] | onnx.ModelProto) -> onnx.ModelProto:
    """The model in ``source``, external data included.

    Raises
    ------
    ImportModelError
        No such file, no ONNX model in it, no graph in the model, or external data that is missing.
    """
    if isinstance(source, onnx.ModelProto):
        return _checked(source, "the given model")
    if not isinstance(source, (str, os.PathLike)):
        raise ImportModelError(f"A model is a file name or an onnx.ModelProto, not {type(source).__name__}.")
    path = os.fspath(source)
    if not os.path.isfile(path):
        what = "is a directory" if os.path.isdir(path) else "does not exist"
        raise ImportModelError(f"{path} {what}; an ONNX file is needed.")
    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError, EOFError) as error:
        raise ImportModelError(f"{path} is not an ONNX model, or is cut off: {_one_line(error)}.") from error
    except OSError as error:
        raise ImportModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        onnx.load_external_data_for_model(model, os.path.dirname(os.path.abspath(path)))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ImportModelError(f"External data of {path} cannot be read: {_one_line(error)}.") from error
    return _checked(model, path)


def opset_of(model: onnx.ModelProto) -> int:
    """Version of the default operator set; 1 when the model imports none, as the standard has it."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _checked(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """A protobuf reader takes almost any bytes for a message, so look for what a model must have."""
    if not model.ir_version or not model.graph.output:
        raise ImportModelError(f"{where} is not an ONNX model: it has no IR version or no graph outputs.")
    external = [t.name for t in model.graph.initializer if onnx.external_data_helper.uses_external_data(t)]
    if external:
        raise ImportModelError(
            f"Initializer {external[0]!r} of {where} is in an external file; load it with onnx.load first."
        )
    return model
