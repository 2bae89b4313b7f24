"""Which conservative settings a node's facts allow; each that they don't is left out with a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.facts import Gap, NcclConfEntry, NetifKind, NodeFacts, known
from preflight.model.gpu import P2pStatus
from preflight.model.hca import PortState
from preflight.model.trial import Scope, Setting
from preflight.search.settings.candidate_plan import conservative_settings
from preflight.search.settings.minimise import env_of
from preflight.search.settings.node_view import view_of
from tests.gpus import gpu, gpu_p2p
from tests.node_facts import LO, env, gpu_node, netif, node
from tests.topology import pcie_node, port, roce_port

UNREADABLE = Gap("it could not be read")


def planned(facts: NodeFacts, gpus: tuple[int, ...] = ()) -> tuple[dict[str, Setting], dict[str, str]]:
    settings, left_out = conservative_settings(view_of(facts, gpus))
    return {each.name: each for each in settings}, {each.candidate: each.reason for each in left_out}


def with_nccl(facts: NodeFacts, version: str | Gap) -> NodeFacts:
    software = known(facts.software)
    torch = replace(known(software.torch), nccl=version)
    return replace(facts, software=replace(software, torch=torch))


def old_gpus(count: int = 4) -> NodeFacts:
    """Return a node of L20s, which have neither NVLink nor NVSwitch."""
    gpus = tuple(gpu(i, compute_capability="8.9", nvlinks=(), fabric=UNREADABLE) for i in range(count))
    return pcie_node(("NODE",), count, gpus=gpus)


def test_an_nvswitch_node_with_adapters_has_them_all() -> None:
    settings, _ = planned(gpu_node(8, hca_ports=(port(), port("mlx5_1"), port("mlx5_2"), roce_port("mlx5_9"))))
    assert list(settings) == [
        "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE", "hca mlx5_0:1,mlx5_1:1,mlx5_2:1",
        "hca mlx5_9:1", "netif eth0", "NCCL_SOCKET_FAMILY", "NCCL_P2P_DISABLE", "NCCL_MNNVL_ENABLE",
        "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_NVLS_ENABLE",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("NCCL_NET", "Socket"), ("NCCL_NET_PLUGIN", "none"), ("NCCL_IB_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"),
     ("hca mlx5_0:1", "=mlx5_0:1"), ("NCCL_SOCKET_FAMILY", "AF_INET"), ("NCCL_P2P_DISABLE", "1"),
     ("NCCL_MNNVL_ENABLE", "0"), ("NCCL_CUMEM_ENABLE", "0"), ("NCCL_CUMEM_HOST_ENABLE", "0"),
     ("NCCL_NVLS_ENABLE", "0")],
)  # fmt: skip
def test_a_setting_is_written_as_nccl_reads_it(name: str, value: str) -> None:
    settings, _ = planned(gpu_node(8, hca_ports=(port(), port("mlx5_1"))))
    assert [each for _, each in settings[name].env] == [value]


def test_an_interface_is_an_exact_match_and_lo_is_none() -> None:
    settings, left_out = planned(gpu_node(netifs=(LO, netif("ens34"))))
    assert settings["netif ens34"].env == (("NCCL_SOCKET_IFNAME", "=ens34"),)
    assert "never recommended" in left_out["netif lo"]


def test_the_interface_with_the_way_out_comes_first_then_the_likelier_kind_then_the_faster() -> None:
    bridge = netif("br-3f1a", index=2, kind=NetifKind.BRIDGE, gateways=())
    slow = netif("eno1", index=3, gateways=(), speed_mbit_s=1000)
    fast = netif("eno2", index=4, gateways=(), speed_mbit_s=100_000)
    out = netif("ens34", index=9)
    settings, _ = planned(gpu_node(netifs=(LO, bridge, slow, fast, out)))
    assert [name for name in settings if name.startswith("netif ")] == [
        "netif ens34", "netif eno2", "netif eno1", "netif br-3f1a",
    ]  # fmt: skip


def test_some_nvlink_gives_the_gentler_level_beside_p2p_off_and_all_nvlink_does_not() -> None:
    settings, _ = planned(pcie_node(("NV4", "SYS"), 4))
    assert list(settings).index("NCCL_P2P_DISABLE") < list(settings).index("NCCL_P2P_LEVEL")
    assert settings["NCCL_P2P_LEVEL"].env == (("NCCL_P2P_LEVEL", "NVL"),)
    _, left_out = planned(gpu_node(4))
    assert "NVLink joins all" in left_out["NCCL_P2P_LEVEL=NVL"]


def test_p2p_off_is_left_out_where_the_driver_denies_it_for_all_pairs() -> None:
    no = P2pStatus.CHIPSET_NOT_SUPPORTED
    facts = gpu_node(2, gpu_p2p=(gpu_p2p(0, 1, read=no, write=no),))
    assert "never uses it" in planned(facts)[1]["NCCL_P2P_DISABLE"]
    assert "NCCL_P2P_DISABLE" in planned(replace(facts, gpu_p2p=UNREADABLE))[0]


def test_older_gpus_and_gpus_without_a_switch_have_no_nvls() -> None:
    assert "Hopper" in planned(old_gpus())[1]["NCCL_NVLS_ENABLE"]
    bridged = gpu_node(2, gpus=tuple(gpu(i, nvlinks=()) for i in range(2)))
    assert "NVSwitch" in planned(bridged)[1]["NCCL_NVLS_ENABLE"]


@pytest.mark.parametrize(
    ("version", "missing"),
    [
        ("2.18.1", {"NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_MNNVL_ENABLE"}),
        ("2.20.5", {"NCCL_CUMEM_HOST_ENABLE", "NCCL_MNNVL_ENABLE"}),
        ("2.23.4", {"NCCL_CUMEM_HOST_ENABLE"}),
        ("2.28.9", set()),
        (UNREADABLE, set()),
    ],
)
def test_what_the_loaded_version_does_not_read_or_use_is_left_out(version: str | Gap, missing: set[str]) -> None:
    versioned = {"NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_NVLS_ENABLE"}
    settings, left_out = planned(with_nccl(gpu_node(8), version))
    assert versioned - set(settings) == missing
    assert missing <= set(left_out)


def test_without_an_adapter_rdma_is_not_switched_off_and_with_unknown_ones_it_is() -> None:
    assert planned(gpu_node(hca_ports=()))[1]["NCCL_IB_DISABLE"] == "there is no RDMA adapter"
    settings, left_out = planned(gpu_node(hca_ports=UNREADABLE))
    assert "NCCL_IB_DISABLE" in settings
    assert UNREADABLE.reason in left_out["NCCL_IB_HCA"]


def test_alike_ports_are_taken_together_by_nccl_anyway_and_a_port_without_a_link_by_nobody() -> None:
    _, left_out = planned(gpu_node(hca_ports=tuple(port(f"mlx5_{i}") for i in range(8))))
    assert "8 usable ports are alike" in left_out["NCCL_IB_HCA"]
    _, left_out = planned(gpu_node(hca_ports=(port(), port("mlx5_1", state=PortState.DOWN))))
    assert "one port is usable" in left_out["NCCL_IB_HCA"]


@pytest.mark.parametrize(
    ("version", "told"), [("2.20.5", None), ("2.21.5", "choose the GID"), (UNREADABLE, "not known")]
)
def test_the_gid_is_set_only_where_nccl_is_known_to_be_too_old_to_find_it(version: str | Gap, told: str | None) -> None:
    settings, left_out = planned(with_nccl(gpu_node(hca_ports=(roce_port(),)), version))
    if told is None:
        assert settings["NCCL_IB_GID_INDEX"].env == (("NCCL_IB_GID_INDEX", "3"),)
    else:
        assert told in left_out["NCCL_IB_GID_INDEX"]


def test_addresses_of_one_family_leave_nothing_to_choose() -> None:
    facts = gpu_node(netifs=(LO, netif(addresses=("10.0.0.5",))))
    assert "no usable interface has an IPv6" in planned(facts)[1]["NCCL_SOCKET_FAMILY"]
    facts = gpu_node(netifs=(LO, netif(addresses=("2001:db8::5",))))
    assert "no usable interface has an IPv4" in planned(facts)[1]["NCCL_SOCKET_FAMILY"]


def test_a_plugin_that_is_off_already_is_left_alone() -> None:
    assert "already" in planned(gpu_node(environment=env(NCCL_NET_PLUGIN="none")))[1]["NCCL_NET_PLUGIN"]


def conf(*entries: tuple[str, str, str]) -> tuple[NcclConfEntry, ...]:
    return tuple(NcclConfEntry(*each) for each in entries)


def test_a_configuration_file_is_neutralised_by_empty_values_and_the_users_by_an_empty_file() -> None:
    both = conf(("/etc/nccl.conf", "NCCL_P2P_LEVEL", "SYS"), ("/home/u/.nccl.conf", "NCCL_ALGO", "Tree"))
    settings, _ = planned(gpu_node(nccl_conf=both))
    assert dict(settings["nccl.conf"].env) == {"NCCL_P2P_LEVEL": "", "NCCL_CONF_FILE": "/dev/null"}
    settings, _ = planned(with_nccl(gpu_node(nccl_conf=both), "2.22.3"))
    assert dict(settings["nccl.conf"].env) == {"NCCL_P2P_LEVEL": "", "NCCL_ALGO": ""}
    assert "nccl.conf" not in planned(gpu_node(nccl_conf=conf(("/etc/nccl.conf", "NCCL_ALGO ", "x"))))[0]
    net = conf(("/etc/nccl.conf", "NCCL_NET", "IB"), ("/etc/nccl.conf", "NCCL_ALGO", "Tree"))
    settings, _ = planned(gpu_node(nccl_conf=net))
    assert dict(settings["nccl.conf"].env) == {"NCCL_ALGO": ""}, "an empty NCCL_NET matches no network"


def test_an_empty_value_never_takes_the_place_of_another_settings() -> None:
    facts = gpu_node(
        nccl_conf=conf(("/etc/nccl.conf", "NCCL_P2P_DISABLE", "0"), ("/etc/nccl.conf", "NCCL_BUFFSIZE", "1"))
    )
    settings, _ = planned(facts)
    together = dict(env_of(tuple(settings.values())))
    assert (together["NCCL_P2P_DISABLE"], together["NCCL_BUFFSIZE"]) == ("1", "")


def test_a_single_gpu_has_no_peer_and_the_chosen_gpus_alone_decide() -> None:
    _, left_out = planned(gpu_node(4), (2,))
    assert {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"} <= set(left_out)
    settings, left_out = planned(pcie_node(("NV4", "SYS", "SYS", "SYS", "SYS", "SYS"), 4), (0, 1))
    assert "NCCL_P2P_LEVEL" not in settings
    assert "NCCL_P2P_LEVEL=NVL" in left_out


GAPPED = ("netifs", "hca_ports", "nccl_conf", "gpus", "gpu_paths", "gpu_p2p", "software", "system", "environment")


@given(st.sets(st.sampled_from(GAPPED)), st.sampled_from([gpu_node(8, hca_ports=(port(),)), old_gpus(), node()]))
def test_an_unknown_fact_removes_no_setting_in_silence(unknown: set[str], facts: NodeFacts) -> None:
    gaps: dict[str, Any] = dict.fromkeys(unknown, UNREADABLE)
    settings, left_out = planned(replace(facts, **gaps))
    told = {*settings, *left_out}
    for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN",
                 "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_MNNVL_ENABLE",
                 "NCCL_SOCKET_FAMILY"):  # fmt: skip
        assert name in told
    assert all(left_out.values())
    assert all(each.env for each in settings.values())


@given(st.sampled_from([gpu_node(8, hca_ports=(port(), roce_port("mlx5_1"))), old_gpus(), node()]))
def test_what_concerns_the_network_holds_on_one_node_only(facts: NodeFacts) -> None:
    for name, setting in planned(facts)[0].items():
        about_network = name.startswith(("NCCL_NET", "NCCL_IB", "NCCL_SOCKET", "netif", "hca", "NCCL_MNNVL"))
        assert (setting.scope is Scope.ONE_NODE) == about_network


def test_protocols_and_algorithms_are_never_planned() -> None:
    settings, _ = planned(gpu_node(8, hca_ports=(port(),)))
    assert not {"NCCL_PROTO", "NCCL_ALGO"} & {name for each in settings.values() for name, _ in each.env}
