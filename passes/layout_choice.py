"""Blocked layouts for dense layers and convolutions on x86, chosen from shapes alone.

Stock ``AlterOpLayout`` asks TOPI for each operator's layout, and TOPI builds the operator's whole compute in
TE to find the name of its AutoTVM template: tens of milliseconds a call. Without tuning records the answer
is a formula over extents and vector lanes (``topi/x86/conv2d_avx_common.py``, ``topi/x86/dense.py``), which
the rules here give directly. What they do not cover is asked of TOPI as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import tvm
from tvm import autotvm, relay
from tvm.auto_scheduler import is_auto_scheduler_enabled
from tvm.meta_schedule import is_meta_schedule_enabled
from tvm.target import Target
from tvm.target.x86 import get_simd_32bit_lanes
from tvm_dnnfusion.schedules.conv_tiles import conv2d_blocks, largest_block
from tvm_dnnfusion.schedules.gemm_tiles import pack_width

from tvm_dnnfusion.block_attributes import encode_attributes, make_attributes, plain_attributes
from tvm_dnnfusion.node_fields import field_of, items, make_call, static_shape
from tvm_dnnfusion.relay_graph import visit_order

# (attributes, operands, their types and the result's) -> the operator in its new layout, or None.
Rule = Callable[[Any, Any, Any, int], "relay.Expr | None"]

_FLOATS = frozenset({"float16", "float32", "float64"})


def _tensors(types: Sequence[Any], out_type: relay.Type) -> list[tuple[tuple[int, ...], str]] | None:
    """Shape and dtype of operands and result; None unless all are static and of one floating type."""
    found = [(static_shape(t), field_of(t, "dtype")) for t in (*items(types), out_type)]
    static = [(shape, dtype) for shape, dtype in found if shape is not None]
    if len({dtype for _, dtype in found}) != 1 or found[0][1] not in _FLOATS:
        return None
    return static if len(static) == len(found) else None


def _dense(attrs: Any, args: Any, tensors: list[tuple[tuple[int, ...], str]], lanes: int) -> relay.Expr:
    """Weights in panels of output channels, ``[N/b][K][b]``, as wide as the register tile of our schedule.

    Where vectors do not divide the channels they are TOPI's: up to two vectors.
    """
    (rows, depth), dtype = tensors[0]
    columns = tensors[1][0][0]
    block = pack_width(rows, columns, depth, dtype, Target.current(allow_none=False))
    block = block or largest_block(columns, 2 * lanes)
    packed = make_attributes(
        "relay.attrs.DensePackAttrs",
        units=attrs.units,
        out_dtype=attrs.out_dtype,
        weight_layout=f"NC{block}n",
    )
    return make_call(relay.op.get("nn.contrib_dense_pack"), args, packed)


def _conv2d(
    attrs: Any, args: Any, tensors: list[tuple[tuple[int, ...], str]], lanes: int
) -> relay.Expr | None:
    """Channels in blocks of up to one vector, so that a tensor's writer and its readers agree.

    TOPI's formula gives inputs no larger a block than outputs, and so a conversion where they differ.
    """
    (data, _), (kernel, _) = tensors[:2]
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW":
        return None
    if attrs.groups != 1 and not data[1] == kernel[0] == attrs.groups:
        return None
    in_block, out_block = conv2d_blocks(data[1], kernel[0], lanes)
    depthwise = attrs.groups != 1
    fields = {
        **vars(attrs),
        "channels": kernel[0],
        "data_layout": f"NCHW{in_block}c",
        "kernel_layout": f"OIHW{1 if depthwise else in_block}i{out_block}o",
        "out_layout": f"NCHW{out_block}c",
    }
    name = "nn.contrib_depthwise_conv2d_NCHWc" if depthwise else "nn.contrib_conv2d_NCHWc"
    return make_call(relay.op.get(name), args, make_attributes("relay.attrs.Conv2DAttrs", **fields))


_RULES: dict[str, Rule] = {"nn.dense": _dense, "nn.conv2d": _conv2d}
# What stock Legalize does for these on x86 concerns other dtypes than float32, or dynamic shapes, alone
# (dense_alter_op.py, conv2d_alter_op.py and math_alter_op.py in topi/x86, take_legalize in topi).
_LEGAL_IN_FLOAT32 = frozenset({"nn.dense", "nn.conv2d", "nn.batch_matmul", "erf", "take"})


def is_x86(target: Target) -> bool:
    """Whether TOPI's kernels for x86 are the ones that ``target`` gets."""
    return target.kind.name == "llvm" and list(target.keys) == ["cpu"]


