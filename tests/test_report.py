"""The report of a plan: its JSON, its text, and why an edge is one."""

from __future__ import annotations

import json
import math

import pytest
import tvm
from tvm import relay

from tvm_dnnfusion import DNNFusion
from tvm_dnnfusion.config import Options
from tvm_dnnfusion.errors import OptionError
from tvm_dnnfusion.report import Report, explain

TARGET = "llvm -mcpu=znver1"


def typed(params: list[relay.Var], body: relay.Expr) -> tvm.IRModule:
    """A module of one typed function."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))


@pytest.fixture(scope="module")
def two_products() -> Report:
    """Two large matrix products with activations: Table 3 keeps them apart."""
    x, w1, w2 = (relay.var(n, shape=(128, 128)) for n in ("x", "w1", "w2"))
    hidden = relay.nn.relu(relay.nn.dense(x, w1))
    mod = typed([x, w1, w2], relay.tanh(relay.nn.dense(hidden, w2)))
    # Without layouts the operators are those above.
    return explain(mod, TARGET, options=Options(alter_layout=False))


def test_json_has_every_key_and_plain_values(two_products: Report) -> None:
    found = json.loads(json.dumps(two_products.to_json()))
    assert set(found) >= {
        "ops",
        "kernels",
        "stock_kernels",
        "intermediate_bytes",
        "stock_intermediate_bytes",
        "blocks",
        "why_not",
        "opaque_ops",
        "seconds",
    }
    assert all({"name", "ops", "mapping_type"} <= set(b) for b in found["blocks"])
    assert all(s >= 0 for s in found["seconds"].values())
    assert {"canonicalise", "plan", "seal"} <= set(found["seconds"])


def test_counts_of_two_products(two_products: Report) -> None:
    found = two_products.to_json()
    assert found["ops"] == sum(len(b["ops"]) for b in found["blocks"]) == 4
    assert [b["ops"] for b in found["blocks"]] == [["nn.dense", "nn.relu"], ["nn.dense", "tanh"]]
    assert {b["mapping_type"] for b in found["blocks"]} == {"Many-to-Many"}
    assert found["kernels"] == 2
    # The hidden activations, in float32, are all that passes between the kernels.
    assert found["intermediate_bytes"] == 128 * 128 * 4
    assert found["opaque_ops"] == []


def test_blocks_say_what_stays_inside(two_products: Report) -> None:
    first, second = two_products.blocks
    assert first.name == "block0" and second.name == "block1"
    assert first.bytes_kept == second.bytes_kept == 128 * 128 * 4
    assert first.flops >= 2 * 128**3


def test_every_edge_between_kernels_has_a_reason(two_products: Report) -> None:
    (refusal,) = two_products.to_json()["why_not"]
    assert (refusal["producer_op"], refusal["consumer_op"]) == ("nn.relu", "nn.dense")
    assert refusal["reason"]


def test_edge_tells_refused_from_fused_from_absent(two_products: Report) -> None:
    (refusal,) = two_products.refusals
    assert refusal["reason"] in two_products.edge("nn.relu", "nn.dense")
    by_number = two_products.edge(str(refusal["producer"]), str(refusal["consumer"]))
    assert by_number == two_products.edge("nn.relu", "nn.dense")
    assert two_products.edge("nn.dense", "nn.relu").startswith("nn.dense and nn.relu are both in block0")
    assert two_products.edge("tanh", "nn.relu") == "no edge leads from tanh to nn.relu"


def test_edge_refuses_unknown_operators(two_products: Report) -> None:
    with pytest.raises(OptionError, match=r"no operator 'nn\.conv9d'; give a node id, an operator name"):
        two_products.edge("nn.conv9d", "nn.relu")


def test_text_names_every_block_and_every_refusal(two_products: Report) -> None:
    text = two_products.to_text()
    assert f"4 operators in 2 kernels (stock: {two_products.stock.kernels})" in text
    assert all(f"{b.name}: {b.mapping_type}" in text for b in two_products.blocks)
    assert all(r["reason"] in text for r in two_products.refusals)


def launched(mod: tvm.IRModule) -> list[int]:
    """Bytes of the result of each kernel that the graph executor launches, by its own JSON."""
    with tvm.transform.PassContext(opt_level=3):
        graph = json.loads(relay.build(mod, TARGET).get_graph_json())
    starts = graph["node_row_ptr"]
    kernels = [
        i for i, n in enumerate(graph["nodes"]) if n["op"] == "tvm_op" and n["attrs"]["func_name"] != "__nop"
    ]
    shapes, returned = graph["attrs"]["shape"][1], {entry[0] for entry in graph["heads"]}
    entries = {i: range(starts[i], starts[i + 1]) for i in kernels}
    return [0 if i in returned else sum(4 * math.prod(shapes[e]) for e in entries[i]) for i in kernels]


def test_counts_are_those_of_the_graph_that_is_built() -> None:
    """Softmax is a kernel of its own in stock TVM; here its neighbours belong to it."""
    x = relay.var("x", shape=(64, 96))
    mod = typed([x], relay.tanh(relay.nn.softmax(relay.exp(relay.negative(x)))) * x)
    report = explain(mod, TARGET)
    stock, ours = launched(mod), launched(DNNFusion(TARGET)(mod))
    assert (report.stock.kernels, report.stock.intermediate_bytes) == (len(stock), sum(stock))
    assert (report.ours.kernels, report.ours.intermediate_bytes) == (len(ours), sum(ours))
    assert report.ours.kernels == 1 < report.stock.kernels


def test_opaque_operators_are_listed_with_the_reason() -> None:
    x = relay.var("x", shape=(relay.Any(), 8))
    report = explain(typed([x], relay.nn.relu(relay.tanh(x))), TARGET)
    assert [(o["op"], o["reason"]) for o in report.opaque] == [
        ("tanh", "a shape is not static"),
        ("nn.relu", "a shape is not static"),
    ]
    assert report.ops == 2 and report.blocks == ()
    assert "Opaque:" in report.to_text()
    assert report.edge("tanh", "nn.relu")


def test_nodes_are_found_by_where_they_came_from() -> None:
    x = relay.var("x", shape=(4, 16))
    span = relay.Span(relay.SourceName("encoder/gate"), 0, 0, 0, 0)
    gate = relay.Call(relay.op.get("sigmoid"), [x], span=span)
    report = explain(typed([x], relay.exp(gate)), TARGET)
    assert report.blocks[0].spans[0] == "encoder/gate"
    assert "both in block0" in report.edge("encoder/gate", "exp")
