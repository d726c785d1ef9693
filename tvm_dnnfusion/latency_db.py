"""Measured latencies of blocks, kept across models and runs in one SQLite file.

The paper's profiling database (section 4.3) holds operator types, shapes, combinations and their
latency, measured once. Here the key is the target, the device and the block's canonical form.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from .errors import DatabaseError

_VERSION = 1
_APPLICATION_ID = 0x444E4E46  # "DNNF", tells our files from other SQLite ones
_SCHEMA = """
CREATE TABLE latency (
    target TEXT NOT NULL,
    device TEXT NOT NULL,
    digest TEXT NOT NULL,
    block TEXT NOT NULL,
    milliseconds REAL NOT NULL,
    PRIMARY KEY (target, device, digest)
) WITHOUT ROWID
"""
_FIND = "SELECT milliseconds FROM latency WHERE target = ? AND device = ? AND digest = ?"
_STORE = """
INSERT INTO latency VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET milliseconds = excluded.milliseconds
"""


class LatencyDatabase:
    """One connection to a database of latencies; several processes may have theirs at once.

    The file uses a write-ahead log and one transaction per write: a process that is killed loses at
    most the write it was in, and readers never wait.

    Parameters
    ----------
    path
        The file; created if absent, unless ``read_only``.
    read_only
        Refuse writes and leave the file as it is.
    timeout
        Seconds to wait for another process's write.

    Raises
    ------
    DatabaseError
        If the file cannot be opened, is corrupt, is something else, or is of another version.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._timeout = timeout
        with self._explained():
            if read_only:
                uri = f"{self.path.absolute().as_uri()}?mode=ro"
                self._connection = sqlite3.connect(uri, timeout, isolation_level=None, uri=True)
            else:
                self._connection = sqlite3.connect(self.path, timeout, isolation_level=None)
        try:
            with self._explained():
                self._prepare()
        except DatabaseError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        if not self.read_only and self._is_new():
            self._use_log()
            self._create()
        version, application = self._pragma("user_version"), self._pragma("application_id")
        if application != _APPLICATION_ID:
            raise DatabaseError(f"{self.path} is not a latency database: give the path of one, or a new path")
        if version != _VERSION:
            raise DatabaseError(
                f"{self.path} has latency database version {version}, this release reads {_VERSION}: "
                "use another path, or delete the file to measure anew"
            )
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("SELECT count(*) FROM (SELECT 1 FROM latency LIMIT 1)").fetchone()

    def _pragma(self, name: str) -> object:
        return self._connection.execute(f"PRAGMA {name}").fetchone()[0]

    def _is_new(self) -> bool:
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return tables == 0 and self._pragma("user_version") == 0

    def _use_log(self) -> None:
        """Switch to a write-ahead log; SQLite does not wait by itself while another process does so."""
        deadline = time.monotonic() + self._timeout
        while not self._switched(deadline):
            time.sleep(0.01)

    def _switched(self, deadline: float) -> bool:
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            return False
        return True

    def _create(self) -> None:
        """Write the schema unless another process did so meanwhile."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if self._is_new():
                self._connection.execute(_SCHEMA)
                self._connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version = {_VERSION}")
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise

    def find(self, target: str, device: str, block: str) -> float | None:
        """Latency of ``block`` (a canonical form) in milliseconds, or None if it was never measured.

        Raises
        ------
        DatabaseError
            If the file cannot be read.
        """
        with self._explained():
            row = self._connection.execute(_FIND, (target, device, _digest(block))).fetchone()
        return None if row is None else float(row[0])

    def store(self, target: str, device: str, block: str, milliseconds: float) -> None:
        """Record the latency of ``block`` on ``device``, replacing an earlier one.

        Raises
        ------
        DatabaseError
            If the database was opened read-only, or the file cannot be written.
        """
        if self.read_only:
            raise DatabaseError(
                f"{self.path} was opened read-only: open it without read_only to store latencies"
            )
        with self._explained():
            self._connection.execute(_STORE, (target, device, _digest(block), block, milliseconds))

    def __len__(self) -> int:
        with self._explained():
            return int(self._connection.execute("SELECT count(*) FROM latency").fetchone()[0])

    def close(self) -> None:
        """Close the connection; the object is of no use afterwards."""
        self._connection.close()

    def __enter__(self) -> LatencyDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite's errors into ones that say what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise DatabaseError(f"{self.path}: {error}: {self._advice(str(error))}") from error

    def _advice(self, message: str) -> str:
        if "readonly" in message:
            return "make the file and its directory writable, or open it read-only"
        if "locked" in message:
            return f"another process held it for {self._timeout:g} s, end that or raise the timeout"
        if "unable to open" in message:
            return "give the path of a file in an existing directory that this user may access"
        if "is full" in message or "I/O" in message:
            return "check the file system's space and state"
        return "the file is damaged or no latency database, move it away or give another path"


def _digest(block: str) -> str:
    return hashlib.sha256(block.encode()).hexdigest()
