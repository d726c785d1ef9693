"""A product is rounded before the next operator adds it, as it is when it passes through memory.

LLVM contracts ``a * b + c`` into one operation with one rounding wherever it sees both (TVM sets
``FPOpFusion::Fast``). A product that is computed where it is read would then be rounded or not,
depending on what else its block returns or stores, and adding an output to a graph would change its
other outputs. So contraction stays inside operators, where it always happens: an arithmetic fence
between a product and an addition keeps them apart. (``llvm.canonicalize`` would do so too and let LLVM
vectorise loops by itself, but LLVM 22 aborts on it for vectors of two floats.)
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relay, te, tir
from tvm.relay.op.op import OpPattern
from tvm.target.codegen import llvm_get_system_triple, llvm_lookup_intrinsic_id, target_has_features

_FENCE = "llvm.arithmetic.fence"

# Operators that add or subtract an operand as it is.
_ADDING = frozenset(
    {
        "add",
        "subtract",
        "nn.bias_add",
        "sum",
        "mean",
        "variance",
        "cumsum",
        "logsumexp",
        "nn.softmax",
        "nn.log_softmax",
        "nn.avg_pool1d",
        "nn.avg_pool2d",
        "nn.avg_pool3d",
        "nn.global_avg_pool2d",
        "nn.adaptive_avg_pool1d",
        "nn.adaptive_avg_pool2d",
        "nn.adaptive_avg_pool3d",
    }
)


def added_calls(calls: Sequence[relay.Call]) -> set[relay.Expr]:
    """Calls whose result another call adds, directly or after moving it.

    Parameters
    ----------
    calls
        A block's operator calls in topological order.
    """
    added: set[relay.Expr] = set()
    for call in reversed(calls):
        moves = (
            call.op.get_attr("TOpPattern") in (OpPattern.INJECTIVE, OpPattern.BROADCAST)
            and len(call.args) == 1
        )
        if call.op.name in _ADDING or (moves and call in added):
            stack = list(call.args)
            while stack:
                operand = stack.pop()
                if isinstance(operand, relay.Tuple):
                    stack.extend(operand.fields)
                else:
                    added.add(operand.tuple_value if isinstance(operand, relay.TupleGetItem) else operand)
    return added


def round_product(tensor: te.Tensor, target: tvm.target.Target) -> te.Tensor:
    """``tensor`` with its last operation rounded; as it is if an addition could not absorb that anyway."""
    op = tensor.op
    if not isinstance(op, te.ComputeOp) or op.reduce_axis or len(op.body) != 1:
        return tensor
    if not _ends_in_product(op.body[0]) or not _contracts(target, tensor.dtype):
        return tensor
    rounded = tir.call_llvm_pure_intrin(tensor.dtype, _FENCE, tir.const(1, "uint32"), op.body[0])
    return tvm.te._ffi_api.ComputeOp(op.name, op.tag, op.attrs, op.axis, [rounded]).output(0)


def _ends_in_product(body: tir.PrimExpr) -> bool:
    """True for a product, and for a power: LLVM makes ``x * x`` of ``pow(x, 2)``."""
    if isinstance(body, tir.Select):
        return _ends_in_product(body.true_value) or _ends_in_product(body.false_value)
    if isinstance(body, tir.Call):
        return getattr(body.op, "name", "") == "tir.pow"
    return isinstance(body, tir.Mul)


def _contracts(target: tvm.target.Target, dtype: str) -> bool:
    """Whether LLVM may contract this type and can select the fence for it: not for halves on ARMv7."""
    if target.kind.name != "llvm" or not llvm_lookup_intrinsic_id(_FENCE):
        return False
    triple = str(target.attrs.get("mtriple", "")) or llvm_get_system_triple()
    if triple.startswith(("aarch64", "arm64")):
        return dtype in ("float16", "float32", "float64")
    if triple.startswith(("arm", "thumb")):
        return dtype in ("float32", "float64")
    if not triple.startswith(("x86_64", "amd64")):
        return False
    if dtype == "float16":
        return bool(target_has_features("avx512fp16", target))
    return dtype in ("float32", "float64") and bool(target_has_features("fma", target))
