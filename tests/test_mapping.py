"""The mapping-type table: total, proved by perturbation, and open to other people's operators."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from tvm_dnnfusion import mapping as table
from tvm_dnnfusion.ecg import TensorInfo
from tvm_dnnfusion.errors import RegistrationError
from tvm_dnnfusion.layout_axes import keeps_order
from tvm_dnnfusion.mapping import entry_type, operand_types, operator_type, why_opaque
from tvm_dnnfusion.mapping_observe import observe
from tvm_dnnfusion.mapping_probe import make_call
from tvm_dnnfusion.mapping_type import MappingType
from tvm_dnnfusion.mapping_types import registry

ONE_TO_ONE, REORGANIZE, SHUFFLE, ONE_TO_MANY, MANY_TO_MANY, OPAQUE = MappingType

BUILTIN = table.declared()
PROBED = [declaration for declaration in BUILTIN if declaration.probes]
BATCHES = [PROBED[start : start + 12] for start in range(0, len(PROBED), 12)]


def f32(*shape: int) -> TensorInfo:
    return TensorInfo(shape, "float32")


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test register operators that no other test sees."""
    monkeypatch.setattr(registry, "_DECLARATIONS", dict(registry._DECLARATIONS))
    yield


def test_table_is_total() -> None:
    # In a process of its own: other tests register operators of theirs.
    listing = "import tvm.relay; print(*tvm.ir.Op.list_op_names())"
    names = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout
    relay_ops = {name for name in names.split() if not name.startswith(("tir.", "relax."))}
    assert len(relay_ops) > 250
    assert {declaration.op for declaration in BUILTIN} == relay_ops


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{batch[0].op}..{batch[-1].op}")
def test_types_agree_with_perturbation(batch: list[table.Declaration]) -> None:
    probes = [(declaration.op, probe) for declaration in batch for probe in declaration.probes]
    calls = [make_call(op, probe) for op, probe in probes]
    wrong = []
    for (op, probe), call, observed in zip(probes, calls, observe(calls), strict=True):
        types = operand_types(op, call.attrs, call.in_types, call.out_types)
        for position, (seen, said) in enumerate(zip(observed, types, strict=True)):
            if seen is not None and seen != said:
                wrong.append(f"{op} {probe} operand {position}: declared {said.value}, observed {seen.value}")
    assert not wrong, "\n".join(wrong)


def test_every_grouped_operator_is_probed_or_says_why() -> None:
    unprobed = {d.op for d in BUILTIN if d.reason is None and not d.probes}
    assert all(d.unprobed for d in BUILTIN if d.op in unprobed)
    # Kept as a list, so that a probe which is dropped shows here.
    assert unprobed == {
        "auto_scheduler_layout_transform",
        "meta_schedule_layout_transform",
        "nn.contrib_conv2d_gemm_without_weight_transform",
        "nn.contrib_conv2d_winograd_nnpack_weight_transform",
        "nn.contrib_conv2d_winograd_without_weight_transform",
        "nn.contrib_conv3d_winograd_without_weight_transform",
        "qnn.contrib_dense_pack",
    }


def test_observe_sees_a_wrong_declaration() -> None:
    calls = [make_call("transpose", ((2, 3), {})), make_call("exp", ((2, 3),)), make_call("sum", ((4,),))]
    assert observe(calls) == [(SHUFFLE,), (ONE_TO_ONE,), (MANY_TO_MANY,)]


def test_types_of_the_paper() -> None:
    """Representatives of each row of Table 2."""
    pool = SimpleNamespace(pool_size=(2, 2))
    transpose = SimpleNamespace(axes=[0, 2, 3, 1])
    nchw, nhwc = f32(1, 8, 4, 6), f32(1, 4, 6, 8)
    cases = [
        ("nn.relu", None, [nchw], [nchw], ONE_TO_ONE),
        ("add", None, [nchw, nchw], [nchw], ONE_TO_ONE),
        ("add", None, [nchw, f32(8, 1, 1)], [nchw], ONE_TO_MANY),
        ("concatenate", None, [nchw, nchw], [f32(1, 16, 4, 6)], ONE_TO_ONE),
        ("split", None, [nchw], [f32(1, 4, 4, 6)] * 2, ONE_TO_ONE),
        ("take", None, [f32(9, 4), TensorInfo((2,), "int32")], [f32(2, 4)], ONE_TO_MANY),
        ("nn.max_pool2d", pool, [nchw], [f32(1, 8, 3, 5)], MANY_TO_MANY),
        ("reshape", None, [nchw], [f32(8, 24)], REORGANIZE),
        ("transpose", transpose, [nchw], [nhwc], SHUFFLE),
    ]
    for op, attrs, ins, outs, expected in cases:
        assert operator_type(op, attrs, ins, outs) == expected, op


