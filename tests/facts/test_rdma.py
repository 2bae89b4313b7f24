from __future__ import annotations

from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.facts.rdma import (
    is_open_module,
    kernel_version,
    natural,
    nic_kind,
    parse_phys_state,
    parse_rate,
    parse_state,
    probe_hca_ports,
    probe_nics,
    probe_rdma,
    probe_roce_links,
    read_port_errors,
    with_links,
)
from preflight.model.facts import Gap, HcaPort, known
from preflight.model.hca import NOT_FORCED, DscpPriority, NicKind, PhysState, PortSpeeds, PortState, TrafficClasses
from preflight.system.machine import Json
from tests.sysroot import Link, build

Files = dict[str, str | bytes | Link]
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"


def _port(hca: str, number: int = 1, layer: str = "InfiniBand", **files: str) -> Files:
    base = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": layer}
    base |= {"lid": "0x11", "sm_lid": "0x1", "gids__0": "fe80:0000:0000:0000:b859:9f03:0012:3456", "gids__1": ZERO}
    base |= {"gid_attrs__types__0": "IB/RoCE v1", "pkeys__0": "0xffff", "pkeys__1": "0x0000"}
    base |= {"counters__symbol_error": "0", "counters__link_downed": "3", "hw_counters__out_of_sequence": "7"}
    place = f"sys/class/infiniband/{hca}/ports/{number}"
    return {f"{place}/{name.replace('__', '/')}": value for name, value in (base | files).items()}


def _adapter(hca: str, bdf: str = "0000:18:00.0", driver: str = "mlx5_core") -> Files:
    place = f"sys/devices/pci0000:10/{bdf}"
    return {
        f"sys/class/infiniband/{hca}/device": Link(f"../../../devices/pci0000:10/{bdf}"),
        f"sys/class/infiniband/{hca}/fw_ver": "28.41.1000",
        f"{place}/vendor": "0x15b3",
        f"{place}/device": "0x1021",
        f"{place}/numa_node": "1",
        f"{place}/driver": Link(f"../../../bus/pci/drivers/{driver}"),
        f"{place}/net/ib0/ifindex": "5",
    }


def test_an_adapter_has_its_model_place_firmware_and_interfaces(tmp_path: Path) -> None:
    (nic,) = probe_nics(build(tmp_path, _adapter("mlx5_0") | _port("mlx5_0")))
    assert (nic.name, nic.kind, nic.bdf) == ("mlx5_0", NicKind.INFINIBAND, "0000:18:00.0")
    assert (nic.driver, nic.device, nic.firmware) == ("mlx5_core", "15b3:1021", "28.41.1000")
    assert (nic.numa_node, nic.netifs) == (1, ("ib0",))


def test_a_port_has_its_states_rate_addresses_keys_and_counters(tmp_path: Path) -> None:
    (port,) = probe_hca_ports(build(tmp_path, _adapter("mlx5_0") | _port("mlx5_0")))
    assert (port.hca, port.port, port.state, port.phys_state) == ("mlx5_0", 1, PortState.ACTIVE, PhysState.LINK_UP)
    assert (port.rate_gbit_s, port.link_layer, port.lid, port.sm_lid) == (400.0, "InfiniBand", 17, 1)
    assert not isinstance(port.gids, Gap)
    assert [(gid.gid_index, gid.type) for gid in port.gids] == [(0, "IB/RoCE v1")]
    assert isinstance(port.gids[0].netif, Gap)
    assert port.pkeys == ("0xffff",)
    assert not isinstance(port.counters, Gap)
    assert [(c.name, c.value) for c in port.counters] == [
        ("link_downed", 3),
        ("out_of_sequence", 7),
        ("symbol_error", 0),
    ]


def test_a_port_s_errors_are_read_by_name_without_traffic_congestion_and_what_cannot_be_read(tmp_path: Path) -> None:
    more = {"counters__port_xmit_data": "9", "hw_counters__np_cnp_sent": "4", "counters__port_rcv_errors": "?"}
    machine = build(tmp_path, _adapter("mlx5_0") | _port("mlx5_0", 1, "InfiniBand", **more) | _port("mlx5_0", 2))
    known = {"symbol_error": 0, "link_downed": 3, "out_of_sequence": 7}
    assert read_port_errors(machine) == {"mlx5_0:1": known, "mlx5_0:2": known}
    assert read_port_errors(build(tmp_path / "other", {"sys/class/net/eth0/mtu": "1500"})) == {}


