"""What the third review (gpu-machines.md) found with the real NCCL: each finding has a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simcuda.checking import QUICKLY, assert_cured_by, check, machine_of
from tests.simcuda.sandbox import Checked

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(900)]


BROKEN = {"wrong", "hang", "crash"}  # small GPUs run out of memory for the largest copies: inconclusive


def alarms(ran: Checked) -> list[dict[str, Any]]:
    """Return what is a warning or a failure."""
    return [finding for finding in ran.report["findings"] if finding["severity"] != "info"]


def test_a_broken_topology_file_is_named_in_what_fails(tmp_path: Path) -> None:
    broken = tmp_path / "broken.xml"
    broken.write_text('<system version="1"><cpu numaid="0"> \n')
    ran = check(tmp_path, machine_of("pcie2-pix"), *QUICKLY, env={"NCCL_TOPO_FILE": str(broken)})
    assert "NCCL_TOPO_FILE" in str(alarms(ran))


@pytest.mark.parametrize(
    ("name", "value"), [("NCCL_NET_PLUGIN", "missing"), ("NCCL_TUNER_PLUGIN", "/nowhere/libtuner.so")]
)
def test_a_plugin_that_was_asked_for_and_not_found_is_a_warning(tmp_path: Path, name: str, value: str) -> None:
    ran = check(tmp_path, machine_of("pcie2-pix"), *QUICKLY, env={name: value})
    assert name in str(alarms(ran))


def test_a_gpu_that_is_dead_lets_no_copy_between_two_others_fail(tmp_path: Path) -> None:
    """torch 2.10 makes a context on every visible GPU at the first copy between two."""
    ran = check(tmp_path, machine_of("pcie4-2numa", GPU_DIES="2"), *QUICKLY)
    assert "gpu-unusable" in {finding["check"] for finding in alarms(ran)}
    crashed = {(pair["a"], pair["b"]) for pair in ran.report["p2p"] if pair["end"] == "crash"}
    assert [pair for pair in sorted(crashed) if 2 not in pair] == []


def test_gpus_that_let_one_process_in_are_tested_pair_by_pair(tmp_path: Path) -> None:
    """In EXCLUSIVE_PROCESS mode a context on a third GPU would fail a copy between two others."""
    ran = check(tmp_path, machine_of("pcie4-2numa", EXCLUSIVE="1"), *QUICKLY)
    assert not {pair["end"] for pair in ran.report["p2p"]} & BROKEN, ran
    assert ran.report["verdict"] == "ready", ran


@pytest.mark.parametrize("fault", ["P2P_LOSES", "P2P_CHANGES"])
def test_a_fault_of_one_direction_has_its_one_setting_after_two_trials(tmp_path: Path, fault: str) -> None:
    ran = check(tmp_path, machine_of("pcie4-2numa", 1, **{fault: "2>3"}), *QUICKLY)
    broken = [(pair["a"], pair["b"], pair["problem"]) for pair in ran.report["p2p"] if pair["end"] in BROKEN]
    assert [(a, b) for a, b, _ in broken] == [(2, 3)], ran
    assert "a to b" in broken[0][2] and "b to a" not in broken[0][2]
    assert_cured_by(ran, {"NCCL_P2P_DISABLE": "1"})
    tried = [trial["candidate"] for trial in ran.report["trials"] if trial["outcome"] != "skipped"]
    assert tried[:2] == ["default", "only NCCL_P2P_DISABLE"] and len(tried) <= 4, tried


def test_copies_that_hang_accuse_their_own_pairs_only(tmp_path: Path) -> None:
    ran = check(tmp_path, machine_of("pcie4-2numa", COPY_HANGS="0-1"), *QUICKLY)
    assert {(pair["a"], pair["b"]) for pair in ran.report["p2p"] if pair["end"] == "hang"} == {(0, 1)}, ran
    (finding,) = [each for each in alarms(ran) if each["check"] == "p2p-data"]
    assert "NCCL_P2P" not in finding["fix"], "the trials pass, so no setting of NCCL's is at fault"


ONE_WAY_OF_EIGHT = {
    "loses": {"P2P_LOSES": "2>3"},
    "changes": {"P2P_CHANGES": "2>3"},
    "changes large copies": {"P2P_CHANGES": "2>3", "CHANGES_FROM": str(4 << 20), "CHANGES_SLICE": str(16 << 10)},
}


@pytest.mark.heavy(3)
@pytest.mark.parametrize("fault", ONE_WAY_OF_EIGHT)
def test_one_direction_among_eight_gpus_is_named_and_cured_by_one_setting(tmp_path: Path, fault: str) -> None:
    ran = check(tmp_path, machine_of("pcie8-2numa", 1, **ONE_WAY_OF_EIGHT[fault]), *QUICKLY)
    broken = [(pair["a"], pair["b"], pair["problem"]) for pair in ran.report["p2p"] if pair["end"] in BROKEN]
    assert [(a, b) for a, b, _ in broken] == [(2, 3)], ran
    assert "a to b" in broken[0][2] and "b to a" not in broken[0][2]
    assert_cured_by(ran, {"NCCL_P2P_DISABLE": "1"})
    tried = [trial["candidate"] for trial in ran.report["trials"] if trial["outcome"] != "skipped"]
    assert tried[:2] == ["default", "only NCCL_P2P_DISABLE"] and len(tried) <= 4, tried


@pytest.mark.heavy(3)
def test_two_of_28_pairs_whose_copies_hang_are_named_and_no_other(tmp_path: Path) -> None:
    ran = check(tmp_path, machine_of("pcie8-2numa", COPY_HANGS="0-1,5-6"), *QUICKLY)
    hung = {(pair["a"], pair["b"]) for pair in ran.report["p2p"] if pair["end"] in BROKEN}
    assert hung == {(0, 1), (5, 6)}, ran
    (finding,) = [each for each in alarms(ran) if each["check"] == "p2p-data"]
    assert "NCCL_P2P" not in finding["fix"], "the trials pass, so no setting of NCCL's is at fault"
