"""Faults that come and go on played machines, in standard: no such machine is ready, and no setting is its cure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import Command

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


@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("machine", "fault", "at"), RUNS if os.environ.get("PREFLIGHT_FLAPPING") == "all" else IN_CI)
def test_where_a_failure_was_met_nothing_is_ready_and_no_setting_is_a_cure(
    command: Command, machine: str, fault: str, at: str
) -> None:
    env = {"SIMNCCL": fault, "FLAP_AT": at, "FLAP_SEED": "7", "FLAP_COUNT": str(command.tmp_path / "count")}
    ran = command.run(
        "check", "--machine", str(MACHINES / f"{machine}.json"), "--gpus", GPUS[machine], "--profile", "standard",
        "--backend", "simnccl@flapping", "--stage-limit", "6", env=env, timeout_s=560,
    )  # fmt: skip
    report = ran.report
    tries = [each["outcome"] for each in (*report["trials"], *report["control"]["reruns"])]
    assert FAILED & set(tries), "the fault was met"
    assert (ran.code, report["verdict"]) == (1, "not_ready"), report["headline"]
    assert report["advice"]["env"] == {}
    assert not (command.cwd / "preflight.env").exists()
    assert "intermittent" in {each["check"] for each in report["findings"]}
