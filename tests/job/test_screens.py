"""What `preflight run` prints: before the job starts or is refused, while it hangs, and after it failed."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
from pathlib import Path

import pytest

from preflight.job.folder import Folder
from preflight.job.movement import Look, Movement
from preflight.job.order import Order
from preflight.job.output import Streams
from preflight.job.stuck_look import Found, StuckLook
from preflight.job.supervise import REFUSED, STARTED, STOPPED
from preflight.job.watcher import LEFT, STILL, Watcher
from preflight.judge.verdict import NOT_ASKED_FOR
from preflight.model.report import Report
from preflight.show.check_page import JobToStart, Written, check_page
from preflight.show.screen import ROWS
from preflight.show.stuck import stuck_page
from preflight.show.text import Detail, Style
from tests.conftest import PROJECT
from tests.job.test_same_as_without import argv_of
from tests.show.outputs import every_report, keep_screen
from tests.show.test_stuck_screen import REPORTS as HANGS

PATHS = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)}
SEED = PROJECT / "tests" / "explain" / "seeds" / "3b_xtuner_oom.log"
REPORTS = every_report()
REFUSING = dataclasses.replace(REPORTS["nothing_works"], node_verdict=NOT_ASKED_FOR)
NO_PROCESS = -1
JOB = JobToStart("torchrun", starts_if_unknown=True)


def said(text: str) -> str:
    return f"preflight: {text}\n"


@pytest.mark.parametrize(
    ("screen", "report", "job", "last"),
    [
        ("ready", REPORTS["healthy"], JOB, ""),
        ("ready_with_settings", REPORTS["one_interface_works"], JOB, ""),
        ("refused", REFUSING, JOB, said(REFUSED.format("torchrun", 78))),
        ("unknown", REPORTS["unknown"], JOB, said(STARTED.format("torchrun"))),
        ("unknown_stop", REPORTS["unknown"], JobToStart("torchrun"), said(STOPPED.format("torchrun"))),
    ],
)
def test_the_page_before_the_job_says_whether_it_starts(
    screen: str, report: Report, job: JobToStart, last: str
) -> None:
    written = Written("preflight.env" if report.exit_code == 0 else "", "preflight-report.json")
    page = check_page(report, written, job).shown(Detail.SCREEN, Style()) + last
    assert len(page.splitlines()) <= ROWS + 1
    keep_screen(f"run_{screen}", page)


def test_the_page_after_a_job_that_failed_is_the_expected_one(tmp_path: Path) -> None:
    argv = argv_of(["/bin/sh", "-c", f"cat {SEED}; exit 1"], True, Path("kept"))
    (tmp_path / "kept").mkdir()
    page = subprocess.run(
        argv, close_fds=False, capture_output=True, text=True, check=False, cwd=tmp_path, env=PATHS
    ).stderr
    assert len(page.splitlines()) <= ROWS + 2
    keep_screen("run_failed", page.replace(platform.node(), "HOST"))


def test_the_page_while_the_job_hangs_is_the_expected_one() -> None:
    page = (
        said(STILL.format(300, 4711))
        + stuck_page(HANGS["save"]).shown(Detail.SCREEN, Style())
        + said(LEFT.format("torchrun"))
    )
    assert len(page.splitlines()) <= ROWS + 2
    keep_screen("run_stuck", page)


PAGE = b"STUCK  rank 2 is writing a checkpoint,\n  for 6 s.\n\nNext     look at it\n"


def say_stuck(folder: Folder, node_rank: int, capfd: pytest.CaptureFixture[str]) -> str:
    order = Order(["sh"], [], "preflight.env", 78, True, 6.0, "", False, node_rank=node_rank)
    Watcher(order, Streams(Folder("")), {}, folder, set())._say_stuck("no progress", Found(1, PAGE))
    return capfd.readouterr().err


def test_the_first_node_prints_the_page_of_a_hang_and_another_one_keeps_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, kept = Folder(str(tmp_path)), tmp_path / "stuck.txt"
    assert PAGE.decode() in say_stuck(folder, 0, capfd) and not kept.exists()
    line = f"node 3: STUCK rank 2 is writing a checkpoint, for 6 s. ({kept})"
    assert say_stuck(folder, 3, capfd) == said("no progress") + said(line) + said("sh is left running")
    assert kept.read_bytes() == PAGE


@pytest.mark.parametrize(
    ("codes", "found", "left"),
    [([1, 0], 0, 0), ([1, 1], 1, 0), ([0, 1], 0, 1), ([3, 1], 3, 1)],
    ids=["a step between two", "stuck", "moves", "unclear"],
)
def test_a_job_is_stuck_if_two_looks_say_so(codes: list[int], found: int, left: int) -> None:
    looks = StuckLook(Folder(""), lambda _arguments, _page: codes.pop(0))
    assert looks.look_twice(1, 0.0, lambda _pause_s: False).code == found
    assert len(codes) == left
    codes[:] = [1]
    if found == 1:  # it was said: one more look is enough
        assert looks.look_twice(1, 0.0, lambda _pause_s: False).code == 1


def test_a_job_that_ends_between_two_looks_is_not_looked_at_again() -> None:
    codes = [1]
    assert (
        StuckLook(Folder(""), lambda _arguments, _page: codes.pop()).look_twice(1, 0.0, lambda _pause_s: True).code == 1
    )


def test_a_long_examination_is_no_time_in_which_the_job_was_stopped() -> None:
    now_s = 0.0
    movement = Movement(65.0, int, NO_PROCESS, clock=lambda: now_s)
    while now_s < 70:
        now_s += movement.look_s
        movement.look()
    before_s = movement.still_s
    now_s += 30.0  # two looks of `stuck`, and the pause between them
    movement.examined()
    now_s += movement.look_s
    assert movement.look() is Look.DUE
    assert movement.still_s >= before_s + 30.0


def test_a_page_that_cannot_be_kept_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "theirs").write_text("not ours")
    (tmp_path / "stuck.txt").symlink_to(tmp_path / "theirs")
    assert PAGE.decode() in say_stuck(Folder(str(tmp_path)), 1, capfd)
    assert (tmp_path / "theirs").read_text() == "not ours"
    assert PAGE.decode() in say_stuck(Folder(""), 1, capfd)
