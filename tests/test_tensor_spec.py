"""Specifications of inputs and outputs, random arrays, refusals of arrays that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay

from tvm_dnnfusion.errors import ImportModelError, ShapeError
from tvm_dnnfusion.tensor_spec import TensorSpec, check_arrays, input_specs, output_specs, random_arrays


def typed(function: relay.Function) -> tvm.IRModule:
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def test_specs_leave_parameters_out_and_flatten_outputs() -> None:
    x = relay.var("x", shape=(relay.Any(), 4), dtype="float16")
    w = relay.var("w", shape=(4,), dtype="float16")
    n = relay.var("n", shape=(), dtype="int64")
    mod = typed(relay.Function([x, w, n], relay.Tuple([relay.Tuple([x + w, n]), x])))
    assert input_specs(mod, {"w"}) == [TensorSpec("x", (None, 4), "float16"), TensorSpec("n", (), "int64")]
    outputs = output_specs(mod, ["only one name"])
    assert [spec.name for spec in outputs] == ["output0", "output1", "output2"]
    assert [str(spec) for spec in outputs][1:] == ["output1 int64[]", "output2 float16[?x4]"]
    for spec in outputs:
        assert TensorSpec.from_json(spec.to_json()) == spec


def test_input_specs_refuse_tuple() -> None:
    pair = relay.var("pair", relay.TupleType([relay.TensorType((2,))]))
    with pytest.raises(ImportModelError, match="'pair' is no tensor"):
        input_specs(typed(relay.Function([pair], relay.TupleGetItem(pair, 0))))


def test_random_arrays_have_type_range_and_seed(seed: int) -> None:
    dtypes = ["float32", "float16", "bool", "int8", "uint8", "int32", "int64"]
    specs = [TensorSpec(dtype, (50, 40), dtype) for dtype in dtypes]
    arrays = random_arrays(specs, seed)
    check_arrays(specs, arrays)
    assert set(np.unique(arrays["int64"])) == {0, 1} == set(np.unique(arrays["int32"]))
    assert arrays["int8"].min() < 0 and arrays["uint8"].max() > 200
    assert abs(float(arrays["float32"].std()) - 1) < 0.1
    for name, array in random_arrays(specs, seed).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_random_arrays_take_shapes_for_open_extents() -> None:
    specs = [TensorSpec("x", (None, 3), "float32"), TensorSpec("scalar", (), "float32")]
    with pytest.raises(ShapeError, match="--shape x=1x3"):
        random_arrays(specs, 0)
    arrays = random_arrays(specs, 0, {"x": (5, 3)})
    assert arrays["x"].shape == (5, 3) and arrays["scalar"].shape == ()


def test_random_arrays_refuse_other_types() -> None:
    with pytest.raises(ShapeError, match="handle"):
        random_arrays([TensorSpec("x", (1,), "handle")], 0)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((2, 4), np.float32), "2x4"),
        (np.zeros((3,), np.float32), "3"),
        (np.zeros((2, 3), np.int32), "int32"),
    ],
)
def test_check_arrays_refuses_misfit(array: np.ndarray, reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        check_arrays([TensorSpec("x", (None, 3), "float32")], {"x": array})
