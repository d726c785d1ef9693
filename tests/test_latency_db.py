"""The latency database: values, faults of the file, several processes, a killed writer."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import tempfile
import time
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tvm_dnnfusion.errors import DatabaseError
from tvm_dnnfusion.latency_db import LatencyDatabase

# Forked, as a child that starts anew would import the compiler first.
PROCESSES = multiprocessing.get_context("fork")


def write(path: Path, device: str, count: int) -> None:
    with LatencyDatabase(path) as database:
        for i in range(count):
            database.store("llvm", device, block(i), float(i))


def block(i: int) -> str:
    return f"block {i}" + " " * 2000


def write_without_rights(path: Path, reply: Connection) -> None:
    """Drop to another user first: the superuser may write anything."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        write(path, "cpu", 1)
    except DatabaseError as error:
        reply.send(str(error))
    reply.close()


def test_latency_db_round_trip_and_replacement(tmp_path: Path) -> None:
    with LatencyDatabase(tmp_path / "latency.db") as database:
        assert database.find("llvm", "cpu", "a") is None
        database.store("llvm", "cpu", "a", 1.25)
        database.store("llvm", "phone", "a", 7.0)
        database.store("llvm", "cpu", "a", 0.1 + 0.2)
    with LatencyDatabase(tmp_path / "latency.db") as database:
        assert database.find("llvm", "cpu", "a") == 0.1 + 0.2
        assert database.find("llvm", "phone", "a") == 7.0
        assert database.find("cuda", "cpu", "a") is None
        assert len(database) == 2


def test_latency_db_read_only(tmp_path: Path) -> None:
    path = tmp_path / "latency.db"
    with pytest.raises(DatabaseError, match="give the path of a file"):
        LatencyDatabase(path, read_only=True)
    with LatencyDatabase(path) as database:
        database.store("llvm", "cpu", "a", 1.0)
    with LatencyDatabase(path, read_only=True) as database:
        assert database.find("llvm", "cpu", "a") == 1.0
        with pytest.raises(DatabaseError, match="opened read-only: open it without read_only"):
            database.store("llvm", "cpu", "a", 2.0)


def test_latency_db_refuses_file_without_write_permission() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "latency.db"
        LatencyDatabase(path).close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        receiver, sender = PROCESSES.Pipe(duplex=False)
        child = PROCESSES.Process(target=write_without_rights, args=(path, sender))
        child.start()
        sender.close()
        message = receiver.recv()
        child.join()
        Path(folder).chmod(0o755)
    assert "make the file and its directory writable, or open it read-only" in message


@pytest.mark.parametrize("content", [b"no database at all " * 500, b"SQLite format 3\0" + b"\xff" * 8000])
def test_latency_db_refuses_corrupt_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "latency.db"
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match="move it away or give another path"):
        LatencyDatabase(path)
    assert path.read_bytes() == content


def test_latency_db_reports_damage_found_later(tmp_path: Path) -> None:
    path = tmp_path / "latency.db"
    with LatencyDatabase(path) as database:
        for i in range(500):
            database.store("llvm", "cpu", f"block {i}" * 50, float(i))
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(DatabaseError, match="move it away"), LatencyDatabase(path) as database:
        for i in range(500):
            database.find("llvm", "cpu", f"block {i}" * 50)


def test_latency_db_leaves_other_databases_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE mine (x)")
    content = path.read_bytes()
    with pytest.raises(DatabaseError, match="is not a latency database"):
        LatencyDatabase(path)
    assert path.read_bytes() == content


def test_latency_db_refuses_other_version(tmp_path: Path) -> None:
    path = tmp_path / "latency.db"
    LatencyDatabase(path).close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA user_version = 99")
    with pytest.raises(DatabaseError, match="version 99, this release reads 1"):
        LatencyDatabase(path)


def test_latency_db_reports_lock_held_by_another(tmp_path: Path) -> None:
    path = tmp_path / "latency.db"
    with LatencyDatabase(path, timeout=0.1) as database:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        assert database.find("llvm", "cpu", "a") is None
        with pytest.raises(DatabaseError, match=r"another process held it for 0\.1 s"):
            database.store("llvm", "cpu", "a", 1.0)
        holder.close()
        database.store("llvm", "cpu", "a", 1.0)


def test_latency_db_survives_killed_writer(tmp_path: Path) -> None:
    path = tmp_path / "latency.db"
    LatencyDatabase(path).close()
    writer = PROCESSES.Process(target=write, args=(path, "cpu", 10**9))
    writer.start()
    with LatencyDatabase(path, read_only=True) as reader:
        deadline = time.monotonic() + 60
        while len(reader) < 50 and time.monotonic() < deadline:
            time.sleep(0.01)
        writer.kill()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with LatencyDatabase(path) as database:
        count = len(database)
        assert count >= 50
        for i in range(count):
            assert database.find("llvm", "cpu", block(i)) == float(i)
        database.store("llvm", "cpu", "next", 1.0)


def test_latency_db_takes_concurrent_writers_and_readers(tmp_path: Path) -> None:
    """Four processes create and fill one new file at once while this one reads."""
    path = tmp_path / "latency.db"
    writers = [PROCESSES.Process(target=write, args=(path, f"cpu{k}", 50)) for k in range(4)]
    for writer in writers:
        writer.start()
    with LatencyDatabase(path) as database:
        while any(writer.is_alive() for writer in writers):
            len(database)
            time.sleep(0.01)
        for writer in writers:
            writer.join()
        assert [writer.exitcode for writer in writers] == [0] * 4
        assert len(database) == 200