def covers(target: Target) -> bool:
    """Whether the formulas hold: x86 without a library, tuning records or a search that asks for layouts."""
    return (
        is_x86(target)
        and not list(target.libs)
        and not _has_records(autotvm.DispatchContext.current)
        and not is_auto_scheduler_enabled()
        and not is_meta_schedule_enabled()
    )


def _has_records(context: autotvm.DispatchContext) -> bool:
    """Whether tuning records are in force: the caller's, or TopHub's."""
    if isinstance(context, autotvm.task.ApplyHistoryBest):
        return bool(context.best_by_model or context.best_by_targetkey)
    return not isinstance(context, autotvm.FallbackContext)


@contextmanager
def chosen_layouts(target: Target) -> Iterator[None]:
    """Within the context, ``AlterOpLayout`` asks the rules of this module first.

    Operators hold one rule per attribute, so TVM's are replaced and put back at the end.
    """
    if not covers(target):
        yield
        return
    lanes = get_simd_32bit_lanes()
    with ExitStack() as stack:
        for name, rule in _RULES.items():
            stack.enter_context(_replaced(name, _altering(rule, lanes)))
        yield


@contextmanager
def _replaced(name: str, make: Callable[[Any], Callable[..., Any]]) -> Iterator[None]:
    """An operator's layout rule replaced by ``make(stock)`` for as long as the context lasts."""
    op, attribute = relay.op.get(name), "FTVMAlterOpLayout"
    stock = op.get_attr(attribute)
    op.reset_attr(attribute)
    op.set_attr(attribute, make(stock))
    try:
        yield
    finally:
        op.reset_attr(attribute)
        op.set_attr(attribute, stock)


def _altering(rule: Rule, lanes: int) -> Callable[[Any], Callable[..., Any]]:
    def make(stock: Any) -> Callable[..., Any]:
        def alter(attrs: Any, args: Any, types: Any, out_type: relay.Type) -> relay.Expr | None:
            tensors = _tensors(types, out_type)
            if tensors is not None:
                altered = rule(plain_attributes(encode_attributes(attrs)), items(args), tensors, lanes)
                if altered is not None:
                    return altered
            return stock(attrs, args, types, out_type)

        return alter

    return make


def needs_legalising(mod: tvm.IRModule, names: set[str], target: Target) -> bool:
    """Whether stock ``Legalize`` may change a typed module with the operators ``names``."""
    legalised = {name for name in names if relay.op.get(name).get_attr("FTVMLegalize") is not None}
    if not legalised or not legalised <= _LEGAL_IN_FLOAT32 or not covers(target):
        return bool(legalised)
    functions = [f for f in mod.functions.values() if isinstance(f, relay.Function)]
    dtypes = {str(dtype) for f in functions for dtype in relay.analysis.all_dtypes(f)}
    if any(dtype.startswith(("int8", "uint8", "float", "bfloat")) and dtype != "float32" for dtype in dtypes):
        return True
    return "take" in names and any(_takes_from_dynamic(function) for function in functions)


def _takes_from_dynamic(function: relay.Function) -> bool:
    calls = (v for v in visit_order(function) if isinstance(v.expr, relay.Call))
    takes = (v for v in calls if isinstance(v.children[0], tvm.ir.Op) and v.children[0].name == "take")
    return any(relay.ty.is_dynamic(v.children[1].checked_type) for v in takes)
