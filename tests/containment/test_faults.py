"""Every fault that a rank can have ends in time, with a verdict that names rank and stage, and leaves nothing."""

from __future__ import annotations

import pytest

from tests.command import Command

pytestmark = [pytest.mark.timing, pytest.mark.heavy(3)]

LIMIT_S = 2.0

# Rules, outcome, the ranks that it is traced to, and the stage at which they were.
FAULTS = [
    ("hang:rank=1", "hang", [1], "init"),
    ("hang", "hang", [], "init"),
    ("hang:rank=2,stage=first", "hang", [2], "first"),
    ("hang:stage=first", "hang", [], "first"),
    ("hang:rank=3,stage=timed", "hang", [3], "timed"),
    ("hang:stage=timed", "hang", [], "timed"),
    ("crash:rank=0,stage=init", "crash", [0], "init"),
    ("crash:rank=1,stage=timed", "crash", [1], "timed"),
    ("stop:rank=3,stage=timed", "hang", [3], "timed"),
    ("stop:rank=0,stage=first", "hang", [0], "first"),
    ("corrupt:rank=2", "wrong_data", [2], "(step "),
    ("corrupt:rank=1,stage=first", "wrong_data", [1], "first"),
]


# A run of four ranks takes some eight seconds, most of it importing torch: `make test` has one fault of each kind.
OFTEN = {"hang:rank=1", "crash:rank=1,stage=timed", "stop:rank=3,stage=timed", "corrupt:rank=2"}
CASES = [
    pytest.param(*fault, id=fault[0], marks=[] if fault[0] in OFTEN else [pytest.mark.integration]) for fault in FAULTS
]


@pytest.mark.parametrize(("rules", "outcome", "culprits", "stage"), CASES)
def test_a_fault_ends_in_time_and_names_rank_and_stage(
    command: Command, rules: str, outcome: str, culprits: list[int], stage: str
) -> None:
    ran = command.simulate(rules, limit_s=LIMIT_S)
    trial = ran.report["trials"][0]
    assert ran.code == 1, ran.stdout + ran.stderr
    assert trial["outcome"] == outcome, trial["problem"]
    assert trial["culprits"] == culprits, trial["problem"]
    assert stage in trial["problem"]
    for rank in culprits:
        assert str(rank) in trial["problem"]
    if outcome == "hang":
        assert trial["duration_s"] < LIMIT_S + 2
    if outcome == "crash":
        assert trial["duration_s"] < 2.0  # the others are told at once, they don't wait for the limit
    assert trial["problem"].split(";")[0] in " ".join(ran.stdout.split())
    assert command.processes() == {}
    assert command.shm_files() == set()
    assert len(command.run_dirs) == 1, "a failed run keeps its logs"
    assert str(command.run_dirs[0]) in ran.stderr


def test_a_rank_that_fails_ends_the_trial_for_all_in_under_a_second(command: Command) -> None:
    ran = command.simulate("crash:rank=1,stage=first", limit_s=20)
    trial = ran.report["trials"][0]
    assert trial["outcome"] == "crash"
    assert trial["duration_s"] < 1.0 + 0.5  # the trial's own start is in it


def test_a_slow_rank_is_told_from_those_that_wait_for_it(command: Command) -> None:
    ran = command.simulate("slow:rank=1,factor=5", limit_s=20)
    found = [finding for finding in ran.report["findings"] if finding["check"] == "straggler"]
    assert ran.code == 1, ran.stdout
    assert [finding["severity"] for finding in found] == ["fail"]
    assert "rank 1" in found[0]["subject"] + found[0]["problem"]


@pytest.mark.integration
def test_a_simulated_run_says_so_everywhere(command: Command) -> None:
    ran = command.simulate("", ranks=2, limit_s=20)
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.report["simulated"] is True
    assert "SIMULATED" in ran.stdout.splitlines()[0].upper()
    assert "SIMULATED" in (command.cwd / "preflight.env").read_text().splitlines()[0].upper()
    assert command.run_dirs == [], "a run that succeeds removes its directory"
