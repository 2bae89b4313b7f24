"""A repair is worded in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.model.repairs import MEMLOCK, RDMA, shm_room

PREFLIGHT = Path(__file__).resolve().parents[2] / "preflight"


@pytest.mark.parametrize(
    "command",
    [
        "--shm-size=",
        "remount,size=",
        "with `iommu=pt`",
        "ECAP_ACS",
        "systemctl status nvidia-fabricmanager",
        "LimitMEMLOCK",
        "--device /dev/infiniband --ulimit",
    ],
)
def test_no_other_file_words_a_repair(command: str) -> None:
    found = [str(path.relative_to(PREFLIGHT)) for path in PREFLIGHT.rglob("*.py") if command in path.read_text()]
    assert found == ["model/repairs.py"]


def test_in_a_container_it_says_what_the_start_needs_there() -> None:
    for repair in (shm_room(2), MEMLOCK, RDMA):
        assert "(docker, podman)" in repair.where(contained=True)
        assert "(Kubernetes)" in repair.where(contained=True)
        assert repair.where(contained=False) == repair.machine
    assert "--shm-size=2g" in shm_room(2).container
    assert "sizeLimit: 2Gi" in shm_room(2).container
