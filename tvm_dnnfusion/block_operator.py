"""The Relay operators ``dnnfusion.block1`` to ``dnnfusion.block128`` that carry fused groups.

A primitive function is no safe carrier of a plan: ``relay.build`` runs its prefix passes inside it
(layouts are altered, weights repacked at every run), and with Ansor it is dissolved and fused again
by stock rules. A call of an opaque operator is left alone by every stock pass, and its compute and
schedule are ours. One operator per number of tensor inputs: a single tuple argument computes wrong
results under the AOT executor.
"""

from __future__ import annotations

import tvm
from tvm import relay, te
from tvm.relay.op import op as _op
from tvm.target import override_native_generic_func

from .block_body import decode_body
from .block_lowering import LoweredBlock, lower_body
from .errors import BlockError
from .node_fields import field_of, items, make_call, shape_of, structural_equal
from .schedules.registry import schedule_block

MAX_BLOCK_INPUTS = 128
PREFIX = "dnnfusion.block"


def is_block(expr: relay.Expr) -> bool:
    """True for a call of a block operator."""
    return isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name.startswith(PREFIX)


def block_text(call: relay.Call) -> str:
    """The body text that a block call carries."""
    return _attribute(call.attrs, "body")


def block_mapping_type(call: relay.Call) -> str:
    """The mapping type by Table 3 that a block call carries, such as ``Many-to-Many``."""
    return _attribute(call.attrs, "mapping_type")


def _attribute(attrs: tvm.ir.Attrs, name: str) -> str:
    """An attribute of a block call.

    Relay prints a ``DictAttrs`` as one attribute ``__dict__``, and its parser takes that for an attribute of
    this name: it is looked through, so that printed modules can be read again.
    """
    try:
        return str(field_of(attrs, name))
    except AttributeError:
        fields = attrs
    while name not in fields.keys() and "__dict__" in fields.keys():  # noqa: SIM118 (TVM's have no __contains__)
        fields = fields["__dict__"]
    return str(fields[name])


def make_block(
    text: str, args: list[relay.Expr], mapping_type: str, span: relay.Span | None = None
) -> relay.Call:
    """A block call.

    Parameters
    ----------
    text
        Body, as :func:`tvm_dnnfusion.block_body.encode_body` writes it.
    args
        One tensor per input of the body, 1 to 128.
    mapping_type
        The block's type by Table 3, kept for people and for unsealing.

    Raises
    ------
    BlockError
        More than 128 inputs, or none.
    """
    if not 1 <= len(args) <= MAX_BLOCK_INPUTS:
        raise BlockError(f"a block of {len(args)} inputs; 1 to {MAX_BLOCK_INPUTS} are accepted")
    attrs = tvm.ir.make_node("DictAttrs", body=text, mapping_type=mapping_type)
    return make_call(relay.op.get(f"{PREFIX}{len(args)}"), args, attrs, span)


def _same_type(a: relay.TensorType, b: relay.TensorType) -> bool:
    """Equal dtype and extents, whatever integer types the extents have: TVM mixes int32 and int64."""
    if structural_equal(a, b):  # one call of C++ instead of one per extent
        return True
    return field_of(a, "dtype") == field_of(b, "dtype") and shape_of(a) == shape_of(b)


def _type_relation(arg_types: list[relay.Type], attrs: tvm.ir.Attrs) -> relay.Type | None:
    body = decode_body(_attribute(attrs, "body"))
    given_types = items(arg_types)
    if len(given_types) != len(body.inputs):
        raise BlockError(f"a block of {len(given_types)} inputs has a body of {len(body.inputs)}")
    for given, taken in zip(given_types, body.inputs, strict=True):
        if isinstance(given, relay.TensorType) and not _same_type(given, taken):
            raise BlockError(f"a block's input is {given}, but its body takes {taken}")
    return body.output


@override_native_generic_func("dnnfusion_block_strategy")
def _block_strategy(
    attrs: tvm.ir.Attrs, inputs: list[te.Tensor], out_type: relay.Type, target: tvm.target.Target
) -> _op.OpStrategy:
    """One implementation whose schedule sees what its compute lowered."""
    lowered: list[LoweredBlock] = []

    def compute(attrs: tvm.ir.Attrs, inputs: list[te.Tensor], out_type: relay.Type) -> list[te.Tensor]:
        lowered[:] = [lower_body(decode_body(_attribute(attrs, "body")), list(inputs), target)]
        return list(lowered[0].outputs)

    def schedule(attrs: tvm.ir.Attrs, outs: list[te.Tensor], target: tvm.target.Target) -> te.Schedule:
        with target:
            return schedule_block(lowered[0])

    strategy = _op.OpStrategy()
    strategy.add_implementation(compute, schedule, name="dnnfusion.block")
    return strategy


def _register(arity: int) -> None:
    name = f"{PREFIX}{arity}"
    _op.register(name, f"A fused group of operators with {arity} tensor inputs.")
    operator = relay.op.get(name)
    operator.set_num_inputs(arity)
    for i in range(arity):
        operator.add_argument(f"x{i}", "Tensor", "An input of the group.")
    operator.set_attrs_type_key("DictAttrs")
    operator.add_type_rel(f"DnnfusionBlock{arity}", _type_relation)
    operator.set_support_level(10)
    _op.register_pattern(name, _op.OpPattern.OPAQUE)
    _op.register_stateful(name, False)
    _op.register_strategy(name, _block_strategy)


def register_block_operators() -> None:
    """Register every arity, once per process, so that a saved module loads after importing the package."""
    if f"{PREFIX}1" not in tvm.ir.Op.list_op_names():
        for arity in range(1, MAX_BLOCK_INPUTS + 1):
            _register(arity)
