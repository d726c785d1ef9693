"""One TE compute per distinct workload while layouts are altered.

``AlterOpLayout`` asks for the implementation of each call (``te_compiler.select_implementation``), which
builds the operator's compute in TE each time: tens of milliseconds per convolution or dense layer, and an
unrolled LSTM has hundreds of equal ones. Equal calls have equal answers as long as target and tuning records
stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import te
from tvm.relay.backend import te_compiler
from tvm.target import Target


def _workload(op: tvm.ir.Op, attrs: tvm.ir.Attrs, inputs: Sequence[te.Tensor]) -> tuple[Hashable, ...]:
    """The operator, its attributes and its operands' shapes and dtypes."""
    shapes = tuple((str(operand.dtype), *(str(extent) for extent in operand.shape)) for operand in inputs)
    return op.name, tvm.ir.structural_hash(attrs), shapes


@contextmanager
def remembered_implementations() -> Iterator[None]:
    """Within the context, a workload's implementation is selected once.

    The layout rules call the function by its module, so it is replaced there, and put back at the end. They
    read the AutoTVM workload of its result, nothing that belongs to one call.
    """
    select = te_compiler.select_implementation
    known: dict[Hashable, Any] = {}

    def remembering(
        op: tvm.ir.Op,
        attrs: tvm.ir.Attrs,
        inputs: Sequence[te.Tensor],
        out_type: tvm.ir.Type,
        target: Target,
        use_autotvm: bool = True,
    ) -> Any:
        out = tvm.ir.structural_hash(out_type)
        key = (*_workload(op, attrs, inputs), out, str(target), use_autotvm)
        if key not in known:
            known[key] = select(op, attrs, inputs, out_type, target, use_autotvm)
        return known[key]

    te_compiler.select_implementation = remembering
    try:
        yield
    finally:
        te_compiler.select_implementation = select
