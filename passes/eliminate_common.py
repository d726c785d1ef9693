"""Common subexpressions, found by hashing.

Stock ``EliminateCommonSubexpr`` compares each call with every earlier call of its operator: 20 s for a chain
of 10,000 additions. It also moves work across the branches of an ``If``, and knows no equal constants beyond
scalars. Here two nodes are equal if operator, attributes and operands are, in the same scope.
"""

from __future__ import annotations

import tvm
from tvm import relay

from tvm_dnnfusion.node_fields import field_of
from tvm_dnnfusion.relay_graph import CHILDREN, key_of

# Constants up to this size are compared by value; larger ones only by identity, since reading them costs.
COMPARED_BYTES = 1 << 10

_Group = list[tuple[relay.Call, "int | None"]]


class CommonExpressions:
    """The first of each class of equal expressions seen so far."""

    def __init__(self) -> None:
        self._constants: dict[tuple[str, tuple[int, ...], bytes], relay.Constant] = {}
        self._calls: dict[tuple[int, ...], _Group] = {}
        self._others: dict[tuple[int, ...], relay.Expr] = {}
        self._pure: dict[int, bool] = {}

    def representative(self, expr: relay.Expr, scope: int) -> relay.Expr:
        """The earliest expression equal to ``expr`` in ``scope``: ``expr`` itself if there is none.

        Its operands must be representatives already. Operators with state and calls of functions are never
        merged, nor are references.
        """
        kind = type(expr)
        if kind is relay.Constant:
            return self._constant(expr)
        if kind is relay.Call:
            return self._call(expr, scope)
        if kind is relay.Tuple:
            keys = (scope, -1, *(key_of(field) for field in CHILDREN[kind](expr)))
            return self._others.setdefault(keys, expr)
        if kind is relay.TupleGetItem:
            owner, index = field_of(expr, "tuple_value"), field_of(expr, "index")
            return self._others.setdefault((scope, -2, key_of(owner), index), expr)
        return expr

    def _constant(self, constant: relay.Constant) -> relay.Constant:
        data = constant.data
        extents = tuple(data.shape)
        size = 1
        for extent in extents:
            size *= extent
        if size * 8 > COMPARED_BYTES:
            return constant
        key = (str(data.dtype), extents, data.numpy().tobytes())
        return self._constants.setdefault(key, constant)

    def _call(self, call: relay.Call, scope: int) -> relay.Call:
        op, *args = CHILDREN[relay.Call](call)
        if not args or not self._is_pure(op):
            return call
        group = self._calls.setdefault((scope, key_of(op), *(key_of(arg) for arg in args)), [])
        if not group:
            group.append((call, None))
            return call
        return self._in_group(group, call)

    @staticmethod
    def _in_group(group: _Group, call: relay.Call) -> relay.Call:
        """Attributes are read only once operator and operands agree, which is rare."""
        wanted = tvm.ir.structural_hash(call.attrs) if call.attrs is not None else 0
        for position, (other, known) in enumerate(group):
            found = known
            if found is None:
                found = tvm.ir.structural_hash(other.attrs) if other.attrs is not None else 0
                group[position] = (other, found)
            if found == wanted and tvm.ir.structural_equal(other.attrs, call.attrs):
                return other
        group.append((call, wanted))
        return call

    def _is_pure(self, op: relay.Expr) -> bool:
        if not isinstance(op, tvm.ir.Op):
            return False
        key = key_of(op)
        if key not in self._pure:
            opaque = op.name.startswith(("annotation.", "memory.", "vm.", "random.", "on_device"))
            self._pure[key] = not opaque and not op.get_attr("TOpIsStateful")
        return self._pure[key]
