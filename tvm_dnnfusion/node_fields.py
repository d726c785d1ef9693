"""Reading and making TVM's objects with as little Python as possible.

A pass reads tens of fields per operator, and the ``ctypes`` FFI of TVM's wheels spends 10 to 20 us on each:
most of it on finding out what kinds of arguments a call has. Here the kinds are known, argument buffers are
made once, and the C functions (``TVMFuncCall`` in ``src/runtime/c_runtime_api.cc``) are called through a
handle that keeps the interpreter's lock, so that no two threads ever share the buffers. Where TVM was built
with its Cython FFI, TVM's own way is as fast and is taken.

What comes back is what attribute access gives: TVM objects, or Python numbers and strings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relay
from tvm._ffi.base import _LIB, raise_last_ffi_error
from tvm._ffi.runtime_ctypes import ArgTypeCode
from tvm.relay.expr import CallWithFields
from tvm.runtime.object_generic import ObjectGeneric
from tvm.runtime.packed_func import PackedFuncBase

_OBJECT, _INT, _STR, _NULL = ArgTypeCode.OBJECT_HANDLE, ArgTypeCode.INT, ArgTypeCode.STR, ArgTypeCode.NULL


class _CtypesReader:
    """Calls whose arguments are of known kinds, through buffers that are used again and again."""

    def __init__(self) -> None:
        from tvm._ffi._ctypes.object import OBJECT_TYPE
        from tvm._ffi._ctypes.types import RETURN_SWITCH, TVMValue

        library = ctypes.PyDLL(_LIB._name)
        self._classes, self._converters = OBJECT_TYPE, RETURN_SWITCH
        self._call, self._type_index = library.TVMFuncCall, library.TVMObjectGetTypeIndex
        self._values, self._codes = (TVMValue * 2)(), (ctypes.c_int * 2)()
        self._value_type = TVMValue
        self._object, self._argument = self._values[0], self._values[1]
        self._codes[0] = _OBJECT
        self._result, self._code, self._index = TVMValue(), ctypes.c_int(), ctypes.c_uint()
        self._result_ref, self._code_ref = ctypes.byref(self._result), ctypes.byref(self._code)
        self._index_ref = ctypes.byref(self._index)
        self._names: dict[str, bytes] = {}
        self._functions = {
            name: tvm.get_global_func(name)
            for name in (
                "node.NodeGetAttr",
                "node.StructuralHash",
                "runtime.ArraySize",
                "runtime.ArrayGetItem",
                "runtime.Array",
                "relay.ir.Call",
                "relay.ir.CallWithFields",
                "node.StructuralEqual",
            )
        }
        handles = [function.handle for function in self._functions.values()]
        self._get_attr, self._hash, self._size, self._item, self._array, *makers, self._equal = handles
        self._call_of, self._copy_of = makers
        self._pair, self._pair_codes = (TVMValue * 4)(), (ctypes.c_int * 4)(_OBJECT, _OBJECT, _INT, _INT)
        # Classes made by their handle alone; String and the like have a constructor of their own.
        self._plain_classes: dict[int, type | None] = {}
        self._no_types = self.array([])

    def field(self, node: Any, name: str) -> Any:
        encoded = self._names.get(name)
        if encoded is None:
            encoded = self._names[name] = name.encode()
        self._argument.v_str = encoded
        self._codes[1] = _STR
        return self._of_object(self._get_attr, node.handle, 2)

    def items(self, array: Any) -> list[Any]:
        handle, found = array.handle, []
        count = self._of_object(self._size, handle, 1)
        for position in range(count):
            self._argument.v_int64 = position
            self._codes[1] = _INT
            found.append(self._of_object(self._item, handle, 2))
        return found

    def structural_hash(self, node: Any) -> int:
        self._argument.v_int64 = 0
        self._codes[1] = _INT
        return self._of_object(self._hash, node.handle, 2)

    def structural_equal(self, a: Any, b: Any) -> bool:
        self._pair[0].v_handle, self._pair[1].v_handle = a.handle, b.handle
        return bool(self._invoke(self._equal, self._pair, self._pair_codes, 4))

    def array(self, items: Sequence[Any]) -> Any:
        return self._of_objects(self._array, items)

    def call(self, op: Any, args: Sequence[Any], attrs: Any, span: Any) -> relay.Call:
        return self._of_objects(self._call_of, (op, self.array(args), attrs, self._no_types, span))

    def call_like(self, call: Any, op: Any, args: Sequence[Any], attrs: Any, types: Any) -> relay.Call:
        fields = (call, op, self.array(args), attrs, self._no_types if types else None, None, None)
        return self._of_objects(self._copy_of, fields)

    def _of_object(self, function: Any, handle: Any, count: int) -> Any:
        self._object.v_handle = handle
        return self._invoke(function, self._values, self._codes, count)

    def _of_objects(self, function: Any, objects: Sequence[Any]) -> Any:
        values, codes = (self._value_type * len(objects))(), (ctypes.c_int * len(objects))()
        for position, value in enumerate(objects):
            codes[position] = _NULL if value is None else _OBJECT
            values[position].v_handle = None if value is None else value.handle
        return self._invoke(function, values, codes, len(objects))

    def _invoke(self, function: Any, values: Any, codes: Any, count: int) -> Any:
        if self._call(function, values, codes, count, self._result_ref, self._code_ref):
            raise_last_ffi_error()
        code = self._code.value
        if code != _OBJECT:
            return self._converters[code](self._result)
        handle = ctypes.c_void_p(self._result.v_handle)
        self._type_index(handle, self._index_ref)
        index = self._index.value
        if index not in self._plain_classes:
            self._plain_classes[index] = self._plain_class(index)
        kind = self._plain_classes[index]
        if kind is None:
            return self._converters[_OBJECT](self._result)
        wrapped: Any = object.__new__(kind)
        wrapped.handle = handle
        return wrapped

    def _plain_class(self, index: int) -> type | None:
        kind = self._classes.get(index)
        return None if kind is None or issubclass(kind, (str, ObjectGeneric)) else kind


class _PlainReader:
    """The same by TVM's own attribute access."""

    field = staticmethod(getattr)
    array = staticmethod(tvm.runtime.convert)
    structural_hash = staticmethod(tvm.ir.structural_hash)
    structural_equal = staticmethod(tvm.ir.structural_equal)

    @staticmethod
    def items(array: Any) -> list[Any]:
        return list(array)

    @staticmethod
    def call(op: Any, args: Sequence[Any], attrs: Any, span: Any) -> relay.Call:
        return relay.Call(op, list(args), attrs, span=span)

    @staticmethod
    def call_like(call: Any, op: Any, args: Sequence[Any], attrs: Any, types: Any) -> relay.Call:
        return CallWithFields(call, op, list(args), attrs, tvm.runtime.convert([]) if types else None)


