"""Canonicalise: one normal form for what networks write in many ways, before anything is matched."""

from __future__ import annotations

import tvm
from tvm import relay
from tvm_dnnfusion.passes.eliminate_common import CommonExpressions
from tvm_dnnfusion.passes.fold_constants import ConstantFolder, rewrite_functions
from tvm_dnnfusion.passes.fold_scale import ScaleFolder, has_scales
from tvm_dnnfusion.passes.simplify_movement import MovementSimplifier
from tvm_dnnfusion.passes.stock_pass import run

from tvm_dnnfusion.node_fields import copy_call
from tvm_dnnfusion.relay_graph import visit_order


class Canonicalizer(ConstantFolder):
    """Constants folded, data movement simplified, bias_add made an add, equal expressions made one."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._movement = MovementSimplifier(self.types)
        self._common = CommonExpressions()

    def rewrite_call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        folded = super().rewrite_call(call, name, args)
        if folded is not None:
            return folded
        if name == "nn.bias_add":
            return self._add_of_bias(call, args)
        if name == "annotation.stop_fusion" and isinstance(args[0], relay.Call) and args[0].op == call.op:
            return args[0]  # stock Legalize puts one more around a dynamic slice at every run
        if name in _CONVOLUTIONS:
            return self._with_explicit_kernel(call, name, args)
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
        value = self.value(bias) if isinstance(bias, relay.Constant) else None
        if value is not None:
            return self.constant(value.reshape(*value.shape, *[1] * trailing), bias.span)
        expanded = relay.expand_dims(bias, axis=1, num_newaxis=trailing)
        shape, bias_type = self._movement.shape_of(bias), self._movement.type_of(bias)
        if shape is not None:
            dtype = bias.checked_type.dtype if bias_type is None else bias_type.dtype
            self._movement.remember_type(expanded, relay.TensorType((*shape, *[1] * trailing), dtype))
        return expanded

    def _with_explicit_kernel(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        """Kernel size and channels, which Relay allows to be left out and layout passes fail without."""
        attrs = call.attrs
        if attrs.kernel_size is not None and attrs.channels is not None:
            return None
        kernel = self.types.shape(call.args[1].checked_type)
        layout = str(attrs.kernel_layout)
        if kernel is None or len(layout) != len(kernel):
            return None
        fields = {str(key): attrs[key] for key in attrs.keys()}  # noqa: SIM118  (attributes are no mapping)
        fields["channels"] = kernel[layout.index("O")]
        fields["kernel_size"] = [kernel[layout.index(axis)] for axis in layout if axis not in "OI"]
        node = tvm.ir.make_node(_CONVOLUTIONS[name], **fields)
        return copy_call(call, call.op, args, node)


_CONVOLUTIONS = {
    "nn.conv1d": "relay.attrs.Conv1DAttrs",
    "nn.conv2d": "relay.attrs.Conv2DAttrs",
    "nn.conv3d": "relay.attrs.Conv3DAttrs",
}

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


def operator_names(mod: tvm.IRModule) -> set[str]:
    """The names of the operators called anywhere in ``mod``."""
    # TVM counts in @main only.
    modules = (
        tvm.IRModule.from_expr(function, type_defs=mod.type_definitions)
        for function in mod.functions.values()
        if isinstance(function, relay.Function)
    )
    return {str(name) for module in modules for name in relay.analysis.list_op_freqs(module)}


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.Canonicalize")
class Canonicalize:
    """Pass that brings a module into normal form.

    In order: QNN operators become plain ones; shapes that turn out constant become static; batch, layer,
    group and instance norm and dropout become primitive operators; constants are folded, ``bias_add`` becomes
    ``add``, data movement is simplified and equal expressions become one; scales of a batch norm are folded
    into the weights of their convolution.

    Control flow, dynamic shapes and further functions stay, as do the types of all outputs. Stock
    ``SimplifyExpr`` is not run: its factoring of binomials is wrong for integers and tensor coefficients.

    Parameters
    ----------
    fold_scales
        Whether weights may be scaled; this rounds differently from scaling the result.
    """

    def __init__(self, fold_scales: bool = True) -> None:
        self._fold_scales = fold_scales

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """``mod`` in normal form, types inferred."""
        mod = relay.transform.InferType()(mod)
        names = operator_names(mod)
        if any(name.startswith("qnn.") for name in names):
            mod = _without_qnn(mod)
        if any(name.startswith("dyn.") for name in names):
            mod = rewrite_functions(mod, ConstantFolder)
            if _has_constant_shape(mod):
                mod = run(relay.transform.DynamicToStatic(), mod)
        if names & _INFERENCE_OPERATORS:
            mod = run(relay.transform.SimplifyInference(), mod)
        mod = rewrite_functions(mod, Canonicalizer)
        if "nn.space_to_batch_nd" in names:
            mod = run(relay.transform.FlattenAtrousConv(), mod)
        names = operator_names(mod)
        if self._fold_scales and has_scales(names):
            mod = rewrite_functions(mod, ScaleFolder)
        return mod


def _has_constant_shape(mod: tvm.IRModule) -> bool:
    """Whether a dynamic operator's shape turned out constant.

    Stock ``DynamicToStatic`` infers types anew around each dynamic operator, a minute for a detector in which
    none can become static, so it is run only where it has something to do.
    """
    return any(
        _is_static_in_disguise(visit.children)
        for function in mod.functions.values()
        if isinstance(function, relay.Function)
        for visit in visit_order(function)
        if isinstance(visit.expr, relay.Call)
    )


def _is_static_in_disguise(children: list[relay.Expr]) -> bool:
    op, *args = children
    if not isinstance(op, tvm.ir.Op) or not op.name.startswith("dyn."):
        return False
    shapes = args if op.name in ("dyn.zeros", "dyn.ones") else args[1:]
    return all(isinstance(shape, relay.Constant) for shape in shapes)


def _without_qnn(mod: tvm.IRModule) -> tvm.IRModule:
    """What ``relay.qnn.transform.CanonicalizeOps`` does, at any optimisation level."""
    for attribute in ("FTVMQnnLegalize", "FTVMQnnCanonicalize"):
        mod = run(relay.transform.Legalize(attribute), mod)
    return mod
