"""The whole of DNNFusion as one pass for an existing flow."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import tvm
from tvm import relay
from tvm_dnnfusion.passes.alter_layout import as_target

from tvm_dnnfusion.config import Options
from tvm_dnnfusion.pipeline import Trace, run_pipeline

logger = logging.getLogger("tvm_dnnfusion")


@tvm.transform.module_pass(opt_level=0, name="dnnfusion.DNNFusion")
class DNNFusion:
    """Canonicalise, choose layouts, group operators by mapping type, and seal groups into block operators.

    Put it before ``relay.build``, ``relay.vm.compile``, ``autotvm.task.extract_from_program`` or
    ``auto_scheduler.extract_tasks``; nothing else in the flow changes. Running it twice changes nothing
    more.

    Parameters
    ----------
    target
        What the module will be built for.
    params
        Weights by name. They are bound as constants, so that they can be folded and packed at compile
        time; weights that stay variables work, unpacked.
    options
        See :class:`tvm_dnnfusion.Options`.

    Attributes
    ----------
    trace
        Seconds per phase and plans of the last run.

    Raises
    ------
    TargetError
        ``target`` is none that TVM knows.
    """

    def __init__(
        self,
        target: str | tvm.target.Target,
        params: Mapping[str, tvm.nd.NDArray | np.ndarray] | None = None,
        options: Options | None = None,
    ) -> None:
        self.target = as_target(target)
        self.params = dict(params or {})
        self.options = options or Options()
        self.trace = Trace()

    if TYPE_CHECKING:  # module_pass makes it a tvm.transform.Pass

        def __call__(self, mod: tvm.IRModule) -> tvm.IRModule: ...

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its groups sealed; types inferred."""
        mod = bind_params(mod, self.params)
        if not self.params:
            _warn_of_variable_weights(mod)
        mod, self.trace = run_pipeline(mod, self.target, self.options)
        return mod


def bind_params(mod: tvm.IRModule, params: Mapping[str, tvm.nd.NDArray | np.ndarray]) -> tvm.IRModule:
    """A copy of the module with parameters of ``main`` of these names as constants."""
    bound = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
    if params:
        arrays = {k: v if isinstance(v, tvm.nd.NDArray) else tvm.nd.array(v) for k, v in params.items()}
        bound["main"] = relay.build_module.bind_params_by_name(mod["main"], arrays)
    return bound


# Operators whose second argument is a weight.
_WEIGHTED = frozenset({"nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose", "nn.dense"})


def _warn_of_variable_weights(mod: tvm.IRModule) -> None:
    variable: list[str] = []

    def visit(expr: relay.Expr) -> None:
        if (
            isinstance(expr, relay.Call)
            and isinstance(expr.op, tvm.ir.Op)
            and expr.op.name in _WEIGHTED
            and isinstance(expr.args[1], relay.Var)
        ):
            variable.append(expr.args[1].name_hint)

    relay.analysis.post_order_visit(mod["main"], visit)
    if variable:
        logger.warning(
            "%d weights (%s, ...) are variables, so they cannot be packed at compile time; "
            "pass them as DNNFusion(target, params=params)",
            len(variable),
            variable[0],
        )
