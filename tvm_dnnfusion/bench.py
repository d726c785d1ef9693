"""Latency of a model, compared with other engines in one process.

Engines take turns, in rounds, so that a slow minute of the machine meets them all; each uses the same number
of threads. The medians over all rounds are reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_dnnfusion.bench_peers import OURS, Workload, find_peer, prepare
from tvm_dnnfusion.errors import OptionError
from tvm_dnnfusion.runner import Runner

# A turn goes on for at least this long, so that short models get more runs.
TURN_SECONDS = 0.05
MAX_RUNS_PER_TURN = 100
# Idle worker threads of the engine before spin for some milliseconds; they must not take this one's cores.
SETTLE_SECONDS = 0.02


@dataclass(frozen=True)
class BenchResult:
    """Times of one model.

    Attributes
    ----------
    model : str
        The model's name.
    threads : int
        Threads of every engine.
    milliseconds : dict of str to list of float
        Every timed run, by engine: ``ours`` first, then the peers.
    difference : dict of str to float
        By peer: the largest ``|ours - peer| / (1 + |peer|)`` over all output elements; ``nan`` where one is
        not a number and the other is, ``inf`` where shapes differ.
    """

    model: str
    threads: int
    milliseconds: dict[str, list[float]]
    difference: dict[str, float]

    def median(self, engine: str) -> float:
        """Median milliseconds of an engine's runs."""
        return statistics.median(self.milliseconds[engine])

    def to_json(self) -> dict[str, Any]:
        """Give medians, ratios (a peer's time over ours: above 1 we are faster) and differences."""
        fields: dict[str, Any] = {"model": self.model, "threads": self.threads}
        for engine, runs in self.milliseconds.items():
            fields[f"{engine}_ms"] = self.median(engine)
            fields[f"{engine}_runs"] = len(runs)
        for peer, difference in self.difference.items():
            fields[f"{peer}_over_{OURS}"] = self.median(peer) / self.median(OURS)
            fields[f"{peer}_difference"] = difference
        return fields


def bench_model(workload: Workload, against: Sequence[str] = ("stock",), rounds: int = 10) -> BenchResult:
    """Time a model on this package and on peers, interleaved.

    Parameters
    ----------
    workload : Workload
        The model, its inputs, target and threads; call ``configure_threads`` with the latter before.
    against : sequence of str
        Names of :py:data:`tvm_dnnfusion.bench_peers.PEERS`.
    rounds : int
        Turns of each engine, at least 1.

    Returns
    -------
    BenchResult
        All runs and medians in milliseconds, and how far the outputs differ.

    Raises
    ------
    OptionError
        An unknown peer, one that is not installed or cannot read the model, or no rounds.
    """
    if rounds < 1:
        raise OptionError(f"the number of rounds is {rounds}; it must be at least 1")
    for name in against:
        find_peer(name)
    runners = {name: prepare(name, workload) for name in (OURS, *against)}
    milliseconds = time_in_turns(runners, rounds)
    ours = runners[OURS].outputs()
    difference = {name: _difference(ours, runners[name].outputs()) for name in against}
    return BenchResult(workload.name, workload.threads, milliseconds, difference)


def time_in_turns(runners: Mapping[str, Runner], rounds: int) -> dict[str, list[float]]:
    """Time runners whose inputs are set, interleaved.

    Parameters
    ----------
    runners : mapping of str to Runner
        By engine.
    rounds : int
        Turns of each engine.

    Returns
    -------
    dict of str to list of float
        Milliseconds of every timed run, by engine.
    """
    counts = {name: _runs_per_turn(runner) for name, runner in runners.items()}
    milliseconds: dict[str, list[float]] = {name: [] for name in runners}
    names = list(runners)
    for round_number in range(rounds):
        # Nobody always follows the same neighbour.
        shift = round_number % len(names)
        for name in names[shift:] + names[:shift]:
            milliseconds[name] += _take_turn(runners[name], counts[name])
    return milliseconds


def _runs_per_turn(runner: Runner) -> int:
    """Judge by the fastest of a few runs: the others may have met a busy machine."""
    fastest = min(_take_turn(runner, 3)) / 1e3
    return max(1, min(MAX_RUNS_PER_TURN, round(TURN_SECONDS / max(fastest, 1e-9))))


def _take_turn(runner: Runner, count: int) -> list[float]:
    """Time ``count`` runs, in milliseconds, after one that is not counted."""
    time.sleep(SETTLE_SECONDS)
    runner.run()
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        runner.run()
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


def _difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    if [array.shape for array in ours] != [array.shape for array in theirs]:
        return float("inf")
    worst = 0.0
    for left, right in zip(ours, theirs, strict=True):
        a, b = left.astype(np.float64), right.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            gap = np.where(same, 0.0, np.abs(a - b) / (1 + np.abs(b)))
        worst = float(np.max(gap, initial=worst))
    return worst
