"""The dynamic order of groups against brute-force reachability."""

from __future__ import annotations

import random

import pytest

from tvm_dnnfusion import topological_order
from tvm_dnnfusion.topological_order import QuotientOrder


def random_preds(rng: random.Random, size: int) -> list[list[int]]:
    """Local edges and a few long ones."""
    return [
        sorted(
            {max(0, n - rng.randint(1, 5)) if rng.random() < 0.8 else rng.randrange(n) for _ in range(2)}
            - {n}
        )
        if n
        else []
        for n in range(size)
    ]


def quotient_edges(preds: list[list[int]], owner: list[int]) -> set[tuple[int, int]]:
    edges = {(owner[p], owner[n]) for n, sources in enumerate(preds) for p in sources}
    return {(a, b) for a, b in edges if a != b}


def reachable(edges: set[tuple[int, int]], start: int) -> set[int]:
    reached, frontier = set(), {start}
    while frontier:
        frontier = {b for a, b in edges if a in frontier} - reached
        reached |= frontier
    return reached


@pytest.mark.parametrize("gap", [2, 1 << 32])
def test_order_contracts_exactly_the_edges_without_bypass(
    seed: int, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random contractions of single nodes into growing blocks; a gap of 2 renumbers all the time."""
    monkeypatch.setattr(topological_order, "_GAP", gap)
    accepted = refused = 0
    for case in range(25):
        rng = random.Random(seed + case)
        preds = random_preds(rng, 30)
        order = QuotientOrder(preds)
        for _ in range(60):
            edges = quotient_edges(preds, order.owner)
            low, high = rng.choice(sorted(edges))
            single = [v for v in (low, high) if order.owner.count(v) == 1]
            if not single:
                continue
            bypass = high in set().union(
                *(reachable(edges, b) for a, b in edges if a == low and b != high), set()
            )
            consumers = [
                n
                for n in range(30)
                if order.owner[n] == high and any(order.owner[p] == low for p in preds[n])
            ]
            contraction = order.query(low, high, consumers)
            print(f"seed {seed + case}: {low} -> {high}, bypass {bypass}, {contraction}")
            assert (contraction.witness is not None) == bypass
            if contraction.witness is not None:
                refused += 1
                middle = order.owner[contraction.witness]
                assert middle not in (low, high)
                assert middle in reachable(edges, low)
                assert high in reachable(edges, middle)
                continue
            accepted += 1
            order.contract(low, high, contraction, low if single[0] == high else high)
            after = quotient_edges(preds, order.owner)
            assert all(order.position(a) < order.position(b) for a, b in after)
    assert accepted > 100
    assert refused > 100


def test_order_sees_a_deep_bypass_without_walking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip connection around 100,000 nodes is answered from the static tree."""
    size = 100_000
    preds = [[], *([n] for n in range(size - 2)), [0, size - 2]]
    order = QuotientOrder(preds)
    monkeypatch.setattr(order, "_search", lambda low, high: pytest.fail("searched"))
    assert order.query(0, size - 1, [size - 1]).witness == size - 2


def test_order_search_costs_the_cheaper_side() -> None:
    """A hub with 10,000 consumers is not expanded when the other end has one short second operand."""
    size = 10_002
    preds: list[list[int]] = [[], [], *([0] for _ in range(size - 3)), [0, 1]]
    order = QuotientOrder(preds)
    looked_up: list[int] = []
    live = order._live

    def counted(adjacency: list[list[int]], vertex: int) -> list[int]:
        looked_up.append(len(adjacency[vertex]))
        return live(adjacency, vertex)

    order._live = counted  # type: ignore[method-assign]
    assert order.query(0, size - 1, [size - 1]).witness is None
    assert sum(looked_up) < 10
