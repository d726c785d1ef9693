"""The text of a block: the same for equal blocks, different for different ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from tvm_dnnfusion.canonical_form import canonical_form
from tvm_dnnfusion.ecg import ECG, Node, TensorInfo, Value
from tvm_dnnfusion.mapping_type import MappingType

O2O, M2M, SHUFFLE = MappingType.ONE_TO_ONE, MappingType.MANY_TO_MANY, MappingType.SHUFFLE
Shape = tuple[int, ...]


def leaf(shape: Shape, kind: str = "source") -> tuple[str, MappingType, Sequence[int], Shape, int]:
    return kind, O2O, (), shape, 0


def graph(*rows: tuple[str, MappingType, Sequence[int], Shape, int], outputs: Sequence[int] = ()) -> ECG:
    """One row per node: name, type, inputs, shape, FLOPs; a row without inputs is a leaf."""
    nodes = []
    for i, (name, kind, inputs, shape, flops) in enumerate(rows):
        info = (TensorInfo(shape, "float32"),)
        if inputs:
            values, types = tuple(map(Value, inputs)), (kind,) * len(inputs)
            nodes.append(Node(i, "op", name, values, info, types, kind, kind, flops))
        else:
            nodes.append(Node(i, name, name, outputs=info))
    return ECG(tuple(nodes), tuple(map(Value, outputs or (len(rows) - 1,))))


def conv_transpose() -> ECG:
    return graph(
        leaf((8, 8)), ("conv", M2M, (0,), (8, 8), 100), ("transpose", SHUFFLE, (1,), (8, 8), 0), outputs=(2,)
    )


def relabelled(ecg: ECG, rng: random.Random) -> tuple[ECG, dict[int, int]]:
    """The same graph with nodes in another topological order, and each node's new id."""
    position: dict[int, int] = {}
    while len(position) < len(ecg.nodes):
        ready = [n for n in ecg.nodes if n.id not in position and all(v.node in position for v in n.inputs)]
        position[rng.choice(ready).id] = len(position)
    nodes = sorted(ecg.nodes, key=lambda n: position[n.id])
    moved = [
        Node(
            position[n.id],
            n.kind,
            n.op,
            tuple(Value(position[v.node], v.index) for v in n.inputs),
            n.outputs,
            n.operand_types,
            n.mapping_type,
            n.entry_type,
            n.flops,
        )
        for n in nodes
    ]
    return ECG(tuple(moved), tuple(Value(position[v.node], v.index) for v in ecg.outputs)), position


def random_graph(rng: random.Random) -> ECG:
    rows = [leaf(rng.choice([(4,), ()]), rng.choice(["source", "constant"])) for _ in range(3)]
    for i in range(3, 3 + rng.randint(2, 10)):
        inputs = [rng.randrange(i) for _ in range(rng.choice([1, 2]))]
        rows.append((rng.choice(["add", "exp"]), O2O, inputs, (4,), 4))
    return graph(*rows)


def test_canonical_form_does_not_depend_on_ids(seed: int) -> None:
    for case in range(200):
        rng = random.Random(seed + case)
        ecg = random_graph(rng)
        other, position = relabelled(ecg, rng)
        members = [n.id for n in ecg.nodes if n.kind == "op" and rng.random() < 0.7]
        print(f"seed {seed + case}")
        assert canonical_form(ecg, members) == canonical_form(other, [position[n] for n in members])


def test_canonical_form_sees_what_else_an_operand_feeds() -> None:
    """The two tanh differ only in a sibling that reads the operand of one of them."""
    forms = {
        canonical_form(
            graph(
                leaf((4,)),
                leaf((4,)),
                ("exp", O2O, (0,), (4,), 4),
                ("exp", O2O, (1,), (4,), 4),
                ("tanh", O2O, (2,), (4,), 4),
                ("tanh", O2O, (3,), (4,), 4),
                ("negative", O2O, (fed,), (4,), 4),
                outputs=(4, 5, 6),
            ),
            range(2, 7),
        )
        for fed in (2, 3)
    }
    assert len(forms) == 1


def test_canonical_form_tells_different_blocks_apart() -> None:
    x, y, small = leaf((8, 8)), leaf((8, 8)), leaf((8,))
    weight, scalar = leaf((8, 8), "constant"), leaf((), "constant")
    add = ("add", O2O, (0, 1), (8, 8), 64)
    blocks = [
        graph(x, y, add),
        graph(x, y, ("add", O2O, (0, 0), (8, 8), 64)),
        graph(x, y, ("multiply", O2O, (0, 1), (8, 8), 64)),
        graph(x, small, add),
        graph(small, x, add),
        graph(x, weight, add),
        graph(x, scalar, add),
        graph(x, y, add, ("exp", O2O, (2,), (8, 8), 64)),
        graph(x, y, add, ("exp", O2O, (2,), (8, 8), 64), outputs=(2, 3)),
        graph(x, y, ("exp", O2O, (0,), (8, 8), 64), ("subtract", O2O, (2, 1), (8, 8), 64)),
        graph(x, y, ("exp", O2O, (0,), (8, 8), 64), ("subtract", O2O, (1, 2), (8, 8), 64)),
    ]
    forms = [canonical_form(ecg, [n.id for n in ecg.nodes if n.kind == "op"]) for ecg in blocks]
    for (i, first), (k, second) in itertools.combinations(enumerate(forms), 2):
        assert first != second, (i, k)


def test_canonical_form_holds_attributes() -> None:
    info = (TensorInfo((4, 4), "float32"),)
    forms = {
        canonical_form(
            ECG(
                (
                    Node(0, "source", "x", outputs=info),
                    Node(
                        1, "op", "transpose", (Value(0),), info, (SHUFFLE,), SHUFFLE, SHUFFLE, attributes=axes
                    ),
                ),
                (Value(1),),
            ),
            (1,),
        )
        for axes in ("axes=[0, 1]", "axes=[1, 0]")
    }
    assert len(forms) == 2


def test_canonical_form_reads_like_a_program() -> None:
    assert canonical_form(conv_transpose(), (1, 2)).splitlines() == [
        "%0 = conv(input0: float32[8, 8]) -> float32[8, 8]",
        "%1 = transpose(%0.0) -> float32[8, 8]",
        "return %1.0",
    ]
