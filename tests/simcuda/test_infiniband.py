"""`preflight check` on nodes whose InfiniBand or RoCE has a fault, with the real NCCL: its page, and what cures it.

Each takes a minute on two cores, so CI draws some of them by the commit (PREFLIGHT_SAMPLE).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.simcuda.checking import FAILED, QUICKLY, check_nodes
from tests.simcuda.machine import named
from tests.simcuda.sandbox import Checked

pytestmark = [
    pytest.mark.simcuda,
    pytest.mark.usefixtures("simcuda_torch"),
    pytest.mark.timeout(900),
    pytest.mark.heavy(9),
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs iproute2"),
]
# Its own limit, and times of the CPUs that play the GPUs (speeds.toml).
OF_THIS_HOST = frozenset({"memlock", "pcie-copy-slow", "straggler"})
LOST = "its data were not acknowledged (status 12)"
QUICK = ("--profile", "quick", *QUICKLY)


@dataclass(frozen=True)
class Fault:
    """A fault of the fabric, the settings that cure it, and by which trial after the default."""

    machine: str
    settings: Mapping[str, str]
    cure: Mapping[str, str]
    trials: int = 1
    says: str = ""  # words of the page
    gpus: str = "0,1"
    env: Mapping[str, str] = field(default_factory=dict)


def check(
    folder: Path, machine: str, settings: Mapping[str, str], options: Sequence[str] = (), **more: Any
) -> list[Checked]:
    described = named(machine)
    described = replace(described, settings={**described.settings, "IB_HASTE": "64", **settings})
    return check_nodes(folder, described, *QUICK, *options, **more)


@pytest.mark.parametrize("machine", ["pcie4-ib", "pcie4-roce", "pcie4-gdr"])
def test_a_healthy_fabric_is_ready_and_nothing_is_set(machine: str, tmp_path: Path) -> None:
    ran = check(tmp_path, machine, {})
    for number, each in enumerate(ran):
        assert (each.code, each.report["verdict"]) == (0, "ready"), each
        assert not each.report["advice"]["env"] and not each.sourced(f"node{number}")
        assert {finding["check"] for finding in each.report["findings"]} <= OF_THIS_HOST | {"known-bug"}, each
    assert not any(trial["port_errors"] for trial in ran[0].report["trials"]), ran[0]
    path = "NET/IB/0/GDRDMA" if machine == "pcie4-gdr" else "NET/IB/0"
    assert {f"1>2 via {path}", "hca mlx5_0:1", "hca mlx5_1:1"} <= set(ran[0].trial("default")["transport"])


FAULTS = {
    "one-port-loses": Fault("pcie4-ib", {"IB_LOSES": "mlx5_0"}, {"NCCL_IB_HCA": "=mlx5_1:1"}, says=LOST),
    "all-lose": Fault(
        "pcie4-roce", {"IB_LOSES": "all"}, {"NCCL_IB_DISABLE": "1"}, 2, "not the RDMA ports (50 GB/s per node)"
    ),
    "rails": Fault("pcie4-ib", {"IB_NETWORK": "mlx5_1:2"}, {"NCCL_NET_DISABLE_INTRA": "1"}, gpus="0,2"),
    "out-of-reach": Fault(
        "pcie4-roce", {"IB_NETWORK": "mlx5_0@1:7"}, {"NCCL_IB_HCA": "=mlx5_1:1"}, says="did not answer (error 110)"
    ),
    "partition": Fault("pcie4-ib", {"IB_PKEY": "mlx5_0@1:0x8201"}, {"NCCL_IB_HCA": "=mlx5_1:1"}, says=LOST),
    "memlock": Fault("pcie4-ib", {"IB_MEMLOCK": "all:64"}, {"NCCL_IB_DISABLE": "1"}, says="memlock"),
    "gpu-direct": Fault("pcie4-gdr", {"IB_GDR_CHANGES": "all"}, {"NCCL_NET_GDR_LEVEL": "LOC"}, says="wrong elements"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_fabric_is_cured_by_one_setting(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    ran = check(tmp_path, fault.machine, fault.settings, gpus=fault.gpus)
    for number, each in enumerate(ran):
        assert (each.code, each.report["verdict"]) == (0, "ready_with_env"), each
        assert each.report["advice"]["env"] == fault.cure == each.sourced(f"node{number}"), each
        assert fault.says in " ".join(each.stdout.split()), each
    tried = [trial for trial in ran[0].report["trials"] if trial["outcome"] != "skipped"]
    assert tried[0]["candidate"] == "default" and tried[0]["outcome"] in FAILED
    assert fault.cure in [trial["env"] for trial in tried[: fault.trials + 1] if trial["outcome"] == "ok"], ran[0]
    assert no_node_is_blamed(ran[0])
    if fault.says == LOST:
        assert "On real adapters, NCCL gives a lost packet up after 34 to 137 s." in " ".join(ran[0].stdout.split())


def test_of_four_nodes_the_bad_port_is_named(tmp_path: Path) -> None:
    patient = ("--stage-limit", "40")  # eight ranks on two cores
    ran = check(tmp_path, "pcie4-ib", {"IB_LOSES": "mlx5_0@2", "IB_HASTE": "16"}, patient, count=4)
    for number, each in enumerate(ran):
        assert each.code == 0 and each.sourced(f"node{number}") == {"NCCL_IB_HCA": "=mlx5_1:1"}, each
    assert "node2 mlx5_0 is likely at fault" in " ".join(ran[0].stdout.split())
    assert no_node_is_blamed(ran[0])


@pytest.mark.parametrize("mb_s", [40, 100])
def test_a_slow_port_is_named_by_the_speed_of_its_siblings(mb_s: int, tmp_path: Path) -> None:
    """The others carry 400 MB/s, less than a busy host lets them: its noise shall not be theirs."""
    described = named("pcie4-ib")
    slow = replace(described, settings={**described.settings, "IB_MB_S": f"mlx5_0@1:{mb_s},all:400"})
    ran = check_nodes(tmp_path, slow, "--profile", "standard", *QUICKLY)
    found = [each for each in ran[1].report["findings"] if each["check"] == "rail"]
    assert [(each["subject"], each["severity"]) for each in found] == [("node1 mlx5_0:1", "fail")], ran[1]
    for each in ran:
        assert (each.code, each.report["verdict"]) == (1, "not_ready"), each
        assert "node1 mlx5_0:1" in each.stdout and not each.report["advice"]["env"], each
        assert "node0 mlx5" not in " ".join(finding["subject"] for finding in each.report["findings"]), each


def test_a_gid_index_that_is_inherited_and_empty_is_unset(tmp_path: Path) -> None:
    ran = check(tmp_path, "pcie4-roce", {}, env=[{"NCCL_IB_GID_INDEX": "7"}] * 2)
    assert {each.code for each in ran} == {0}, ran[0]
    assert ran[0].report["advice"]["unset"] == ["NCCL_IB_GID_INDEX"] and not ran[0].report["advice"]["env"]
    assert ran[0].trial("as-is")["outcome"] in FAILED and ran[0].trial("default")["outcome"] == "ok"
    assert "NCCL_IB_GID_INDEX" in ran[0].stdout


@pytest.mark.parametrize("back", ["", "/15000"], ids=["dies", "flaps"])
def test_a_port_that_fails_in_the_middle_is_intermittent_and_nothing_is_recommended(back: str, tmp_path: Path) -> None:
    ran = check(tmp_path, "pcie4-ib", {"IB_DIES": f"mlx5_0@1:100{back}"})
    assert {each.code for each in ran} == {1}, ran[0]
    assert not ran[0].report["advice"]["env"] and "the fault comes and goes" in " ".join(ran[0].stdout.split())
    assert "port error" in ran[0].stdout
    went_down = [each for each in ran[0].trial("default")["port_errors"] if "link_downed" in str(each["counters"])]
    assert [(each["rank"], each["port"]) for each in went_down] == [(2, "mlx5_0:1")], ran[0]
    page = " ".join(ran[0].stdout.split())
    assert "RDMA port node1 mlx5_0:1: link_downed +1" in page, ran[0]
    # A port that is back in time answers: then no path was given up, and none is named.
    assert back or "node1 mlx5_0 is likely at fault, because its own link counted" in page, ran[0]


def test_a_peer_that_is_killed_blames_no_hardware(tmp_path: Path) -> None:
    ran = check(tmp_path, "pcie4-ib", {"IB_KILLS": "mlx5_0@1:200"})
    assert {each.code for each in ran} == {3}, ran[0]
    assert no_node_is_blamed(ran[0]) and not ran[0].report["advice"]["env"]
    assert "SIGKILL came from outside" in " ".join(ran[0].stdout.split())


def no_node_is_blamed(ran: Checked) -> bool:
    """Return whether every finding of this run's own trials leaves the hardware alone: two nodes can't tell which."""
    against = [each for each in ran.report["findings"] if each["class"] in ("host", "gpu", "fabric")]
    return {each["check"] for each in against} <= OF_THIS_HOST
