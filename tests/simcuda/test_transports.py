"""The real NCCL chooses by its own rules on the machines that are described."""

from __future__ import annotations

import pytest

from tests.simcuda.machine import capture, named, nvml
from tests.simcuda.places import NCCL
from tests.simcuda.run import read, transports
from tests.simcuda.topology import topology

pytestmark = pytest.mark.simcuda


@pytest.mark.parametrize("version", NCCL)
@pytest.mark.usefixtures("simcuda")
def test_every_version_connects_two_gpus_below_a_switch_by_p2p(version: str) -> None:
    wiring = transports("pcie2-pix", version)
    assert wiring.started, wiring.log
    assert wiring.transports == {"P2P"}
    assert wiring.bootstrap == "eth0"
    assert wiring.refused == ()


@pytest.mark.parametrize("version", NCCL)
@pytest.mark.usefixtures("simcuda")
def test_without_p2p_it_is_shm_and_without_that_sockets(version: str) -> None:
    assert transports("pcie2-pix", version, {"NCCL_P2P_DISABLE": "1"}).transports == {"SHM"}
    sockets = transports("pcie2-pix", version, {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"})
    assert sockets.transports == {"NET"}
    assert sockets.interfaces == ("eth0",)


@pytest.mark.usefixtures("simcuda")
def test_amd_across_sockets_is_p2p_for_old_nccl_and_shm_for_new() -> None:
    crossing = {version: transports("pcie8-amd", version).transports for version in NCCL}
    assert "SHM" not in crossing["2.21.5"]
    assert "SHM" in crossing["2.27.5"] and "SHM" in crossing["2.32.3"]


@pytest.mark.usefixtures("simcuda")
def test_cards_whose_driver_denies_peers_use_shm() -> None:
    assert transports("rtx4090x2").transports == {"SHM"}
    assert transports("pcie2-pix", env={"SIMCUDA_P2P_DENIED": "0-1"}).transports == {"SHM"}


@pytest.mark.usefixtures("simcuda")
def test_h100s_behind_nvswitch_have_nvls_until_it_cannot_bind() -> None:
    assert transports("h100x8").nvls
    unbound = transports("h100x8", env={"SIMCUDA_NVLS": "cannot-bind"})
    assert unbound.started and not unbound.nvls
    assert "CUDA error 401" in unbound.log and "Proceeding without NVLS" in unbound.log


@pytest.mark.usefixtures("simcuda")
def test_two_nodes_meet_over_sockets() -> None:
    wiring = transports("pcie4-2numa", nodes=2)
    assert wiring.started
    between = {kind.split("/")[0] for (a, b), kind in wiring.links.items() if a // 2 != b // 2}
    inside = {kind.split("/")[0] for (a, b), kind in wiring.links.items() if a // 2 == b // 2}
    assert between == {"NET"} and inside == {"P2P"}


@pytest.mark.usefixtures("simcuda")
def test_an_interface_that_is_not_there_fails_the_start() -> None:
    wiring = transports("pcie2-pix", env={"NCCL_SOCKET_IFNAME": "=eth"})
    assert not wiring.started
    assert wiring.results == {"id": (wiring.results["id"][0],)} or any(wiring.results.get("init", (1,)))


@pytest.mark.usefixtures("simcuda")
def test_the_old_nccl_needs_shm_that_the_new_one_does_not() -> None:
    small = {"shm_bytes": 4 << 20, "env": {"NCCL_P2P_DISABLE": "1"}}
    old = transports("pcie2-pix", "2.21.5", **small)  # type: ignore[arg-type]
    assert any("shm" in warning.lower() for warning in old.warnings)
    assert transports("pcie2-pix", "2.27.5", **small).started  # type: ignore[arg-type]


def test_one_description_gives_nvml_and_the_topology_the_same_buses() -> None:
    machine = capture("a100x4")
    buses = [gpu.bus[4:].lower() for gpu in nvml(machine).gpus]
    tree = topology(machine.node)
    assert buses == [gpu["bdf"] for gpu in machine.gpus]
    assert all(f'busid="{bus}" class="0x030200"' in tree for bus in buses)
    assert tree.count("<nvlink") == 4 and 'count="12" tclass="0x030200"' in tree
    assert "AuthenticAMD" in tree


def test_a_group_of_gpus_below_one_switch_is_one_branch() -> None:
    tree = topology(named("pcie2-pix").node)
    assert tree.count('class="0x060400"') == 1 and tree.count('class="0x030200"') == 2


def test_what_ranks_say_is_read() -> None:
    said = "rank 0 init 0 no error\nrank 1 init 2 unhandled system error\nrank 0 data all_reduce 3 100\n"
    log = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\nh:1:2 [0] x.cc:1 NCCL WARN it is broken\n"
    wiring = read(said, log, False, 1.0, True)
    assert wiring.links == {(0, 1): "P2P/CUMEM"} and wiring.warnings == ("it is broken",)
    assert wiring.results == {"init": (0, 2)} and wiring.wrong == {"all_reduce": 3}
    assert not wiring.started and not wiring.right