def test_entry_type_follows_the_largest_operand() -> None:
    data, scale = f32(4, 8), f32(8)
    assert operator_type("add", None, [data, scale], [data]) == ONE_TO_MANY
    assert entry_type("add", None, [data, scale], [data]) == ONE_TO_ONE
    assert entry_type("add", None, [scale, data], [data]) == ONE_TO_ONE
    assert entry_type("zeros", None, [], [data]) == ONE_TO_ONE


def test_entry_type_of_a_single_row() -> None:
    row, scale = f32(1, 8), f32(8)
    assert entry_type("add", None, [row, scale], [row]) == ONE_TO_ONE
    assert entry_type("nn.layer_norm", None, [row, scale, scale], [row]) == MANY_TO_MANY


def test_zero_size_tensors_have_types() -> None:
    empty = f32(0, 3)
    assert operand_types("add", None, [empty, f32(1, 3)], [empty]) == (ONE_TO_ONE, ONE_TO_MANY)
    assert operand_types("concatenate", None, [f32(0, 4), f32(3, 4)], [f32(3, 4)]) == (ONE_TO_ONE,) * 2
    assert operator_type("reshape", None, [empty], [f32(3, 0)]) == REORGANIZE
    assert operator_type("transpose", SimpleNamespace(axes=None), [empty], [f32(3, 0)]) == SHUFFLE


def test_layout_order_agrees_with_numpy(rng: np.random.Generator) -> None:
    """NCHW to NCHWc keeps the order exactly when NumPy's blocked transpose is the identity."""
    for _ in range(200):
        n, outer, height, width, block = (int(extent) for extent in rng.choice([1, 2, 3], 5))
        data = np.arange(n * outer * block * height * width)
        blocked = data.reshape(n, outer, block, height, width).transpose(0, 1, 3, 4, 2)
        kept = bool((blocked.ravel() == data).all())
        before, after = (n, outer * block, height, width), (n, outer, height, width, block)
        assert keeps_order("NCHW", before, f"NCHW{block}c", after) == kept, (before, after)
        assert keeps_order(f"NCHW{block}c", after, "NCHW", before) == kept, (before, after)


def test_reblocking_keeps_order_only_without_an_axis_between() -> None:
    assert keeps_order("NCHW4c", (1, 6, 1, 1, 4), "NCHW8c", (1, 3, 1, 1, 8))
    assert keeps_order("NCHW4c", (1, 3, 1, 1, 4), "NCHW6c", (1, 2, 1, 1, 6))
    assert not keeps_order("NCHW4c", (1, 6, 2, 1, 4), "NCHW8c", (1, 3, 2, 1, 8))


def test_opaque_operators_say_why() -> None:
    for declaration in BUILTIN:
        assert bool(declaration.types) != bool(declaration.reason), declaration.op
    data = f32(2, 3)
    assert operand_types("argwhere", None, [data], []) == (OPAQUE,)
    assert operator_type("argwhere", None, [data], []) == entry_type("argwhere", None, [data], []) == OPAQUE
    assert why_opaque("argwhere") == "the output shape depends on the data"
    assert why_opaque("add") is None


def test_unknown_operators_are_opaque() -> None:
    data = f32(2, 3)
    assert why_opaque("somebody.else") == "unknown operator"
    assert operand_types("somebody.else", None, [data, data], [data]) == (OPAQUE, OPAQUE)
    assert operator_type("somebody.else", None, [], [data]) == OPAQUE


@pytest.mark.usefixtures("own_registry")
def test_mapping_is_open_to_other_operators() -> None:
    table.mapping("somebody.else", SHUFFLE, ONE_TO_ONE)
    data = f32(2, 3)
    assert operand_types("somebody.else", None, [data] * 3, [data]) == (SHUFFLE, ONE_TO_ONE, ONE_TO_ONE)
    with pytest.raises(RegistrationError, match=r"somebody\.else already has a mapping type"):
        table.mapping("somebody.else", ONE_TO_ONE)
    with pytest.raises(RegistrationError, match="override=True"):
        table.opaque("somebody.else", "draws random numbers")
    table.opaque("somebody.else", "draws random numbers", override=True)
    assert why_opaque("somebody.else") == "draws random numbers"


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("types", [(), (OPAQUE,), (ONE_TO_ONE, OPAQUE)])
def test_mapping_refuses_opaque_types(types: tuple[MappingType, ...]) -> None:
    with pytest.raises(RegistrationError, match="one of the five mapping types"):
        table.mapping("somebody.else", *types)
    assert table.declaration("somebody.else") is None
