"""Measure a directory in a process of its own, and see what is left of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.storagesim import library

MEASURE = Path(__file__).with_name("measure.py")
PROJECT = MEASURE.parent.parent.parent
QUICK_S = 2.0
SPEEDS = ("write_one_bytes_per_s", "write_all_bytes_per_s", "read_one_bytes_per_s", "read_all_bytes_per_s")


def is_empty(directory: Path) -> bool:
    return os.listdir(directory) == []


def start(directory: Path, writers: int = 2, budget_s: float = QUICK_S, uid: str = "", **fault: str) -> Any:
    """Start the measurement in a process of its own, on a directory with this fault."""
    environ = {**os.environ, "PYTHONPATH": str(PROJECT), **fault}
    if fault:
        environ["LD_PRELOAD"] = str(library())
    argv = [sys.executable, str(MEASURE), str(directory), str(writers), str(budget_s), *([uid] if uid else [])]
    return subprocess.Popen(
        argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def measured(directory: Path, *arguments: Any, **fault: Any) -> dict[str, Any]:
    """Return what such a process measured; it must end well."""
    process = start(directory, *arguments, **fault)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (0, "")
    assert_nothing_is_left(process, directory)
    document = json.loads(stdout.splitlines()[-1])
    reasons = {gap["fact"].removeprefix("value."): gap["reason"] for gap in document["gaps"]}
    return {name: reasons.get(name, value) for name, value in document["value"].items()}


def left_of(process: Any) -> list[str]:
    """Return the living processes of the session that the process led."""
    left = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(process.pid) and fields[0] not in "ZX":
            left.append(entry)
    return left


def assert_nothing_is_left(process: Any, directory: Path) -> None:
    until = time.monotonic() + 5  # a killed process goes only when the disk has flushed what it waited for
    while left_of(process) and time.monotonic() < until:
        time.sleep(0.02)
    assert left_of(process) == []
    assert is_empty(directory)
