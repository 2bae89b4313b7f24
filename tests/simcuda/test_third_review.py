"""What the third review (gpu-machines.md) found with the real NCCL: each finding has a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simcuda.checking import QUICKLY, check, machine_of
from tests.simcuda.sandbox import Checked

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(900)]


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
