"""Which of the three mathematical properties of section 3 hold for an operator."""

from __future__ import annotations

_BITWISE = {"bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor"}
_ASSOCIATIVE = frozenset({"add", "multiply", "maximum", "minimum"} | _BITWISE)

# Symmetric in its operands, or (reductions) exchangeable with an operator on the elements:
# the sum of shifted elements is the shifted sum, the product of exponentials the exponential of the sum.
_REDUCTIONS = {"sum", "prod", "mean", "max", "min", "any", "all"}
_COMMUTATIVE = frozenset(_ASSOCIATIVE | _REDUCTIONS | {"equal", "not_equal"})

# One operator of each pair that distributes: f(a + b) = f(a) + f(b) for linear operators,
# f(a * b) = f(a) * f(b) for abs, sqrt, rsqrt, power and prod, max(a + c, b + c) = max(a, b) + c,
# "and" over "or" and the reverse.
_LINEAR = {"negative", "multiply", "divide", "left_shift", "sum", "mean", "einsum"} | {
    f"nn.{name}"
    for name in (
        "dense",
        "matmul",
        "batch_matmul",
        *(f"conv{r}d{t}" for r in (1, 2, 3) for t in ("", "_transpose")),
    )
}
_DISTRIBUTIVE = frozenset(
    {"add", "subtract", "maximum", "minimum", "abs", "sqrt", "rsqrt", "power", "prod"}
    | {"logical_and", "logical_or", "bitwise_and", "bitwise_or"}
    | _LINEAR
)


def properties(op: str) -> frozenset[str]:
    """Those of ``associative``, ``commutative`` and ``distributive`` that hold for a Relay operator.

    They say where rules may apply, over the reals; what a rule may do to floats is the rule's own licence.
    An operator with none of them is where rewriting cuts the graph.
    """
    table = {"associative": _ASSOCIATIVE, "commutative": _COMMUTATIVE, "distributive": _DISTRIBUTIVE}
    return frozenset(name for name, members in table.items() if op in members)
