"""What the simulated NCCL chooses on kept machines, variable by variable (facts 1.0 to 2.4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simcuda.machine import named
from tests.simnccl.machines import facts, node
from tests.simnccl.simmachine import interfaces, matches, wire
from tests.simnccl.simpaths import Failure, Version, integer

V = (2, 27, 5)
Machine = tuple[Any, ...]  # a kept capture, and the GPUs of the ranks
L20: Machine = ("l20x10_ens34", 3, 4, 5, 6)  # two below each of two switches


def links(machine: Machine, version: tuple[int, ...] = V, **env: str) -> list[str]:
    return [str(link) for link in wire(facts(*machine), env, version).links.values()]


def names(version: tuple[int, ...] = V, **env: str) -> list[str]:
    return [each.name for each in interfaces(node("l20x10_ens34"), env, version)]


def test_since_2_23_p2p_stops_at_a_host_bridge_and_shared_memory_joins_the_rest() -> None:
    assert links(L20) == ["P2P/PCI", "SHM/CUMEM", "P2P/PCI", "SHM/CUMEM"]
    assert links(("l20x4_docker", 0, 1, 2, 3)) == ["SHM/FILE"] * 4, "each on a root port, whatever NVML's word"


def test_before_2_23_an_amd_box_used_p2p_everywhere() -> None:
    assert links(L20, (2, 21, 5)) == ["P2P/PCI"] * 4


def test_two_gpus_of_an_amd_box_use_p2p_at_any_distance_and_four_do_not() -> None:
    assert links(("l20x10_ens34", 0, 9)) == ["P2P/PCI", "P2P/PCI"]
    assert links(("l20x10_ens34", 0, 4, 5, 9))[1] != "P2P/PCI"


@pytest.mark.parametrize("value", ["true", "2", "yes", "", "0"])
def test_only_the_number_1_switches_p2p_off(value: str) -> None:
    assert "P2P/PCI" in links(L20, NCCL_P2P_DISABLE=value)
    assert "P2P/PCI" not in links(L20, NCCL_P2P_DISABLE="1")


def test_a_level_includes_what_is_nearer_and_an_unknown_one_is_ignored() -> None:
    assert links(L20, NCCL_P2P_LEVEL="SYS") == ["P2P/PCI"] * 4
    assert links(L20, NCCL_P2P_LEVEL="PHB") == links(L20, NCCL_P2P_LEVEL="PIX") == links(L20)
    assert links(L20, NCCL_P2P_LEVEL="NVL") == ["SHM/CUMEM"] * 4
    assert links(("l20x4_docker", 0, 1), NCCL_P2P_LEVEL="PHB") == ["P2P/PCI"] * 2
    assert links(L20, NCCL_P2P_LEVEL="phb") == links(L20)
    assert links(L20, NCCL_P2P_LEVEL="SYS", NCCL_P2P_DISABLE="1") == ["SHM/CUMEM"] * 4


def test_nvlink_survives_the_level_nvl_and_not_p2p_disable() -> None:
    bridged = ("a100x4", 0, 1, 2, 3)
    assert links(bridged, (2, 21, 5)) == ["P2P/NVL", "P2P/PCI", "P2P/NVL", "P2P/PCI"]
    assert links(bridged, (2, 21, 5), NCCL_P2P_LEVEL="NVL") == ["P2P/NVL", "SHM/FILE", "P2P/NVL", "SHM/FILE"]
    assert links(bridged, (2, 21, 5), NCCL_P2P_DISABLE="1") == ["SHM/FILE"] * 4


def test_a_pair_that_the_driver_denies_goes_over_shared_memory() -> None:
    wiring = wire(facts("rtx4090x2", 0, 1), {}, V)
    assert {str(link) for link in wiring.links.values()} == {"SHM/CUMEM"}
    assert wiring.denied == ((0, 1),)
    assert links(("rtx4090x2", 0, 1), NCCL_IGNORE_DISABLED_P2P="2") == ["P2P/PCI"] * 2


def test_without_shared_memory_the_network_carries_it() -> None:
    assert links(L20, NCCL_SHM_DISABLE="1") == ["P2P/PCI", "NET/IB", "P2P/PCI", "NET/IB"]
    off = {"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}
    assert links(L20, V, **off, NCCL_IB_DISABLE="1") == ["NET/Socket"] * 4
    assert links(L20, V, **off, NCCL_NET="socket") == ["NET/Socket"] * 4


def test_shared_memory_is_files_where_the_driver_or_a_variable_says_so() -> None:
    assert "SHM/FILE" in links(("l20x4_docker", 0, 1, 2, 3))
    assert "SHM/FILE" in links(L20, NCCL_CUMEM_HOST_ENABLE="0")
    assert "SHM/FILE" in links(L20, NCCL_CUMEM_ENABLE="0")


def test_the_interface_is_chosen_in_nccls_order() -> None:
    assert names() == ["eno1", "ens34", "br-4f1c09d2a7e3", "ens1f0np0"]
    assert names(NCCL_SOCKET_IFNAME="=ens34") == ["ens34"]
    assert names(NCCL_SOCKET_IFNAME="ens") == ["ens34", "ens1f0np0"]
    assert names(NCCL_SOCKET_IFNAME="^eno,br") == ["lo", "ens34", "docker0", "ens1f0np0"]
    assert names(NCCL_SOCKET_IFNAME="^=eno1,lo") == ["ens34", "docker0", "br-4f1c09d2a7e3", "ens1f0np0"]
    assert names(NCCL_SOCKET_IFNAME="e") == names(), "one character is ignored"
    assert names(NCCL_SOCKET_FAMILY="AF_INET6") == []


def test_an_interface_that_is_asked_for_is_found_or_init_fails() -> None:
    with pytest.raises(Failure, match="no socket interface found") as failed:
        wire(facts(*L20), {"NCCL_SOCKET_IFNAME": "=ens35"}, (2, 21, 5))
    assert failed.value.result == 3
    with pytest.raises(Failure) as failed:
        wire(facts(*L20), {"NCCL_SOCKET_IFNAME": "=ens35"}, V)
    assert failed.value.result == 5


def test_the_infiniband_network_comes_first_and_can_be_switched_off_or_narrowed() -> None:
    def network(**env: str) -> str:
        return wire(facts(*L20), env, V).network

    assert network() == "IB"
    assert network(NCCL_IB_DISABLE="1") == network(NCCL_NET="Socket") == network(NCCL_IB_HCA="=mlx5_1") == "Socket"
    assert network(NCCL_IB_DISABLE="true") == "IB", "a word is the number 0"
    assert network(NCCL_IB_HCA="mlx5") == network(NCCL_IB_HCA="=mlx5_0:1") == "IB"
    with pytest.raises(Failure, match="NET plugin"):
        wire(facts("rtx4090x2", 0, 1), {"NCCL_NET": "IB"}, V)


ROCE = (
    {"gid_index": 0, "gid": "fe80::1", "type": "IB/RoCE v1", "netif": "eth1"},
    {"gid_index": 1, "gid": "fe80::1", "type": "RoCE v2", "netif": "eth1"},
)


@pytest.mark.parametrize(
    ("env", "refusal"),
    [
        ({"NCCL_IB_GID_INDEX": "1"}, ""),
        ({"NCCL_IB_GID_INDEX": "7"}, "61 No data available"),
        ({"NCCL_IB_PKEY": "0"}, ""),
        ({"NCCL_IB_PKEY": "3"}, "22 Invalid argument"),
        ({"NCCL_IB_GID_INDEX": "7", "NCCL_IB_PKEY": "3", "NCCL_IB_DISABLE": "1"}, ""),
    ],
    ids=str,
)
def test_a_port_refuses_what_its_tables_do_not_hold(env: dict[str, str], refusal: str) -> None:
    two = facts(*L20)
    ports = [{**port, "link_layer": "Ethernet", "gids": ROCE, "pkeys": ["0xffff"]} for port in two["node"]["hca_ports"]]
    roce = {**two, "node": {**two["node"], "hca_ports": ports}}
    assert wire(roce, {"NCCL_IB_GID_INDEX": "7"}, V).network == "IB", "within one node nothing is connected"
    if not refusal:
        assert wire(roce, env, V, nodes=2).links
        return
    with pytest.raises(Failure, match=refusal):
        wire(roce, env, V, nodes=2)


@pytest.mark.parametrize(
    ("version", "env", "direct"),
    [
        ((2, 27, 5), {}, (True, True)),
        ((2, 22, 3), {}, (False, False)),  # it looks for the module elsewhere
        ((2, 27, 5), {"NCCL_NET_GDR_READ": "0"}, (False, True)),
        ((2, 27, 5), {"NCCL_NET_GDR_LEVEL": "LOC"}, (False, False)),
        ((2, 27, 5), {"NCCL_NET_GDR_LEVEL": "0"}, (False, False)),
    ],
    ids=str,
)
def test_gpu_direct_is_each_ends_own(version: Version, env: dict[str, str], direct: tuple[bool, bool]) -> None:
    two = facts(*L20)
    near = [{"gpu": gpu, "nic": port["hca"], "level": "PIX"} for gpu in L20[1:] for port in two["node"]["hca_ports"]]
    node = {**two["node"], "nic_paths": near, "rdma": {**two["node"]["rdma"], "peermem": "580.95.05"}}
    link = wire({**two, "node": node}, env, version, nodes=2).links[3, 4]  # from the first node to the second
    assert (link.gpu_direct, link.is_received_direct) == direct


def test_nvlink_sharp_needs_switches_and_more_than_two_gpus() -> None:
    def nvls(*gpus: int, machine: str = "h100x8", **env: str) -> bool:
        return wire(facts(machine, *gpus), env, V).nvls

    assert nvls(0, 1, 2, 3)
    assert not nvls(0, 1)
    assert not nvls(0, 1, 2, 3, NCCL_NVLS_ENABLE="0")
    assert not nvls(0, 1, 2, 3, NCCL_NVLS_ENABLE="true"), "a word is the number 0"
    assert nvls(0, 1, 2, 3, NCCL_CUMEM_ENABLE="0"), "it is not tied to cuMem"
    assert nvls(0, 1, 2, 3, NCCL_P2P_DISABLE="1"), "it is not tied to P2P"
    assert not nvls(0, 1, 2, 3, NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1"), "NCCL then sees four nodes"
    assert not nvls(0, 1, 2, 3, machine="a100x4")


def test_a100s_read_over_nvlink_and_nobody_else_does() -> None:
    assert wire(facts("a100x4", 0, 1), {}, V).links[0, 1].reads
    assert not wire(facts("h100x8", 0, 1), {}, V).links[0, 1].reads


def test_up_to_2_23_a_geforce_has_no_cumem() -> None:
    assert not wire(facts("rtx4090x2", 0, 1), {}, (2, 21, 5)).cumem
    assert wire(facts("rtx4090x2", 0, 1), {}, V).cumem and wire(facts("a100x4", 0, 1), {}, (2, 21, 5)).cumem


def test_a_card_beside_each_gpu_wins_where_the_way_between_the_cpus_is_slower() -> None:
    machine = named("pcie4-nics")
    made = {"node": {**machine.node, "rdma": None, "hca_ports": [], "nic_paths": []}, "gpus": [0, 1, 2, 3]}
    via = {pair: str(link) for pair, link in wire(made, {}, V).links.items()}
    assert via == {(0, 1): "P2P/PCI", (1, 2): "NET/Socket", (2, 3): "P2P/PCI", (3, 0): "NET/Socket"}
    far = {str(link) for link in wire(made, {"NCCL_SOCKET_IFNAME": "=eth0"}, V).links.values()}
    assert far == {"P2P/PCI", "SHM/CUMEM"}, "eth0 is near neither"


def test_ranks_with_host_ids_of_their_own_meet_over_the_network_only() -> None:
    assert links(L20, NCCL_HOSTID="h3", NCCL_NET="Socket") == ["NET/Socket"] * 4


def test_configuration_files_count_behind_the_environment() -> None:
    entry = {"file": "/etc/nccl.conf", "name": "NCCL_P2P_DISABLE", "value": "1"}
    made = {"node": node("l20x10_ens34") | {"nccl_conf": [entry]}, "gpus": [3, 4, 5, 6]}
    assert {str(link) for link in wire(made, {}, V).links.values()} == {"SHM/CUMEM"}
    assert {str(link) for link in wire(made, {"NCCL_P2P_DISABLE": ""}, V).links.values()} == {"SHM/CUMEM", "P2P/PCI"}


@pytest.mark.parametrize(
    ("asked", "name", "hit"),
    [
        ("mlx5_1", "mlx5_10", True), ("=mlx5_1", "mlx5_10", False), ("^=mlx5_1", "mlx5_10", True),
        ("^mlx5_1", "mlx5_10", False), ("=a,b", "b", True), ("^a,b", "c", True), ("", "a", False), ("^", "a", True),
    ],
)  # fmt: skip
def test_names_are_prefixes_unless_told_otherwise(asked: str, name: str, hit: bool) -> None:
    assert matches(asked, name) is hit


@given(st.text(max_size=12) | st.from_regex(r"\A\s?[+-]?(0[xX])?[0-9a-f]{0,6}\Z"))
def test_any_value_is_a_number(text: str) -> None:
    assert isinstance(integer({"X": text}, "X", 7), int)


WORDS = st.sampled_from(
    [
        "",
        "0",
        "1",
        "2",
        "true",
        "SYS",
        "PIX",
        "NVL",
        "Socket",
        "IB",
        "=ens34",
        "^lo",
        "ens",
        "AF_INET",
        "mlx5_0",
        "=x:2",
    ]
)
VARIABLES = [
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA",
    "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_NET_GDR_LEVEL", "NCCL_HOSTID",
]  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(VARIABLES), WORDS | st.text(max_size=6)),
    st.sampled_from([L20, ("h100x8", 0, 1, 2, 3), ("a100x4", 0, 2), ("rtx4090x2", 0), ("l20x4_docker", 0, 1, 2, 3)]),
    st.sampled_from([(2, 18, 1), (2, 21, 5), (2, 23, 4), V, (2, 30, 7)]),
)
def test_any_environment_is_wired_or_fails_as_nccl_does(
    env: dict[str, str], machine: Machine, version: tuple[int, ...]
) -> None:
    try:
        wiring = wire(facts(*machine), env, version)
    except Failure as failure:
        assert failure.text
        return
    size = len(machine) - 1
    assert len(wiring.links) == (size if size > 1 else 0)
    assert (wiring.network == "IB") == bool(wiring.cards)
