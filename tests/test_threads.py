"""Threads of TVM's runtime, each case in a process of its own: the pool is made once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_dnnfusion import threads
from tvm_dnnfusion.errors import OptionError


def printed(code: str, **environment: str) -> str:
    """Run ``code`` after the imports, without the variables that the tests' own process has."""
    clean = {name: value for name, value in os.environ.items() if name not in threads.THREAD_VARIABLES}
    imports = "import os, tvm; from tvm_dnnfusion.threads import configure_threads, cpus_by_core\n"
    result = subprocess.run(
        [sys.executable, "-c", imports + code],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


def test_configure_threads_takes_every_core_shrinks_and_grows_back() -> None:
    code = (
        "cores = len(cpus_by_core())\n"
        "assert configure_threads() == cores\n"
        "assert os.environ['TVM_NUM_THREADS'] == str(cores)\n"
        "print(configure_threads(1), configure_threads(cores) == cores)"
    )
    assert printed(code) == "1 True"


def test_configure_threads_obeys_environment_and_may_exceed_cores() -> None:
    assert printed("print(configure_threads())", TVM_NUM_THREADS="3", OMP_NUM_THREADS="1") == "3"


def test_default_threads_reads_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "not a number")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert threads.default_threads() == 7
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads.default_threads() == len(threads.cpus_by_core())


def test_configure_threads_refuses_none() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        threads.configure_threads(0)


def make_cpu(root: Path, cpu: int, package: int, core: int) -> None:
    folder = root / f"cpu{cpu}" / "topology"
    folder.mkdir(parents=True)
    (folder / "physical_package_id").write_text(f"{package}\n")
    (folder / "core_id").write_text(f"{core}\n")


def test_cpus_by_core_pairs_hyper_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two packages of two cores; each core shows up twice, half the machine further on.
    for cpu in range(8):
        make_cpu(tmp_path, cpu, package=cpu // 2 % 2, core=cpu % 2)
    monkeypatch.setattr(threads, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(threads, "_ALLOWED_CPUS", [0, 1, 2, 4, 5])
    assert threads.cpus_by_core() == [[0, 4], [1, 5], [2]]


def test_cpus_by_core_without_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(threads, "_ALLOWED_CPUS", [0, 1, 2, 3])
    monkeypatch.setattr(threads.psutil, "cpu_count", lambda logical: 2)
    assert threads.cpus_by_core() == [[0, 2], [1, 3]]
