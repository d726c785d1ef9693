"""Layouts that the target's kernels favour, with weights packed at compile time."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import tvm
from tvm import autotvm, relay
from tvm.target import Target
from tvm_dnnfusion.passes.canonicalize import Canonicalizer, operator_names
from tvm_dnnfusion.passes.fold_constants import rewrite_functions
from tvm_dnnfusion.passes.graph_rewriter import GraphRewriter
from tvm_dnnfusion.passes.layout_choice import chosen_layouts, covers, is_x86, needs_legalising
from tvm_dnnfusion.passes.pad_columns import PadColumns
from tvm_dnnfusion.passes.remember_implementations import remembered_implementations
from tvm_dnnfusion.passes.static_types import StaticTypes
from tvm_dnnfusion.passes.stock_pass import run_where_possible
from tvm_dnnfusion.passes.widen_conv1d import WidenConv1d

from tvm_dnnfusion.errors import TargetError
from tvm_dnnfusion.node_fields import copy_call

logger = logging.getLogger(__name__)


@contextmanager
def _tuning_records(target: Target) -> Iterator[None]:
    """AutoTVM's records as ``relay.build`` sees them: the caller's, else TopHub's for ``target``.

    TopHub downloads unless ``TOPHUB_LOCATION`` says otherwise, so an unset one means NONE here; and AutoTVM
    does not warn here of what it will warn of when kernels are built.
    """
    unset = "TOPHUB_LOCATION" not in os.environ
    silent = autotvm.GLOBAL_SCOPE.silent
    autotvm.GLOBAL_SCOPE.silent = True
    if unset:
        os.environ["TOPHUB_LOCATION"] = "NONE"
    try:
        if isinstance(autotvm.DispatchContext.current, autotvm.FallbackContext):
            with autotvm.tophub.context(target):
                yield
        else:
            yield
    finally:
        autotvm.GLOBAL_SCOPE.silent = silent
        if unset:
            del os.environ["TOPHUB_LOCATION"]


def as_target(target: str | Target) -> Target:
    """``target`` as TVM's object.

    Raises
    ------
    TargetError
        TVM does not know the target.
    """
    try:
        return Target(target)
    except (ValueError, TypeError, tvm.TVMError) as error:
        raise TargetError(
            f"'{target}' is no target that TVM knows; accepted are strings such as 'llvm -mcpu=core-avx2'"
        ) from error


class _SqueezeRewriter(GraphRewriter):
    """Each static squeeze becomes a reshape."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__()
        self._types = StaticTypes()

    def rewrite_call(self, call: relay.Call, name: str, args: list[relay.Expr]) -> relay.Expr | None:
        shape = self._types.shape(call.checked_type) if name == "squeeze" else None
        if shape is None:
            return None
        attrs = tvm.ir.make_node("relay.attrs.ReshapeAttrs", newshape=list(shape), allowzero=0)
        return copy_call(call, relay.op.get("reshape"), args, attrs)


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.SqueezeAsReshape")
class SqueezeAsReshape:
    """Pass that writes each squeeze of static shape as a reshape.

    Stock ``AlterOpLayout`` fails on a squeeze of an axis that it has blocked (``NCHW8c``), and not on a
    reshape.
    """

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """``mod`` without static squeezes, types inferred."""
        return rewrite_functions(relay.transform.InferType()(mod), _SqueezeRewriter)


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.AlterLayout")
class AlterLayout:
    """Pass that gives convolutions and dense layers the layout their kernels favour on ``target``.

    Runs what ``relay.build`` runs at optimisation level 3 (``GetPassPrefix`` in
    ``src/relay/backend/utils.cc``): ``Legalize``, ``CanonicalizeOps``, ``AlterOpLayout``, as far as the
    module's operators need them, in the caller's ``PassContext`` whatever its level, so that an
    auto-scheduler configuration or tuning records in force decide as they will in ``relay.build``. Then
    constants are folded, which packs the weights, and conversions that cancel are removed.

    A function on which ``AlterOpLayout`` fails keeps its layout; ``refusals`` says why.

    Parameters
    ----------
    target
        The target for which ``relay.build`` will be called.
    typed
        The module's types are inferred already.

    Raises
    ------
    TargetError
        TVM does not know the target.
    """

    def __init__(self, target: str | Target, typed: bool = False) -> None:
        self.target = as_target(target)
        self.typed = typed
        self.refusals: dict[str, str] = {}

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """``mod`` in altered layouts, types inferred."""
        if not self.typed:
            mod = relay.transform.InferType()(mod)
        with (
            self.target,
            _tuning_records(self.target),
            chosen_layouts(self.target),
            remembered_implementations(),
        ):
            alter = _needed_passes(mod, self.target)
            mod, self.refusals = run_where_possible(alter, mod)
            if self.refusals:
                mod, self.refusals = run_where_possible([SqueezeAsReshape(), *alter], mod)
        for name, reason in self.refusals.items():
            logger.warning("@%s keeps its layout: %s", name, reason)
        return rewrite_functions(mod, Canonicalizer)


def _needed_passes(mod: tvm.IRModule, target: Target) -> list[tvm.transform.Pass]:
    """The stock passes that have something to do in a typed ``mod``; each infers all types once more."""
    names = operator_names(mod)
    passes: list[tvm.transform.Pass] = []
    if "nn.conv1d" in names and is_x86(target):
        passes.append(WidenConv1d(typed=True))
        names.add("nn.conv2d")
    if "nn.dense" in names and covers(target):
        passes.append(PadColumns(target, typed=True))
    if needs_legalising(mod, names, target):
        passes.append(relay.transform.Legalize())
    if "nn.bias_add" in names:
        passes.append(relay.transform.CanonicalizeOps())
    if any(relay.op.get(name).get_attr("FTVMAlterOpLayout") is not None for name in names):
        passes.append(relay.transform.AlterOpLayout())
    return passes
