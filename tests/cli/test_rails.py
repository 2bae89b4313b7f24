"""The RDMA ports of a node one at a time, on a simulated machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command

MACHINE = Path(__file__).parent.parent / "machines" / "h100x8.json"
FAULTS = "slow:via=NET/IB,hca=mlx5_3,factor=4;error:via=NET/IB,hca=mlx5_5"


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_ports_that_no_default_uses_are_tried_and_the_bad_ones_named(command: Command) -> None:
    ran = command.run(
        "check", "--machine", str(MACHINE), "--gpus", "0,1", "--backend", "simnccl@simnccl", "--profile", "standard",
        "--stage-limit", "40", env={"SIMNCCL": FAULTS}, timeout_s=220,
    )  # fmt: skip
    assert ran.code == 1, ran.stdout
    assert [rail["hca"] for rail in ran.report["rails"] if rail["repetition"]] == ["mlx5_3", "mlx5_5"]
    assert len(ran.report["rails"]) == 9 + 2
    assert {rail["outcome"] for rail in ran.report["rails"] if rail["hca"] != "mlx5_5"} == {"ok"}
    found = [finding for finding in ran.report["findings"] if finding["check"] == "rail"]
    assert {finding["subject"].split()[-1] for finding in found} == {"mlx5_3:1", "mlx5_5:1"}
    assert {finding["severity"] for finding in found} == {"fail"}
    assert ran.report["trials"][0]["outcome"] == "ok", "NVLink carries the default's data"
    assert all("rail" not in trial["candidate"] for trial in ran.report["trials"])
    assert "RDMA ports, one at a time" in ran.stdout