ASKED = {"traffic_classes": {"ib0": {"pfc": [3], "dscp": [[0, 0], [26, 3]]}}}


def _roce(tmp_path: Path, answers: dict[str, Json], **files: str) -> HcaPort:
    ports = _port("mlx5_0", layer="Ethernet", gid_attrs__ndevs__0="ib0")
    machine = build(tmp_path, _adapter("mlx5_0") | ports | files, answers)
    return known(with_links(probe_hca_ports(machine), probe_roce_links(machine)))[0]


def test_a_roce_port_has_the_traffic_classes_of_its_interface(tmp_path: Path) -> None:
    ecn = {
        f"sys/class/net/ib0/ecn/{role}/enable/{i}": f"{i != 2:d}" for role in ("roce_np", "roce_rp") for i in range(8)
    }
    ecn["sys/class/net/ib0/ecn/roce_rp/enable/3"] = "0"  # of both roles only one is on
    forced = {"sys/class/infiniband/mlx5_0/tc/1/traffic_class": "Global tclass=106"}
    (found,) = known(_roce(tmp_path, ASKED, **ecn, **forced).traffic_classes)
    assert found == TrafficClasses((3,), (DscpPriority(0, 0), DscpPriority(26, 3)), (0, 1, 4, 5, 6, 7), 106)
    assert found.priority_of(104) == 3 and found.priority_of(8) is None


def test_the_kernels_own_driver_shows_no_ecn_and_forces_no_class(tmp_path: Path) -> None:
    (found,) = known(_roce(tmp_path, ASKED).traffic_classes)
    assert found.forced == NOT_FORCED
    assert isinstance(found.ecn_priorities, Gap) and "driver package" in found.ecn_priorities.reason


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "not recorded"),
        ({"traffic_classes": {}}, "no such RDMA interface"),
        ({"traffic_classes": {"ib0": {"unreadable": "traffic classes of ib0: not supported"}}}, "not supported"),
    ],
)
def test_traffic_classes_that_cannot_be_read_say_why(tmp_path: Path, answers: dict[str, Json], why: str) -> None:
    found = _roce(tmp_path, answers).traffic_classes
    assert isinstance(found, Gap) and why in found.reason


def test_an_infiniband_port_is_asked_for_no_traffic_classes_and_speeds(tmp_path: Path) -> None:
    machine = build(tmp_path, _adapter("mlx5_0") | _port("mlx5_0"), ASKED)
    (port,) = known(with_links(probe_hca_ports(machine), probe_roce_links(machine)))
    assert (port.traffic_classes, port.speeds) == ((), ())


def test_a_driver_that_does_not_answer_about_its_links_costs_nothing_else(tmp_path: Path) -> None:
    ports = _port("mlx5_0", layer="Ethernet", gid_attrs__ndevs__0="ib0") | _port("mlx5_1")
    machine, stalled = build(tmp_path, ports, ASKED), Gap("no answer within 5.0 s; the call is stuck")
    roce, infiniband = known(with_links(probe_hca_ports(machine), stalled))
    assert (roce.state, roce.traffic_classes, roce.speeds) == (PortState.ACTIVE, stalled, stalled)
    assert (infiniband.traffic_classes, infiniband.speeds) == ((), ())
    assert with_links(stalled, ()) == stalled


def test_a_roce_port_has_the_fastest_speeds_of_both_ends(tmp_path: Path) -> None:
    found = _roce(tmp_path, {"port_speeds": {"ib0": {"now": 100.0, "own": [25, 100, 200], "both": [25, 100]}}}).speeds
    assert known(found) == (PortSpeeds(100.0, 200, 100),)
    (fixed,) = known(_roce(tmp_path / "2", {"port_speeds": {"ib0": {"now": 400.0, "own": [400], "both": None}}}).speeds)
    assert fixed.own_gbit_s == 400
    assert isinstance(fixed.both_gbit_s, Gap) and "did not negotiate" in fixed.both_gbit_s.reason
    misread = {"port_speeds": {"ib0": {"now": 100.0, "own": [25, 100, 200], "both": [25, 200]}}}
    (found_odd,) = known(_roce(tmp_path / "3", misread).speeds)
    assert isinstance(found_odd.both_gbit_s, Gap) and "does not include" in found_odd.both_gbit_s.reason


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"now": 100.0, "own": [], "both": [100]}, "reports no speed"),
        ({"unreadable": "speeds of ib0: Operation not supported"}, "not supported"),
    ],
)
def test_speeds_that_cannot_be_read_say_why(tmp_path: Path, answer: Json, why: str) -> None:
    found = _roce(tmp_path, {"port_speeds": {"ib0": answer}}).speeds
    assert isinstance(found, Gap) and why in found.reason


