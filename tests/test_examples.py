"""The examples run and end in their own assertions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_quickstart_compares_a_network_with_stock() -> None:
    command = [sys.executable, str(ROOT / "examples" / "quickstart.py"), "dcgan"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ours" in done.stdout and "stock" in done.stdout and "kernels" in done.stdout


def test_add_a_rule_proves_and_uses_its_rule() -> None:
    command = [sys.executable, str(ROOT / "examples" / "add_a_rule.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "span=rule:ReflectSigmoid" in done.stdout
