"""Operator attributes as JSON values, bit-exact.

Integers, strings, booleans and lists of them are written as they are and floats by ``repr``, which
gives the same double back. What does not come back equal that way is written with
``tvm.ir.save_json``, which is exact but long.
"""

from __future__ import annotations

import functools
import json
import math
from types import SimpleNamespace
from typing import Any

import tvm

from .node_fields import field_of, items

_SAVED = "saved"
_FLOAT = "float"


def _plain(value: Any) -> Any:
    """``value`` as JSON, or raise TypeError."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: repr(value)}
    if isinstance(value, tvm.tir.IntImm):
        number, dtype = field_of(value, "value"), field_of(value, "dtype")
        return number if dtype == "int32" else {"int": number, "dtype": dtype}
    if isinstance(value, tvm.ir.Array):
        return [_plain(v) for v in items(value)]
    if isinstance(value, (str, tvm.runtime.String)):
        return str(value)
    raise TypeError(type(value).__name__)


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(p) for p in plain]
    if isinstance(plain, dict):
        if _FLOAT in plain:
            return float(plain[_FLOAT])
        return tvm.tir.IntImm(plain["dtype"], plain["int"])
    return plain


def _same(a: tvm.ir.Attrs, b: tvm.ir.Attrs) -> bool:
    """Structural equality, with floats to the bit: TVM's own compares doubles to 1e-9."""
    if not tvm.ir.structural_equal(a, b):
        return False
    return all(_bits(field_of(a, name)) == _bits(field_of(b, name)) for name in _fields(a))


def _bits(value: Any) -> str:
    return float(value).hex() if isinstance(value, (float, tvm.tir.FloatImm)) else ""


_FIELDS: dict[type, tuple[str, ...]] = {}
_VERIFIED: set[str] = set()


def _fields(attrs: tvm.ir.Attrs) -> tuple[str, ...]:
    """Names of the fields; remembered per class, as TVM makes its list anew for each object."""
    kind = type(attrs)
    if kind not in _FIELDS:
        names = tuple(attrs.keys())
        if kind is tvm.ir.Attrs:  # a class that Python does not know: it stands for many
            return names
        _FIELDS[kind] = names
    return _FIELDS[kind]


def encode_attributes(attrs: tvm.ir.Attrs | None) -> list[Any] | None:
    """``[type key, {name: value}]``, ``["saved", json]``, or None for an operator without attributes."""
    if attrs is None:
        return None
    key = f"relay.attrs.{type(attrs).__name__}"  # the naming rule of tvm.relay.op.op_attrs; checked below
    try:
        plain = [key, {name: _plain(field_of(attrs, name)) for name in _fields(attrs)}]
        text = json.dumps(plain)
        if text in _VERIFIED or _same(_decode(text), attrs):
            _VERIFIED.add(text)
            return plain
    except (TypeError, tvm.TVMError):
        pass
    return [_SAVED, tvm.ir.save_json(attrs)]


def plain_attributes(encoded: list[Any] | None) -> Any:
    """Encoded attributes as an object with Python's numbers, strings and lists; None for none.

    It is read like the attributes themselves, without a call into TVM per field.
    """
    if encoded is None or encoded[0] == _SAVED:
        return None if encoded is None else decode_attributes(encoded)
    return SimpleNamespace(**{name: _python(value) for name, value in encoded[1].items()})


def make_attributes(type_key: str, **fields: Any) -> tvm.ir.Attrs:
    """Attributes of Python's numbers, strings and lists; equal ones are one object."""
    return _decode(json.dumps([type_key, fields]))


def _python(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_python(p) for p in plain]
    if isinstance(plain, dict):
        return float(plain[_FLOAT]) if _FLOAT in plain else plain["int"]
    return plain


@functools.lru_cache(maxsize=4096)
def _decode(text: str) -> tvm.ir.Attrs:
    key, values = json.loads(text)
    if key == _SAVED:
        return tvm.ir.load_json(values)
    return tvm.ir.make_node(key, **{k: _value(v) for k, v in values.items()})


def decode_attributes(plain: list[Any]) -> tvm.ir.Attrs:
    """The attributes that :func:`encode_attributes` wrote."""
    return _decode(json.dumps(plain))
