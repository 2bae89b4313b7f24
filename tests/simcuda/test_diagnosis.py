"""NCCL's own diagnosis, by the real NCCL 2.32.3 on the simulated driver: what it sees, and how `check` takes it.

No collective of this version is computed here, so every trial fails; the diagnosis and preflight's own copies don't.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from preflight.model.nccl_diagnostics import lines_of
from tests.simcuda.checking import QUICKLY, check, machine_of
from tests.simcuda.run import transports
from tests.simcuda.sandbox import Checked

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(600)]

VERSION, MACHINE = "2.32.3", "pcie4-2numa"
ASKED = {"NCCL_RUN_DIAGNOSTICS": "1"}
LIMIT_S = 8


def of_pairs(*settings: tuple[str, str]) -> list[str]:
    """Return what NCCL says of pairs of the three GPUs of a machine with NVLink."""
    log = transports("h100x8", VERSION, ASKED | dict(settings), gpus=(0, 1, 2)).log
    return [line for line in lines_of(log) if line.startswith("p2p: ")]


def checked(folder: Path, **settings: str) -> Checked:
    machine = machine_of(MACHINE, 1, NCCL=VERSION, KERNELS="ignored", **settings)
    ran = check(folder, machine, *QUICKLY, "--gpus", "0,1,2,3")
    assert {trial["nccl"] for trial in ran.report["trials"] if trial["nccl"]} == {VERSION}, ran
    return ran


def findings(ran: Checked) -> list[dict[str, Any]]:
    return [each for each in ran.report["findings"] if each["check"] == "nccl-diagnosis"]


def test_between_sound_gpus_nccl_verifies_every_pair_both_ways() -> None:
    assert of_pairs() == ["p2p: verified P2P access in both directions between every GPU pair (6 peer accesses)"]


@pytest.mark.parametrize(
    ("fault", "pairs"),
    [
        (("SIMCUDA_P2P_LOSES", "0-1"), {("0", "1"), ("1", "0")}),
        (("SIMCUDA_P2P_LOSES", "0>2"), {("0", "2")}),
        (("SIMCUDA_P2P_CHANGES", "1-2"), {("1", "2"), ("2", "1")}),
    ],
)
def test_nccl_names_the_broken_pair_and_its_direction(fault: tuple[str, str], pairs: set[tuple[str, str]]) -> None:
    _, *failed = of_pairs(fault)
    assert {(line.split("srcRank=")[1][0], line.split("dstRank=")[1][0]) for line in failed} == pairs


def test_a_broken_pair_has_two_witnesses_on_the_page(tmp_path: Path) -> None:
    ran = checked(tmp_path, P2P_LOSES="0-1")
    (diagnosis,) = ran.report["nccl_diagnosis"]
    assert diagnosis["problem"] == "" and "only 2/4 GPU-to-GPU peer accesses" in str(diagnosis["lines"]), diagnosis
    (finding,) = findings(ran)
    assert "GPU pair 0-1" in finding["subject"] and "preflight's own test agrees" in finding["problem"], finding
    assert "srcRank=0" in str(finding["evidence"]) and "NCCL's own diagnosis found" in ran.stdout
    assert not any("nccl-diagnosis" in trial["candidate"] for trial in ran.report["trials"])


def test_where_the_two_disagree_the_page_says_who_saw_what(tmp_path: Path) -> None:
    """The copy engine hangs, which NCCL's own kernels don't use."""
    (finding,) = findings(ran := checked(tmp_path, COPY_HANGS="0-1"))
    assert "GPU pair 0-1" in finding["subject"] and "found no fault" in finding["problem"], ran
    assert finding["severity"] == "warn" and "every GPU pair (4 peer accesses)" in str(finding["evidence"])


def test_a_diagnosis_that_hangs_costs_its_own_limit_only(tmp_path: Path) -> None:
    limit = ("--stage-limit", str(LIMIT_S))
    machine = machine_of(MACHINE, NCCL=VERSION, KERNELS="ignored", DIAGNOSIS_HANGS="2")
    ran = check(tmp_path, machine, *QUICKLY, *limit)
    (diagnosis,) = ran.report["nccl_diagnosis"]
    assert "hung" in diagnosis["problem"] and LIMIT_S <= diagnosis["duration_s"] < 2 * LIMIT_S, diagnosis
    assert findings(ran) == [] and ran.report["verdict"] != "unknown", ran
    (skipped,) = [each for each in ran.report["skipped_checks"] if each["check"] == "nccl-diagnosis"]
    assert "did not run to its end" in skipped["reason"]
