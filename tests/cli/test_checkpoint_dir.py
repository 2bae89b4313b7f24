"""`check --checkpoint-dir` on one node: the directory is tried before the ranks start."""

from __future__ import annotations

import pytest

from tests.command import Command

pytestmark = pytest.mark.heavy(3)


def test_its_speed_is_in_the_report_and_nothing_is_left_there(command: Command) -> None:
    directory = command.cwd / "ckpt"
    directory.mkdir()
    ran = command.run("check", "--nproc", "2", "--checkpoint-dir", "ckpt")
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.report["storage"]["directory"] == str(directory)
    assert ran.report["storage"]["writers"] == 2
    assert list(directory.iterdir()) == []
    durations = ran.report["durations_s"]
    assert durations["storage"] > 0
    assert min(durations.values()) >= 0
    assert "checkpoint-dir" in [check["check"] for check in ran.report["checks"]]


def test_one_that_is_not_there_is_a_usage_error_before_anything_is_started(command: Command) -> None:
    ran = command.run("check", "--nproc", "2", "--checkpoint-dir", "nowhere")
    assert (ran.code, ran.stdout) == (2, "")
    assert "nowhere: not there" in ran.stderr
    assert not (command.cwd / "preflight-report.json").exists()


def test_one_that_cannot_be_written_is_a_warning(command: Command) -> None:
    ran = command.run("check", "--nproc", "2", "--checkpoint-dir", "/proc/self")
    assert ran.code == 0, ran.stdout
    (finding,) = (each for each in ran.report["findings"] if each["check"] == "checkpoint-dir")
    assert finding["severity"] == "warn"
