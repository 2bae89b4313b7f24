"""Faults that come and go on played machines, in standard: no such machine is ready, and no setting is its cure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.model.codec import decode
from preflight.model.trial import Control
from preflight.search.settings.control import PROVED_ODDS, odds_of
from tests.command import Command, Ran

MACHINES = Path(__file__).parent.parent / "machines"
GPUS = {"rtx4090x2": "0,1", "l20x10": "0,1"}
# What happens, and in which trials (simnccl/flapping.py): every second or third, the first only, or by chance.
FAULTS = (
    ("hang:rank=1,stage=first", "%2"),
    ("crash:rank=1,stage=timed", "%2"),
    ("corrupt:rank=1", "%3"),
    ("error:rank=0,stage=init", "0"),
    ("hang:rank=0,stage=first", "40p"),
    ("corrupt:rank=0", "50p"),
)
RUNS = [(machine, *fault) for machine in GPUS for fault in FAULTS]
IN_CI = RUNS[1::6]  # one for each machine; PREFLIGHT_FLAPPING=all runs all twelve, in ten minutes
FAILED = {"hang", "crash", "init_error", "wrong_data"}


def check(command: Command, machine: str, fault: str, at: str) -> Ran:
    for path in command.tmp_path.glob("count.*"):
        path.unlink()
    env = {"SIMNCCL": fault, "FLAP_AT": at, "FLAP_SEED": "7", "FLAP_COUNT": str(command.tmp_path / "count")}
    return command.run(
        "check", "--machine", str(MACHINES / f"{machine}.json"), "--gpus", GPUS[machine], "--profile", "standard",
        "--backend", "simnccl@flapping", "--stage-limit", "6", env=env, timeout_s=560,
    )  # fmt: skip


@pytest.mark.integration
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("machine", "fault", "at"), RUNS if os.environ.get("PREFLIGHT_FLAPPING") == "all" else IN_CI)
def test_where_a_failure_was_met_nothing_is_ready_and_no_setting_is_a_cure(
    command: Command, machine: str, fault: str, at: str
) -> None:
    """A control's order is drawn: chance makes a fault at every second trial look cured in at most 1 of 70 runs."""
    ran = check(command, machine, fault, at)
    if ran.report["verdict"] == "ready_with_env":
        assert odds_of(decode(Control, ran.report["control"])) >= PROVED_ODDS.value
        (command.cwd / "preflight.env").unlink()
        ran = check(command, machine, fault, at)
    report = ran.report
    tries = [each["outcome"] for each in (*report["trials"], *report["control"]["reruns"])]
    assert FAILED & set(tries), "the fault was met"
    assert (ran.code, report["verdict"]) == (1, "not_ready"), report["headline"]
    assert report["advice"]["env"] == {}
    assert not (command.cwd / "preflight.env").exists()
    assert "intermittent" in {each["check"] for each in report["findings"]}
