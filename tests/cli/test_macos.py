"""On macOS a colleague's log, report or timeout is read as on Linux; the other commands say that they need Linux.

There is no macOS here: `as_macos.py` hides what only Linux has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.show.json_document import render_json
from tests.cli.as_macos import __file__ as as_macos
from tests.command import Command
from tests.conftest import PROJECT
from tests.reports import report_of

pytestmark = pytest.mark.heavy(6)

SEED = str(PROJECT / "tests" / "explain" / "seeds" / "1_qwen_vl_oom_behind_timeout.log")


def on_macos(command: Command, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, as_macos, *arguments], cwd=command.cwd, env=command.environ({"PREFLIGHT_VERBOSE": ""}),
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("line", [
    "doctor --json -", f"explain {SEED}",
    "timeout --params 7B --strategy fsdp", "timeout --params 7B --report report.json",
    "fleet report.json", "fleet report.json --out page", "render report.json", "render report.json --format html",
    "render report.json --format junit", "checks", "schema", "--help", "check --help", "--version",
])  # fmt: skip
def test_what_needs_no_linux_says_the_same_as_on_linux(command: Command, line: str) -> None:
    (command.cwd / "report.json").write_text(render_json(report_of()))
    ran, here = on_macos(command, *line.split()), command.run(*line.split(), env={"PREFLIGHT_VERBOSE": ""})
    assert (ran.returncode, ran.stderr) == (here.code, here.stderr)
    assert ran.stdout
    # On Linux, doctor has more parts, and timeout looks for GPUs that the job fits into.
    if not line.startswith(("doctor", "timeout --params 7B --strategy")):
        assert ran.stdout == here.stdout


@pytest.mark.parametrize("line", [
    "check", "check --accept", "bench", "gpu-report", "probe", "capture", "stuck", "stuck 1", "run -- true",
    "timeout --checkpoint-dir .", "timeout --gpus 0",
])  # fmt: skip
def test_what_needs_linux_says_so_in_one_line(command: Command, line: str) -> None:
    ran = on_macos(command, *line.split())
    (said,) = ran.stderr.splitlines()
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "needs Linux; explain, timeout, fleet and render work on darwin, too" in said
    assert list(command.cwd.iterdir()) == []


def test_evidence_of_stuck_is_judged_there_too(command: Command, tmp_path: Path) -> None:
    ran = on_macos(command, "stuck", "--merge", str(tmp_path), "--json", "-")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "no node wrote its evidence there" in ran.stderr
    assert json.loads(on_macos(command, "schema", "stuck").stdout)
