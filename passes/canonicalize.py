"""Canonicalise: one normal form for what networks write in many ways, before anything is matched or planned."""

from __future__ import annotations

import logging
from collections.abc import Set

import tvm
from tvm import relay

from tvm_dnnfusion.passes.eliminate_common import CommonExpressions
from tvm_dnnfusion.passes.fold_constants import ConstantFolder, rewrite_functions
from tvm_dnnfusion.passes.simplify_movement import MovementSimplifier, static_shape
from tvm_dnnfusion.passes.stock_pass import run, run_where_possible

logger = logging.getLogger(__name__)


class Canonicalizer(ConstantFolder):
    """Constants folded, data movement simplified, bias_add made an add, equal expressions made one."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._movement = MovementSimplifier()
        self._common = CommonExpressions()

    def rewrite_call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        folded = super().rewrite_call(call, name, args)
        if folded is not None:
            return folded
        if name == "nn.bias_add":
            return self._add_of_bias(call, args)
        return self._movement.simplified(call, name, args)

    def finish(self, expr: relay.Expr, scope: int) -> relay.Expr:
        return self._common.representative(expr, scope)

    def _add_of_bias(self, call: relay.Call, args: list[relay.Expr]) -> relay.Expr | None:
        """``bias_add(x, b)`` as ``x + b`` with ``b`` expanded to the rank behind its axis.

        That is what stock ``CanonicalizeOps`` makes of it before it alters layouts, and one operator fewer
        for every later rule to know.
        """
        data, bias = args
        axis = int(call.attrs.axis)
        trailing = -axis - 1 if axis < 0 else len(call.checked_type.shape) - axis - 1
        if trailing:
            bias = self._expanded(bias, trailing)
        result = relay.Call(relay.op.get("add"), [data, bias], None, None, call.span)
        self._movement.remember_type(result, call.checked_type)
        return result

    def _expanded(self, bias: relay.Expr, trailing: int) -> relay.Expr:
        value = self._value(bias) if isinstance(bias, relay.Constant) else None
        if value is not None:
            return self._constant(value.reshape(*value.shape, *[1] * trailing), bias.span)
        expanded = relay.expand_dims(bias, axis=1, num_newaxis=trailing)
        shape = static_shape(self._movement.type_of(bias))
        if shape is not None:
            type_ = relay.TensorType((*shape, *[1] * trailing), self._movement.type_of(bias).dtype)
            self._movement.remember_type(expanded, type_)
        return expanded


# What src/relay/transforms/simplify_inference.cc takes apart.
_INFERENCE_OPERATORS = frozenset(
    {
        "nn.batch_norm",
        "nn.layer_norm",
        "nn.group_norm",
        "nn.instance_norm",
        "nn.dropout",
        "nn.l2_normalize",
    }
)
_SCALED_OPERATORS = frozenset({"nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose", "nn.dense"})


def operator_names(mod: tvm.IRModule) -> Set[str]:
    """The names of the operators called anywhere in ``mod``."""
    return {str(name) for name in relay.analysis.list_op_freqs(mod)}


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.Canonicalize")
class Canonicalize:
    """Pass that brings a module into normal form.

    In order: QNN operators become plain ones; shapes that turn out constant become static; batch, layer, group
    and instance norm and dropout become primitive operators; constants are folded, ``bias_add`` becomes ``add``,
    data movement is simplified and equal expressions become one; scales of a batch norm are folded into the
    weights of their convolution (``ForwardFoldScaleAxis``, ``BackwardFoldScaleAxis``).

    Control flow, dynamic shapes and further functions stay, as do the types of all outputs. Stock
    ``SimplifyExpr`` is not run: its factoring of binomials is wrong for integers and tensor coefficients.

    Parameters
    ----------
    fold_scale_axis
        Whether weights may be scaled; this rounds differently from scaling the result.
    """

    def __init__(self, fold_scale_axis: bool = True) -> None:
        self._fold_scale_axis = fold_scale_axis

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """``mod`` in normal form, types inferred."""
        names = operator_names(mod)
        if any(name.startswith("qnn.") for name in names):
            mod = _without_qnn(mod)
        if any(name.startswith("dyn.") for name in names):
            mod = rewrite_functions(mod, ConstantFolder)
            mod = run(relay.transform.DynamicToStatic(), mod)
        if names & _INFERENCE_OPERATORS:
            mod = run(relay.transform.SimplifyInference(), mod)
        mod = rewrite_functions(mod, Canonicalizer)
        if "nn.space_to_batch_nd" in names:
            mod = run(relay.transform.FlattenAtrousConv(), mod)
        names = operator_names(mod)
        if self._fold_scale_axis and "multiply" in names and names & _SCALED_OPERATORS:
            mod = _with_folded_scales(mod)
        return relay.transform.InferType()(mod)


def _without_qnn(mod: tvm.IRModule) -> tvm.IRModule:
    """What ``relay.qnn.transform.CanonicalizeOps`` does, at any optimisation level."""
    for attribute in ("FTVMQnnLegalize", "FTVMQnnCanonicalize"):
        mod = run(relay.transform.Legalize(attribute), mod)
    return mod


def _with_folded_scales(mod: tvm.IRModule) -> tvm.IRModule:
    """Scales moved to constant weights, then folded; a function on which TVM fails keeps its scales."""
    passes = [relay.transform.BackwardFoldScaleAxis(), relay.transform.ForwardFoldScaleAxis()]
    scaled, refusals = run_where_possible(passes, mod)
    for name, reason in refusals.items():
        logger.warning("scales of @%s are not folded into weights: %s", name, reason)
    return rewrite_functions(scaled, ConstantFolder)
