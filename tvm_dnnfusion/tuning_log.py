"""Tuning logs of AutoTVM and Ansor, told apart by their first record."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tvm
from tvm import auto_scheduler, autotvm

from tvm_dnnfusion.errors import OptionError

# The fields that each record of a kind has: autotvm/record.py and auto_scheduler/measure_record.cc.
RECORD_FIELDS = {"AutoTVM": {"input", "config", "result"}, "Ansor": {"i", "r"}}


def log_kind(path: str | os.PathLike[str]) -> str:
    """Tell which tuner wrote a log.

    Returns
    -------
    str
        ``"AutoTVM"`` or ``"Ansor"``.

    Raises
    ------
    OptionError
        The file cannot be read, is empty, or any line of it is a record of neither or of the other kind.
    """
    kinds: set[str] = set()
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not line.startswith("#"):
                    kinds.add(_record_kind(line, f"line {number} of tuning log '{path}'"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(f"tuning log '{path}' cannot be read: {reason}") from error
    if len(kinds) != 1:
        what = "mixes AutoTVM and Ansor records" if kinds else "holds no record"
        raise OptionError(f"tuning log '{path}' {what}; records of one tuner, one per line, are accepted")
    return kinds.pop()


def _record_kind(line: str, where: str) -> str:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        record = None
    if isinstance(record, dict):
        for kind, fields in RECORD_FIELDS.items():
            if fields <= record.keys():
                return kind
    raise OptionError(f"{where} is no record; AutoTVM's and Ansor's JSON records are accepted")


@contextmanager
def apply_logs(paths: Sequence[str | os.PathLike[str]]) -> Iterator[list[str]]:
    """Make the best records of ``paths`` available to every build inside the ``with`` block.

    With Ansor records the current pass context gets ``relay.backend.use_auto_scheduler``; TVM then does not
    consult AutoTVM's records of ordinary operators.

    Yields
    ------
    list of str
        The kinds found, each once.
    """
    by_kind: dict[str, list[str]] = {}
    for path in paths:
        by_kind.setdefault(log_kind(path), []).append(str(Path(path)))
    with ExitStack() as stack:
        if "AutoTVM" in by_kind:
            stack.enter_context(autotvm.apply_history_best(by_kind["AutoTVM"]))
        if "Ansor" in by_kind:
            stack.enter_context(auto_scheduler.ApplyHistoryBest(by_kind["Ansor"]))
            current = tvm.transform.PassContext.current()
            config = {**dict(current.config), "relay.backend.use_auto_scheduler": True}
            stack.enter_context(tvm.transform.PassContext(opt_level=3, config=config))
        yield list(by_kind)
