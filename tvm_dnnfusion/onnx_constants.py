"""Evaluating ONNX nodes whose operands are known: the shape arithmetic of exported networks."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import onnx
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

_LOGGER = logging.getLogger(__name__)

# Operators whose value is defined exactly: data movement, comparison, logic.
_MOVEMENT = """
    Cast Concat Constant ConstantOfShape Equal Expand Flatten Gather GatherElements GatherND Greater
    GreaterOrEqual Identity Less LessOrEqual And Or Not Xor NonZero Range Reshape ScatterElements
    ScatterND Shape Size Slice Split Squeeze Tile Transpose Trilu Unsqueeze Where
"""
# Arithmetic that is exact on integers and, element by element, correctly rounded on floats.
_ARITHMETIC = "Add Sub Mul Neg Abs Max Min Ceil Floor Sqrt"
# Exact on integers only: a float reduction depends on the order of its terms.
_INTEGER = frozenset(["Mod", "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "CumSum"])
_ANY_DTYPE = frozenset([*_MOVEMENT.split(), *_ARITHMETIC.split()])
_NATIVE_KINDS = "biuf"


def evaluate(
    node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opset: int
) -> tuple[np.ndarray, ...] | None:
    """Values of ``node``'s outputs.

    Shape arithmetic is a third of the nodes of some exports (Swin: thousands); compiling it, as
    TVM's importer does, takes minutes.

    Parameters
    ----------
    node
        A node of the default ONNX domain.
    inputs
        Its operands, None for an omitted one.
    opset
        Version of the operator set.

    Returns
    -------
    tuple of np.ndarray, or None
        None when the operator is not one whose value NumPy gives exactly, or when NumPy refuses the
        operands: the node is then converted, and a fault is reported, as any other.
    """
    given = [x for x in inputs if x is not None]
    if node.domain not in ("", "ai.onnx") or any(x.dtype.kind not in _NATIVE_KINDS for x in given):
        return None
    if node.op_type == "Div":
        return _divide(given)
    if not _is_exact(node.op_type, given):
        return None
    try:
        with np.errstate(all="ignore"):
            values = _reference(node, opset).run(*inputs)
    except Exception as error:
        _LOGGER.debug("%s %s is left to conversion: %s", node.op_type, node.name, error)
        return None
    arrays = tuple(np.asarray(value) for value in values)
    return arrays if all(a.dtype.kind in _NATIVE_KINDS for a in arrays) else None


def _is_exact(op_type: str, inputs: list[np.ndarray]) -> bool:
    return op_type in _ANY_DTYPE or (op_type in _INTEGER and all(x.dtype.kind in "iu" for x in inputs))


def _divide(inputs: list[np.ndarray]) -> tuple[np.ndarray, ...] | None:
    """Division rounds towards zero on integers, as in ONNX Runtime; NumPy's rounds down."""
    a, b = inputs
    if a.dtype != b.dtype or (a.dtype.kind in "iu" and not b.all()):
        return None
    if a.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return (np.asarray(a / b),)
    exact = bool((a >= 0).all() and (b > 0).all())
    return (np.asarray(a // b),) if exact else None


def _reference(node: onnx.NodeProto, opset: int) -> OpRun:
    run_params = {
        "log": lambda *_: None,
        "opsets": {"": opset},
        "verbose": 0,
        "new_ops": None,
    }
    return load_op("", node.op_type, opset)(node, run_params)
