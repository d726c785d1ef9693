"""Terms -> Relay: the expressions of a function, some of its terms replaced by cheaper ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm import relay

from tvm_dnnfusion.passes.graph_rewriter import GraphRewriter
from tvm_dnnfusion.passes.numpy_operators import constructor
from tvm_dnnfusion.passes.tensor_memory import tensor_of
from tvm_dnnfusion.relay_graph import key_of

from ..ecg import TensorInfo
from ..relay_span import span_of
from .operators import BINARY, REDUCTIONS, UNARY_FLOAT, Attributes
from .operators_linear import CONVOLUTIONS, TRANSPOSED
from .relay_terms import Imported
from .terms import Form

Exprs = list[relay.Expr]
_Builder = Callable[[Exprs, Attributes, TensorInfo], relay.Expr]

SPAN_PREFIX = "rule:"


def span_of_rule(name: str) -> relay.Span:
    """Where a call comes from that the rule ``name`` made."""
    return span_of(SPAN_PREFIX + name)


class TermEmitter:
    """Rebuilds the expressions of a function.

    Parameters
    ----------
    imported
        The function's terms.
    replaced
        Per term that is to be replaced, what replaces it.
    origins
        Per new term, the rule that made it.
    """

    def __init__(self, imported: Imported, replaced: Mapping[int, int], origins: Mapping[int, str]) -> None:
        self._imported = imported
        self._graph = imported.graph
        self._replaced = replaced
        self._origins = origins
        self._rewritten: dict[int, relay.Expr] = {}
        self._emitted: dict[int, relay.Expr] = {}

    def rebuilt(self, root: relay.Expr) -> relay.Expr:
        """``root``, the function's body, on the new terms; what nothing reads any more is not built."""
        for visit in self._imported.order:
            key = key_of(visit.expr)
            number = self._imported.numbers.get(key)
            if number is not None and number in self._replaced:
                self._rewritten[key] = self._emit(self._replaced[number])
            elif visit.children:
                children = [self._rewritten[key_of(child)] for child in visit.children]
                self._rewritten[key] = GraphRewriter.rebuilt(visit, children)
            else:
                self._rewritten[key] = visit.expr
        return self._rewritten[key_of(root)]

    def _emit(self, root: int) -> relay.Expr:
        pending = [root]
        while pending:
            number = pending[-1]
            if number in self._emitted:
                pending.pop()
                continue
            known = self._original(number)
            if known is None:
                operands = self._graph.forms[number].operands
                missing = (
                    [] if self._graph.is_constant(number) else [o for o in operands if o not in self._emitted]
                )
                if missing:
                    pending.extend(missing)
                    continue
                known = self._made(number)
            self._emitted[number] = known
            pending.pop()
        return self._emitted[root]

    def _original(self, number: int) -> relay.Expr | None:
        """The function's own expression of a term, where it has been rebuilt already."""
        form = self._graph.forms[number]
        if not form.operator and form.attributes[0][0] == "key":
            return self._rewritten[form.attributes[0][1]]
        expr = self._imported.exprs.get(number)
        return None if expr is None else self._rewritten.get(key_of(expr))

    def _made(self, number: int) -> relay.Expr:
        form = self._graph.forms[number]
        span = self._span(number)
        if self._graph.is_constant(number):
            return relay.Constant(tensor_of(self._graph.value(number)), span)
        operands = [self._emitted[o] for o in form.operands]
        source = self._source(number, form)
        if source is not None:
            return relay.Call(source.op, operands, source.attrs, None, span)
        if form.operator in _PLAIN:
            return relay.Call(relay.op.get(form.operator), operands, None, None, span)
        made = build_call(form.operator, operands, dict(form.attributes), self._graph.infos[number])
        return relay.Call(made.op, made.args, made.attrs, made.type_args, span)

    def _source(self, number: int, form: Form) -> relay.Call | None:
        """The model's call of the same operator with the same attributes, on other operands."""
        while number in self._graph.sources and number not in self._origins:
            number = self._graph.sources[number]
        expr = self._imported.exprs.get(number)
        known = self._graph.forms[number]
        same = known.operator == form.operator and known.attributes == form.attributes
        if not isinstance(expr, relay.Call) or not same or form.operator in ("concatenate", "strided_slice"):
            return None
        return expr

    def _span(self, number: int) -> relay.Span | None:
        """A rule's name for what a rule made, or where the model has the call that is only rebuilt."""
        while number not in self._origins and number in self._graph.sources:
            number = self._graph.sources[number]
        if number in self._origins:
            return span_of_rule(self._origins[number])
        expr = self._imported.exprs.get(number)
        return None if expr is None else expr.span


def build_call(
    operator: str, operands: Sequence[relay.Expr], attributes: Attributes, output: TensorInfo
) -> relay.Call:
    """The Relay call of a term's operator, whose result is of type ``output``."""
    return _BUILDERS[operator](list(operands), attributes, output)


def _plain(name: str) -> _Builder:
    make = constructor(name)
    return lambda operands, attributes, output: make(*operands)


def _reduction(name: str) -> _Builder:
    make = constructor(name)
    return lambda operands, attributes, output: make(
        operands[0], axis=list(attributes["axes"]), keepdims=attributes["keepdims"]
    )


def _convolution(name: str) -> _Builder:
    make = constructor(name)

    def build(operands: Exprs, attributes: Attributes, output: TensorInfo) -> relay.Expr:
        given = {k: list(v) if isinstance(v, tuple) else v for k, v in attributes.items()}
        return make(*operands, channels=output.shape[1], **given)

    return build


def _slice(operands: Exprs, attributes: Attributes, output: TensorInfo) -> relay.Expr:
    bounds = (list(attributes[name]) for name in ("begin", "end", "strides"))
    return relay.strided_slice(operands[0], *bounds)


# Operators without attributes.
_PLAIN = frozenset((*UNARY_FLOAT, *BINARY, "bitwise_not", "logical_not", "where"))

_BUILDERS: dict[str, _Builder] = {
    **{name: _plain(name) for name in _PLAIN},
    **{name: _reduction(name) for name in REDUCTIONS},
    **{name: _convolution(name) for name in (*CONVOLUTIONS, *TRANSPOSED)},
    "nn.dense": lambda operands, a, output: relay.nn.dense(*operands, units=output.shape[-1]),
    "reshape": lambda operands, a, output: relay.reshape(operands[0], list(a["shape"])),
    "broadcast_to": lambda operands, a, output: relay.broadcast_to(operands[0], list(a["shape"])),
    "transpose": lambda operands, a, output: relay.transpose(operands[0], list(a["axes"])),
    "strided_slice": _slice,
    "concatenate": lambda operands, a, output: relay.concatenate(operands, a["axis"]),
    "nn.softmax": lambda operands, a, output: relay.nn.softmax(operands[0], a["axis"]),
    "nn.pad": lambda operands, a, output: relay.nn.pad(operands[0], a["pad_width"], operands[1]),
    "take": lambda operands, a, output: relay.take(operands[0], operands[1], a["axis"], mode="clip"),
    "nn.matmul": lambda operands, a, output: relay.nn.matmul(*operands, **a),
    "nn.batch_matmul": lambda operands, a, output: relay.nn.batch_matmul(*operands, **a),
    "cast": lambda operands, a, output: relay.cast(operands[0], a["dtype"]),
    "clip": lambda operands, a, output: relay.clip(operands[0], a["a_min"], a["a_max"]),
    "nn.leaky_relu": lambda operands, a, output: relay.nn.leaky_relu(operands[0], a["alpha"]),
}
