from __future__ import annotations

from pathlib import Path

import pytest

from preflight.check.survey import survey_capture
from preflight.model.profile import Profile
from preflight.search.settings.rdma import rail_candidates, rails_to_try

MACHINES = Path(__file__).parents[2] / "machines"


def ports(machine: str, profile: Profile = Profile.STANDARD, dialect: str = "nccl") -> list[str]:
    node = survey_capture((MACHINES / f"{machine}.json").read_text()).node
    return [f"{port.hca}:{port.port}" for port in rails_to_try(node, profile, dialect)]


def test_each_port_of_a_node_with_several_is_tried() -> None:
    assert ports("h100x8") == [*(f"mlx5_{i}:1" for i in range(8)), "mlx5_bond_0:1"]


@pytest.mark.parametrize("machine", ["l20x10", "rtx4090x2"])
def test_one_port_or_none_has_no_siblings_to_be_told_from(machine: str) -> None:
    assert ports(machine) == []


def test_quick_and_gloo_try_none() -> None:
    assert ports("h100x8", Profile.QUICK) == ports("h100x8", dialect="gloo") == []


def test_the_settings_leave_nccl_one_port_and_no_other_way() -> None:
    node = survey_capture((MACHINES / "h100x8.json").read_text()).node
    first = next(rail_candidates(rails_to_try(node, Profile.STANDARD, "nccl")))
    assert first.name == "rail mlx5_0:1"
    assert dict(first.env) == {
        "NCCL_IB_HCA": "=mlx5_0:1", "NCCL_NET": "IB", "NCCL_NVLS_ENABLE": "0", "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
    }  # fmt: skip
