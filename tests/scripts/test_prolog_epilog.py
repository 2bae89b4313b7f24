"""The prolog only reads, within 10 s; the epilog tries; both drain for what they found twice, and for nothing else."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest

from preflight.model.finding import Blame
from preflight.render.drain_nagios_k8s import render_drain
from tests.conftest import PROJECT
from tests.nvmlsim.machines import BROKEN
from tests.nvmlsim.simulate import simulate
from tests.render.judged import BLAMED
from tests.scripts.conftest import ANSWERS, SCRIPTS, StandIn

LOST = "  FAIL  gpu-lost \u00b7 gpu1 GPU 1 (0000:11:00.0) [gpu]"
OTHER = "  FAIL  gpu-lost \u00b7 gpu1 GPU 2 (0000:12:00.0) [gpu]"
LIMIT = "  FAIL  memlock \u00b7 gpu1 [host]"
DRAINED = ["update", "NodeName=n7", "State=DRAIN", "Reason=preflight probe: gpu-lost __ gpu1 GPU 1 (0000:11:00.0)"]
FABRIC = render_drain(BLAMED[Blame.FABRIC]())


def run(stand_in: StandIn, script: str, **env: str) -> int:
    """Run a script as slurmd of node n7 would; return its exit code."""
    places = {"PREFLIGHT_PATH": str(stand_in.bin), "PREFLIGHT_DIR": str(stand_in.out), "SLURMD_NODENAME": "n7"}
    ran = stand_in.run(str(SCRIPTS / script), **{**places, "PREFLIGHT_WHOLE_NODE": "1", **env})
    assert ran.stderr == ""
    return ran.returncode


def calls(stand_in: StandIn) -> list[str]:
    log = stand_in.folder / "log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(("answers", "leaves", "told"), [
    ([(0, "")], 0, []),
    ([(1, LOST)], 1, DRAINED),
    ([(1, LOST), (0, "")], 0, []),
    ([(1, LOST), (1, OTHER)], 0, []),
    ([(1, LIMIT)], 0, []),
    ([(1, "Traceback (most recent call last):")], 0, []),
    *(([(code, "")], 0, ["update", "NodeName=n7", f"Comment=preflight could not look: exit code {code}"])
      for code in (2, 3, 127)),
])  # fmt: skip
def test_the_prolog_drains_for_a_gpu_s_fault_that_it_saw_twice_only(
    stand_in: StandIn, answers: list[tuple[int, str]], leaves: int, told: list[str]
) -> None:
    stand_in.says(*((code, "", page) for code, page in answers))
    assert run(stand_in, "slurm_prolog.sh") == leaves
    assert stand_in.told == told


@pytest.mark.parametrize(("allotted", "asked"), [("2,3", "probe -v --gpus 2,3 --"), ("", "probe -v --deadline")])
def test_the_prolog_reads_no_neighbours_gpus(stand_in: StandIn, allotted: str, asked: str) -> None:
    stand_in.answers(0)
    run(stand_in, "slurm_prolog.sh", SLURM_JOB_GPUS=allotted)
    assert [call.startswith(asked) for call in calls(stand_in)] == [True]


def test_the_prolog_of_a_job_without_gpus_reads_none(stand_in: StandIn) -> None:
    stand_in.answers(1)
    assert run(stand_in, "slurm_prolog.sh", PREFLIGHT_WHOLE_NODE="") == 0
    assert calls(stand_in) == []
    assert (stand_in.out / "prolog.txt").read_text() == "not applicable: the job has no GPUs\n"


def test_a_prolog_whose_probe_hangs_lets_the_job_start_within_10_s(stand_in: StandIn) -> None:
    (stand_in.bin / "preflight").write_text("#!/bin/sh\nexec sleep 60\n")
    start = time.monotonic()
    assert run(stand_in, "slurm_prolog.sh") == 0
    assert time.monotonic() - start < 10
    assert stand_in.told[-1] == "Comment=preflight could not look: exit code 124"


@pytest.mark.integration
@pytest.mark.parametrize(("gpus", "leaves"), [("0,1", 0), ("6,7", 1)])
def test_the_prolog_with_the_real_probe_of_a_machine_whose_gpu_6_is_lost(
    stand_in: StandIn, tmp_path: Path, gpus: str, leaves: int
) -> None:
    (tmp_path / "tree").mkdir()
    simulate(BROKEN["a GPU that fell off the bus"][1], tmp_path / "tree")
    real = [sys.executable, "-m", "preflight"]
    (stand_in.bin / "preflight").write_text(f'#!/bin/sh\nexec {shlex.join(real)} "$@" --sysroot {tmp_path}/tree\n')
    own = {"PYTHONPATH": str(PROJECT), "PREFLIGHT_LOOK_S": "40"}  # this machine may be busy
    assert run(stand_in, "slurm_prolog.sh", SLURM_JOB_GPUS=gpus, **own) == leaves
    reason = "Reason=preflight probe: gpu-lost __ unknown GPU 6 (0000:7b:00.0)"
    assert stand_in.told == (["update", "NodeName=n7", "State=DRAIN", reason] if leaves else [])


@pytest.mark.parametrize(("answers", "tries", "drains"), [
    ([(0, ANSWERS[0])], 1, False),
    ([(1, ANSWERS[1])], 2, True),
    ([(1, ANSWERS[1]), (0, ANSWERS[0])], 2, False),
    ([(1, ANSWERS[1]), (1, FABRIC)], 2, False),
    ([(1, ANSWERS[1]), (1, ANSWERS[1].replace("node reboot", "drain and reset"))], 2, True),
    ([(3, ANSWERS[3])], 1, False),
    ([(1, "")], 1, False),
    ([(127, "")], 0, False),
])  # fmt: skip
def test_the_epilog_drains_for_the_same_finding_twice_and_never_fails_itself(
    stand_in: StandIn, answers: list[tuple[int, str]], tries: int, drains: bool
) -> None:
    stand_in.says(*((code, text, "") for code, text in answers))
    assert run(stand_in, "slurm_epilog.sh", SLURM_JOB_EXIT_CODE="256") == 0
    assert len(calls(stand_in)) == tries
    assert all(" --history history.jsonl " in call for call in calls(stand_in))
    assert stand_in.told == (
        ["update", "NodeName=n7", "State=DRAIN", f"Reason={answers[-1][1].strip()}"] if drains else []
    )


def test_the_epilog_tries_after_a_job_that_failed_and_else_once_a_day(stand_in: StandIn) -> None:
    stand_in.answers(0)
    counts = []
    for code in ("0", "0", "256", "0"):
        run(stand_in, "slurm_epilog.sh", SLURM_JOB_EXIT_CODE=code)
        counts.append(len(calls(stand_in)))
    assert counts == [1, 1, 2, 2]
