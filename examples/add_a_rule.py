"""A rewriting rule of your own: declare it, prove it, and see it used.

Run:  python examples/add_a_rule.py
"""

from __future__ import annotations

import tvm
from tvm import relay
from tvm_dnnfusion.passes.rewrite_properties import RewriteProperties, RewritingLog

from tvm_dnnfusion.rewriting.language import A, sigmoid
from tvm_dnnfusion.rewriting.proof import prove
from tvm_dnnfusion.rewriting.rule import RULES, Property, rule


@rule(Property.IDENTITY, numerics="reassociates")
class ReflectSigmoid:
    """1 - sigmoid(-A) is sigmoid(A): two operations fewer."""

    lhs, rhs = 1 - sigmoid(-A), sigmoid(A)
    fires = [dict(A=(8, 16)), dict(A=(3, 1, 5))]


# It fires on its probes, is cheaper, is right on random and on special values, and refuses integers.
prove(RULES["ReflectSigmoid"])

x = relay.var("x", shape=(4, 5))
body = relay.const(1.0) - relay.sigmoid(-x)
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
logs: list[RewritingLog] = []
rewritten = RewriteProperties(on_log=logs.append)(module)
print(rewritten)
assert [fired.rule for fired in logs[0].fired] == ["ReflectSigmoid"]
assert {str(name) for name in relay.analysis.list_op_freqs(rewritten)} == {"sigmoid"}
