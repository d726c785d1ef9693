"""Running TVM's own passes one by one, whatever the optimisation level, and as far as they succeed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import tvm
from tvm import relay
from tvm.ir.transform import Pass, PassContext

logger = logging.getLogger(__name__)

# FunctionPass::operator() leaves functions with this attribute alone (src/relay/ir/transform.cc).
_SKIP = "SkipOptimization"


def run(pass_: Pass, mod: tvm.IRModule) -> tvm.IRModule:
    """``pass_(mod)`` for a typed module; ``mod`` itself if the caller's context disables the pass.

    Only ``Sequential`` looks at optimisation levels and required passes, so a pass that is called directly
    runs at any level, in the caller's context, with its configuration and instruments. The result is typed:
    a function pass infers types when it is done (``src/relay/ir/transform.cc``).
    """
    return mod if pass_.info.name in _disabled() else pass_(mod)


def run_where_possible(passes: Sequence[Pass], mod: tvm.IRModule) -> tuple[tvm.IRModule, dict[str, str]]:
    """``passes`` run on each function of a typed module that they can handle.

    Returns
    -------
    mod : tvm.IRModule
        Functions on which a pass failed are as they were before all ``passes``.
    refusals : dict of str to str
        The last line of the failure by name of the function.
    """
    try:
        return _run_all(passes, mod), {}
    except Exception as error:  # TOPI's layout rules raise whatever Python raises
        failure = _last_line(error)
    names = [var.name_hint for var, function in mod.functions.items() if _is_open(function)]
    if len(names) == 1:
        return mod, {names[0]: failure}
    refusals: dict[str, str] = {}
    for name in names:
        mod, reason = _tried(passes, mod, name)
        if reason is not None:
            refusals[name] = reason
    return mod, refusals


def _tried(passes: Sequence[Pass], mod: tvm.IRModule, name: str) -> tuple[tvm.IRModule, str | None]:
    try:
        return _run_on(passes, mod, name), None
    except Exception as error:  # TOPI's layout rules raise whatever Python raises
        return mod, _last_line(error)


def _run_all(passes: Sequence[Pass], mod: tvm.IRModule) -> tvm.IRModule:
    for pass_ in passes:
        mod = run(pass_, mod)
    return mod


def _run_on(passes: Sequence[Pass], mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """``passes`` run on the function ``name`` alone."""
    others = {
        var: function
        for var, function in mod.functions.items()
        if _is_open(function) and var.name_hint != name
    }
    guarded = tvm.IRModule(mod.functions, mod.type_definitions, attrs=mod.attrs)
    for var, function in others.items():
        guarded[var] = function.with_attr(_SKIP, tvm.tir.IntImm("int32", 1))
    result = _run_all(passes, guarded)
    for var, function in others.items():
        result[var] = function
    return result


def _is_open(function: tvm.ir.BaseFunc) -> bool:
    """Whether passes work on ``function`` at all."""
    return isinstance(function, relay.Function) and (function.attrs is None or _SKIP not in function.attrs)


def _disabled() -> set[str]:
    return {str(name) for name in PassContext.current().disabled_pass}


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
