"""Random groups of operators: one block computes what the operators compute one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tvm_dnnfusion.block_body import encode_body
from tvm_dnnfusion.block_operator import make_block

# Odd on purpose: a prime, a 1, one vector, one more than a vector.
EXTENTS = (1, 3, 7, 16, 17)
UNARY: tuple[Callable[[relay.Expr], relay.Expr], ...] = (
    relay.nn.relu,
    relay.tanh,
    relay.sigmoid,
    relay.abs,
    relay.negative,
    lambda x: relay.clip(x, -1.0, 1.0),
    lambda x: relay.multiply(x, relay.const(0.7071067811865476, "float32")),
)
BINARY = (relay.add, relay.multiply, relay.subtract, relay.maximum, relay.minimum)
REDUCTIONS = (relay.sum, relay.mean, relay.max, relay.min)
NORMALISING = (relay.nn.softmax, relay.nn.log_softmax)


def typed(function: relay.Function) -> relay.Function:
    """The function with types inferred."""
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]


def shape_of(expr: relay.Expr) -> tuple[int, ...]:
    """Static shape of an expression without inferred types."""
    inferred = relay.transform.InferTypeLocal(expr)
    return tuple(int(d) for d in inferred.shape)


class GroupMaker:
    """Grows a group from random operators; every value is float32."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.params: list[relay.Var] = []
        self.pool: list[tuple[relay.Expr, tuple[int, ...]]] = []

    def make(self, operators: int, outputs: int) -> relay.Function:
        """A typed function of about ``operators`` calls that returns ``outputs`` tensors."""
        self.parameter(tuple(int(d) for d in self.rng.choice(EXTENTS, self.rng.integers(1, 5))))
        for _ in range(operators):
            self._grow()
        made = [e for e, _ in self.pool if not isinstance(e, relay.Var)]
        kept = [made[-1], *(made[i] for i in self.rng.integers(0, len(made), outputs - 1))]
        kept = list(dict.fromkeys(kept))
        function = typed(relay.Function(self.params, kept[0] if len(kept) == 1 else relay.Tuple(kept)))
        free = set(relay.analysis.free_vars(function.body))
        return typed(relay.Function([p for p in function.params if p in free], function.body))

    def parameter(self, shape: tuple[int, ...]) -> relay.Var:
        """A new input of the group."""
        self.params.append(relay.var(f"x{len(self.params)}", shape=shape, dtype="float32"))
        self.pool.append((self.params[-1], shape))
        return self.params[-1]

    def _grow(self) -> None:
        # Recent values are likelier, so that chains grow as well as diamonds.
        recent = self.pool[-3:] if self.rng.random() < 0.6 else self.pool
        x, shape = recent[self.rng.integers(len(recent))]
        kinds = [self._unary, self._unary, self._binary, self._binary, self._broadcast, self._reduce]
        kinds += [self._normalise, self._move, self._concatenate, self._split, self._anchor]
        expr = kinds[self.rng.integers(len(kinds))](x, shape)
        if expr is not None:
            shape = shape_of(expr)
            if np.prod(shape) <= 40_000:
                self.pool.append((expr, shape))

    def _unary(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr:
        return UNARY[self.rng.integers(len(UNARY))](x)

    def _binary(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr:
        same = [e for e, s in self.pool if s == shape]
        return BINARY[self.rng.integers(len(BINARY))](x, same[self.rng.integers(len(same))])

    def _broadcast(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr:
        kept = shape[self.rng.integers(0, len(shape) + 1) :]
        other = tuple(1 if self.rng.random() < 0.3 else d for d in kept)
        return BINARY[self.rng.integers(len(BINARY))](self.parameter(other), x)

    def _reduce(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr | None:
        if not shape:
            return None
        axes = [a for a in range(len(shape)) if self.rng.random() < 0.5] or [len(shape) - 1]
        return REDUCTIONS[self.rng.integers(len(REDUCTIONS))](x, axes, bool(self.rng.integers(2)))

    def _normalise(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr | None:
        if not shape:
            return None
        return NORMALISING[self.rng.integers(2)](x, axis=int(self.rng.integers(len(shape))))

    def _move(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr | None:
        if not shape:
            return None
        choice = self.rng.integers(5)
        if choice == 0:
            return relay.transpose(x, [int(a) for a in self.rng.permutation(len(shape))])
        if choice == 1:
            return relay.reshape(x, (-1,) if self.rng.random() < 0.3 else tuple(reversed(shape)))
        if choice == 2:
            return relay.strided_slice(x, [0] * len(shape), [(d + 1) // 2 for d in shape])
        if choice == 3:
            return relay.expand_dims(x, 0) if len(shape) < 4 else relay.reverse(x, 1)
        return relay.nn.pad(x, [(0, int(self.rng.integers(2))) for _ in shape], pad_value=0.5)

    def _concatenate(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr | None:
        same = [e for e, s in self.pool if s == shape and s]
        if not same:
            return None
        parts = [x, same[self.rng.integers(len(same))]]
        return relay.concatenate(parts, int(self.rng.integers(len(shape))))

    def _split(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr | None:
        wide = [a for a, d in enumerate(shape) if d > 1]
        if not wide:
            return None
        parts = relay.split(x, [1], int(wide[self.rng.integers(len(wide))]))
        self.pool.append((parts[0], shape_of(parts[0])))
        return parts[1]

    def _anchor(self, x: relay.Expr, shape: tuple[int, ...]) -> relay.Expr | None:
        if len(shape) == 2:
            return relay.nn.dense(x, self.parameter((int(self.rng.choice(EXTENTS)), shape[1])))
        if len(shape) == 3:
            batched = self.parameter((shape[0], int(self.rng.choice(EXTENTS)), shape[2]))
            return relay.nn.batch_matmul(x, batched)
        if len(shape) == 4 and min(shape[2:]) >= 3:
            if self.rng.random() < 0.4:
                return relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1))
            weight = self.parameter((int(self.rng.choice(EXTENTS)), shape[1], 3, 3))
            return relay.nn.conv2d(x, weight, padding=(1, 1))
        return None


def random_inputs(function: relay.Function, rng: np.random.Generator) -> list[np.ndarray]:
    """Non-uniform values for the parameters of a typed function."""
    shapes = [tuple(int(d) for d in p.checked_type.shape) for p in function.params]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def run(mod: tvm.IRModule, values: Sequence[np.ndarray], opt_level: int) -> list[np.ndarray]:
    """Outputs of a module under the graph executor."""
    with tvm.transform.PassContext(opt_level=opt_level):
        library = relay.build(mod, "llvm -mcpu=znver1")
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for i, value in enumerate(values):
        module.set_input(i, value)
    module.run()
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]


def sealed(function: relay.Function) -> tvm.IRModule:
    """A module that is one block."""
    params = [relay.var(f"x{i}", p.checked_type) for i, p in enumerate(function.params)]
    block = make_block(encode_body(function), list(params), "Many-to-Many")
    return tvm.IRModule.from_expr(relay.Function(params, block))


@pytest.mark.parametrize("number", range(12))
def test_random_group_as_one_block(number: int, rng: np.random.Generator) -> None:
    function = GroupMaker(rng).make(operators=int(rng.integers(3, 14)), outputs=1 + number % 3)
    values = random_inputs(function, rng)
    expected = run(tvm.IRModule.from_expr(function), values, opt_level=0)
    found = run(sealed(function), values, opt_level=3)
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-5)
