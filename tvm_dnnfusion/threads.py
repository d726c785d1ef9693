"""Threads of TVM's runtime: as many as physical cores unless told otherwise.

TVM's pool takes half of the logical CPUs on x86 (``MaxConcurrency`` in
``src/runtime/threading_backend.cc``), on the assumption that each core shows up twice. On machines without
hyper-threads, most virtual ones among them, half of the cores then stay idle.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import tvm

from tvm_dnnfusion.errors import OptionError

# ThreadGroup::AffinityMode::kSpecifyThreadShareAllCore, include/tvm/runtime/threading_backend.h
SHARE_ALL_CORES = -3
# What TVM itself reads, in this order, when its pool starts.
THREAD_VARIABLES = ("TVM_NUM_THREADS", "OMP_NUM_THREADS")
TOPOLOGY = Path("/sys/devices/system/cpu")


def _allowed_cpus() -> list[int]:
    """Logical CPUs that this process may run on, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


# Read once: TVM's pool narrows the affinity of the thread that calls it, so later reads would be too small.
_ALLOWED_CPUS = _allowed_cpus()


def _core_of(cpu: int) -> tuple[str, str]:
    """Identify the physical core of a logical CPU by package and core number."""
    folder = TOPOLOGY / f"cpu{cpu}" / "topology"
    return (folder / "physical_package_id").read_text(), (folder / "core_id").read_text()


def cpus_by_core() -> list[list[int]]:
    """Group the logical CPUs that this process may use by physical core.

    Returns
    -------
    list of list of int
        One list per core, each ascending; in the order of the cores' first CPUs. Where the system does not
        tell (anything but Linux), the CPUs are dealt out to the number of cores that ``psutil`` counts.
    """
    try:
        cores: dict[tuple[str, str], list[int]] = {}
        for cpu in _ALLOWED_CPUS:
            cores.setdefault(_core_of(cpu), []).append(cpu)
        return list(cores.values())
    except OSError:
        count = min(psutil.cpu_count(logical=False) or len(_ALLOWED_CPUS), len(_ALLOWED_CPUS))
        return [_ALLOWED_CPUS[core::count] for core in range(count)]


def default_threads() -> int:
    """Return the user's choice from the environment, else the number of physical cores."""
    for name in THREAD_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(cpus_by_core())


def configure_threads(n: int | None = None) -> int:
    """Make TVM's runtime use ``n`` threads.

    Workers share the chosen logical CPUs: first one per physical core, then second hyper-threads, then
    again from the front. The environment variable ``TVM_NUM_THREADS`` is set as well, for child processes
    (tuning workers, RPC servers).

    Parameters
    ----------
    n : int, optional
        Number of threads, at least 1; ``TVM_NUM_THREADS``, ``OMP_NUM_THREADS`` or the number of physical
        cores by default.

    Returns
    -------
    int
        The threads that will run. Fewer than asked for if the calling thread has already run a kernel with
        fewer: TVM's pool can shrink but not grow.

    Raises
    ------
    OptionError
        ``n`` is less than 1.
    """
    if n is None:
        n = default_threads()
    if n < 1:
        raise OptionError(f"the number of threads is {n}; it must be at least 1")
    cores = cpus_by_core()
    widest = max(len(core) for core in cores)
    order = [core[k] for k in range(widest) for core in cores if k < len(core)]
    cpus = [str(order[i % len(order)]) for i in range(n)]
    os.environ["TVM_NUM_THREADS"] = str(n)
    # Without the list of CPUs the pool would keep its own maximum, half of them.
    tvm.get_global_func("runtime.config_threadpool")(SHARE_ALL_CORES, n, cpus)
    return int(tvm.get_global_func("runtime.NumThreads")())