_HAS_CTYPES_FFI = PackedFuncBase.__module__.startswith("tvm._ffi._ctypes")
_READER: Any = _CtypesReader() if _HAS_CTYPES_FFI else _PlainReader()


def field_of(node: Any, name: str) -> Any:
    """The field ``name`` of a TVM object.

    Raises
    ------
    AttributeError
        It has none.
    """
    return _READER.field(node, name)


def items(array: Any) -> list[Any]:
    """The elements of a TVM array."""
    return _READER.items(array)


def structural_hash(node: Any) -> int:
    """``tvm.ir.structural_hash`` of a node without free variables."""
    return _READER.structural_hash(node)


def structural_equal(a: Any, b: Any) -> bool:
    """``tvm.ir.structural_equal`` of two nodes without free variables."""
    return _READER.structural_equal(a, b)


def make_call(op: Any, args: Sequence[Any], attrs: Any, span: Any = None) -> relay.Call:
    """``relay.Call(op, args, attrs, span=span)``: no type yet, nor types of operands."""
    return _READER.call(op, args, attrs, span)


def copy_call(call: relay.Call, op: Any, args: Sequence[Any], attrs: Any = None) -> relay.Call:
    """``call`` with another callee, arguments and (unless None) attributes; it keeps its span and type.

    Type inference leaves the operands' types on a call and unifies with them when it runs again, so that an
    extent once unknown would stay unknown: for an operator they are dropped.
    """
    return _READER.call_like(call, op, args, attrs, isinstance(op, tvm.ir.Op))


def shape_of(type_: relay.TensorType) -> tuple[int | None, ...]:
    """The extents of a tensor type; None for one that is not known."""
    extents = items(field_of(type_, "shape"))
    return tuple(field_of(e, "value") if type(e) is tvm.tir.IntImm else None for e in extents)


def static_shape(type_: relay.TensorType) -> tuple[int, ...] | None:
    """The extents of a tensor type; None if one of them is not known."""
    shape = shape_of(type_)
    known = tuple(extent for extent in shape if extent is not None)
    return known if len(known) == len(shape) else None
