"""Settings of every test: offline, seeded, a fixed number of threads."""

from __future__ import annotations

import os
import random
import socket
import zlib
from collections.abc import Iterator
from typing import Any

# Before anything imports TVM, which reads both when it starts.
os.environ.setdefault("TOPHUB_LOCATION", "NONE")  # or AutoTVM downloads tuned logs
os.environ.setdefault("TVM_NUM_THREADS", str(min(2, os.cpu_count() or 1)))

import hypothesis
import numpy as np
import pytest

SEED_VARIABLE = "DNNFUSION_TEST_SEED"

# CI always tries the same examples; at home each run tries new ones and prints how to repeat a failure.
hypothesis.settings.register_profile(
    "dnnfusion", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI"))
)
hypothesis.settings.load_profile("dnnfusion")


def pytest_report_header() -> str:
    """Name the settings that a failure depends on."""
    names = ("TOPHUB_LOCATION", "TVM_NUM_THREADS", SEED_VARIABLE)
    return ", ".join(f"{name}={os.environ.get(name, '(per test)')}" for name in names)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Give each test a fixed seed of its own; the environment variable overrides it."""
    return int(os.environ.get(SEED_VARIABLE, zlib.crc32(request.node.nodeid.encode())))


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """Give the test a generator; its seed is printed with a failure."""
    print(f"{SEED_VARIABLE}={seed}")
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def seeded_globals(seed: int) -> None:
    """Seed the generators that library code (AutoTVM's tuners, for one) takes from the process."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse connections to other machines; a loopback RPC tracker is fine."""
    connect = socket.socket.connect

    def connect_locally(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in (
            "127.0.0.1",
            "localhost",
            "::1",
        ):
            raise PermissionError(f"a test tried to connect to {address[0]}; tests run offline")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_locally)
    yield