def test_adapters_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    files = {k: v for name in ("mlx5_10", "mlx5_9", "mlx5_bond_0") for k, v in _port(name).items()}
    assert [nic.name for nic in probe_nics(build(tmp_path, files))] == ["mlx5_9", "mlx5_10", "mlx5_bond_0"]
    assert natural("mlx5_9") < natural("mlx5_10")


def test_an_adapter_that_is_no_pci_device_has_no_address_and_says_why(tmp_path: Path) -> None:
    (nic,) = probe_nics(build(tmp_path, {"sys/class/infiniband/scif0/device": Link("../../../virtual/mic/scif")}))
    assert isinstance(nic.bdf, Gap)
    assert "no PCI device" in nic.bdf.reason
    assert nic.kind is NicKind.OTHER


def test_one_broken_value_costs_itself_only(tmp_path: Path) -> None:
    (port,) = probe_hca_ports(build(tmp_path, _port("mlx5_0", rate="fast", state="9: GONE", lid="?")))
    assert all(isinstance(value, Gap) for value in (port.rate_gbit_s, port.state, port.lid))
    assert port.phys_state is PhysState.LINK_UP


def test_no_rdma_driver_is_no_adapter_and_no_sys_is_a_gap(tmp_path: Path) -> None:
    assert probe_nics(build(tmp_path, {"sys/class/net/": ""})) == ()
    with pytest.raises(UnreadableFact):
        probe_nics(build(tmp_path / "empty", {"proc/": ""}))


@pytest.mark.parametrize(
    ("layers", "driver", "kind"),
    [
        ({"InfiniBand"}, "mlx5_core", NicKind.INFINIBAND),
        ({"Ethernet"}, "mlx5_core", NicKind.ROCE),
        ({"Ethernet", "InfiniBand"}, "mlx4_core", NicKind.MIXED),
        ({"Unspecified"}, "efa", NicKind.EFA),
        ({"Ethernet"}, "efa", NicKind.EFA),
        (set(), "usnic", NicKind.OTHER),
    ],
)
def test_the_kind_is_by_link_layer_and_efa_is_its_own(layers: set[str], driver: str, kind: NicKind) -> None:
    assert nic_kind(frozenset(layers), driver) is kind


def test_states_and_rates_are_in_the_kernels_words() -> None:
    assert parse_state("2: INIT") is PortState.INIT
    assert parse_phys_state("3: Disabled") is PhysState.DISABLED
    assert parse_rate("54.5 Gb/sec (4X FDR)") == 54.5
    assert parse_rate("100 Gb/sec") == 100.0
    for parse in (parse_state, parse_phys_state, parse_rate):
        with pytest.raises(UnreadableFact):
            parse("")


def test_the_device_files_are_compared_with_what_the_kernel_names(tmp_path: Path) -> None:
    files: Files = {"dev/infiniband/uverbs0": "", "sys/class/infiniband_verbs/uverbs0/dev": "231:192"}
    files |= {"sys/class/infiniband_verbs/uverbs1/dev": "231:193", "sys/class/infiniband_verbs/abi_version": "6"}
    found = probe_rdma(build(tmp_path, files))
    assert (found.uverbs, found.uverbs_expected) == (("uverbs0",), ("uverbs0", "uverbs1"))


def test_peermem_and_dma_buf_are_told_from_module_and_kernel(tmp_path: Path) -> None:
    files: Files = {"dev/": "", "sys/module/nvidia_peermem/version": "580.95.05", "proc/driver/nvidia/version": OPEN}
    found = probe_rdma(build(tmp_path, files | {"proc/sys/kernel/osrelease": "6.1.0-18-amd64"}))
    assert (found.peermem, found.dma_buf) == ("580.95.05", True)
    old = probe_rdma(build(tmp_path / "old", files | {"proc/sys/kernel/osrelease": "5.4.0-150-generic"}))
    assert old.dma_buf is False
    assert not is_open_module("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03")
    assert kernel_version("5.15.0-1061-nvidia") == (5, 15)
