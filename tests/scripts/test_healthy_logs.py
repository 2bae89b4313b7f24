"""Logs of runs that went well are drawn evenly, and their success is hidden."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.healthy_logs import draw, hidden, main

STOP = b'0: :::MLLOG {"key": "run_stop", "metadata": {"status": "success"}}\n'
WORK = b"0: iteration 10/500 loss 7.31\n"
LIMIT = b"slurmstepd: error: *** STEP 7.0 ON gpu-1 CANCELLED AT 2026-04-24T11:46:38 DUE TO TIME LIMIT ***\n"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two submitters' results, as a folder: one run went well, the other hit a time limit while it worked."""
    for name, text in (("acme", WORK + STOP + LIMIT), ("tinker", WORK + LIMIT)):
        path = tmp_path / "r" / name / "results" / "box" / "bert" / "result_0.txt"
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
    (tmp_path / "r" / "acme" / "README.md").write_text("no log")
    return tmp_path / "r"


def test_every_group_has_its_first_log_before_any_has_its_second_and_a_seed_draws_the_same() -> None:
    names = [f"acme/results/b/bert/result_{n}.txt" for n in range(90)] + ["tinker/results/b/gpt/result_0.txt"]
    assert {name.split("/")[0] for name in draw(names, 2, seed=1)} == {"acme", "tinker"}
    assert draw(names, 20, seed=3) == draw(list(reversed(names)), 20, seed=3) != draw(names, 20, seed=4)


def test_a_success_is_hidden_and_with_cut_what_follows_it_too() -> None:
    log = WORK + STOP + WORK + STOP + LIMIT
    assert hidden(log, "cut") == WORK + WORK
    assert hidden(log, "lines") == WORK + WORK + LIMIT
    assert hidden(WORK + b"Training completed\n" + WORK, "cut") == WORK
    assert hidden(WORK, "cut") == WORK


@pytest.mark.parametrize("is_bare", [False, True], ids=["folder", "bare"])
def test_an_alarm_is_shown_with_its_line_and_counted(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_bare: bool
) -> None:
    place = results
    if is_bare:
        place = tmp_path / "bare"
        for command in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", "-C", str(results), *command], check=True)
        subprocess.run(["git", "clone", "-q", "--bare", str(results), str(place)], check=True)
    main(["--hide", "cut", str(place)])
    alarm, counted = capsys.readouterr().out.splitlines()
    assert alarm.startswith("  tinker/results/box/bert/result_0.txt: scheduler_time_limit (high): slurmstepd: error:")
    assert counted == f"{place}: 1 alarms in 2 of 2 logs: 1 cause_named, 1 unfinished"
