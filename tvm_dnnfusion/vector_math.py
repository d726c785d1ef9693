"""Functions of float32 that become vector instructions, where LLVM would call libm once per lane.

Each is a TIR operator of its own, so that it stays one call until intrinsics are lowered, when the loop
around it has become vectors. Errors are in units in the last place of the float32 result, against double
precision over the whole range, subnormal numbers included; NaN stays NaN, and infinities give the limits.

========  ===========  =====================================================================
function  largest      how
========  ===========  =====================================================================
erf       8 ulp        odd rational function of degree 13/10 up to 3.93, beyond it 1
tanh      8 ulp        odd rational function of degree 13/8 up to 9.02, beyond it 1
exp       2 ulp        2^n times a polynomial of degree 6 in the rest, by Cody and Waite
sigmoid   4 ulp        1 / (1 + exp(-x)); below -88 the result may be 0 instead of subnormal
========  ===========  =====================================================================

Coefficients are least-squares fits of the relative error with weights iterated towards the minimax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relay, te, tir

_PREFIX = "tir.dnnfusion_"

_ERF = (
    (1.12837923, 0.185148805, 0.0542547591, 0.0038403233, 0.000377162767, 4.61990203e-06, -1.28572397e-08),
    (1.0, 0.497417271, 0.113887295, 0.0154348826, 0.00130240934, 6.24993918e-05),
    3.93,
)
_TANH = (
    (1, 0.138552412, 0.00409340952, 3.2984517e-05, 4.56772682e-08, -3.16686018e-11, 2.56809463e-14),
    (1.0, 0.471885741, 0.028055327, 0.000434913003, 1.6685085e-06),
    9.02,
)
_EXP = (1.0, 1.0, 0.49999991, 0.166664198, 0.041668225, 0.00837482233, 0.00138368283)
_LOG2_E = 1.4426950408889634
# ln 2 in two parts: the first has zeros at its end, so that small multiples of it are exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
# Beyond these the result of exp is 0 or infinite in float32.
_EXP_LOWEST, _EXP_HIGHEST = -104.0, 89.0


def has_vector_math(target: tvm.target.Target) -> bool:
    """True for CPUs whose code LLVM generates."""
    return target.kind.name == "llvm"


def use_vector_math(tensor: te.Tensor) -> te.Tensor:
    """``tensor`` with a libm function that ends its stage replaced by ours; as it is if there is none."""
    op = tensor.op
    if not isinstance(op, te.ComputeOp) or op.reduce_axis or len(op.body) != 1:
        return tensor
    body = op.body[0]
    name = getattr(getattr(body, "op", None), "name", "")
    if not isinstance(body, tir.Call) or name not in _FUNCTIONS or body.dtype != "float32":
        return tensor
    ours = tir.Call(body.dtype, tvm.ir.Op.get(_own(name)), body.args)
    return tvm.te._ffi_api.ComputeOp(op.name, op.tag, op.attrs, op.axis, [ours]).output(0)


def _own(name: str) -> str:
    return _PREFIX + name.removeprefix("tir.")


def _constant(value: float, like: tir.PrimExpr) -> tir.PrimExpr:
    return tir.const(value, like.dtype)


def _polynomial(coefficients: Sequence[float], x: tir.PrimExpr) -> tir.PrimExpr:
    """By Horner's rule, lowest coefficient first."""
    result = _constant(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + _constant(coefficient, x)
    return result


def _clamp(x: tir.PrimExpr, low: float, high: float) -> tir.PrimExpr:
    """``x`` within bounds; a NaN becomes one of them."""
    for intrinsic, bound in (("llvm.maxnum", low), ("llvm.minnum", high)):
        x = tir.call_llvm_pure_intrin(x.dtype, intrinsic, tir.const(2, "uint32"), x, _constant(bound, x))
    return x


def _keep_nan(x: tir.PrimExpr, result: tir.PrimExpr) -> tir.PrimExpr:
    return tir.Select(x == x, result, x)


def _odd_rational(function: tuple[Sequence[float], Sequence[float], float]) -> Callable[..., tir.PrimExpr]:
    numerator, denominator, limit = function

    def lower(call: tir.Call) -> tir.PrimExpr:
        x = call.args[0]
        inside = _clamp(x, -limit, limit)
        square = inside * inside
        ratio = inside * _polynomial(numerator, square) / _polynomial(denominator, square)
        return _keep_nan(x, _clamp(ratio, -1.0, 1.0))

    return lower


def _exp(x: tir.PrimExpr) -> tir.PrimExpr:
    inside = _clamp(x, _EXP_LOWEST, _EXP_HIGHEST)
    power = tir.floor(inside * _constant(_LOG2_E, x) + _constant(0.5, x))
    rest = inside - power * _constant(_LN2_HIGH, x) - power * _constant(_LN2_LOW, x)
    # Two factors, each a normal number, where the result is subnormal or their exponents exceed one's range.
    half = tir.floor(power * _constant(0.5, x))
    result = _polynomial(_EXP, rest) * _power_of_two(half) * _power_of_two(power - half)
    return _keep_nan(x, result)


def _power_of_two(exponent: tir.PrimExpr) -> tir.PrimExpr:
    """2 to an integral float32, through its bits."""
    integer = exponent.dtype.replace("float", "int")
    bits = (exponent.astype(integer) + tir.const(127, integer)) << tir.const(23, integer)
    return tir.reinterpret(exponent.dtype, bits)


def _sigmoid(call: tir.Call) -> tir.PrimExpr:
    x = call.args[0]
    one = _constant(1.0, x)
    return one / (one + _exp(_constant(0.0, x) - x))


_FUNCTIONS: dict[str, Callable[[tir.Call], tir.PrimExpr]] = {
    "tir.erf": _odd_rational(_ERF),
    "tir.tanh": _odd_rational(_TANH),
    "tir.exp": lambda call: _exp(call.args[0]),
    "tir.sigmoid": _sigmoid,
}


def _register() -> None:
    """Once per process, as modules with these operators must load after importing the package."""
    known = tvm.ir.Op.list_op_names()
    for name, lower in _FUNCTIONS.items():
        if _own(name) in known:
            continue
        relay.op.op.register(_own(name), f"{name} of float32 without calls of libm.")
        tvm.ir.register_op_attr(_own(name), "TCallEffectKind", tir.IntImm("int32", 1))  # kPure
        tvm.ir.register_op_attr(_own(name), "TVectorizable", True)
        tvm.ir.register_intrin_lowering(_own(name), target="default", f=lower)


_register()
