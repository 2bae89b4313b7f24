from __future__ import annotations

from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.facts.network import probe_netifs
from preflight.model.facts import Gap, Netif, NetifKind
from preflight.system.machine import Json, Tree
from tests.sysroot import Link, build

Files = dict[str, str | bytes | Link]


def _interface(name: str, index: int = 2, **files: str | Link) -> Files:
    base: dict[str, str | Link] = {"ifindex": str(index), "iflink": str(index), "type": "1", "flags": "0x1003"}
    base |= {"mtu": "1500", "carrier": "1", "speed": "-1", "uevent": f"INTERFACE={name}"}
    return {f"sys/class/net/{name}/{key.replace('__', '/')}": value for key, value in (base | files).items()}


def _one(tmp_path: Path, files: Files, answer: Json = None) -> Netif:
    (found,) = probe_netifs(build(tmp_path, files, {} if answer is None else {"interfaces": answer}))
    return found


@pytest.mark.parametrize(
    ("name", "files", "kind"),
    [
        ("lo", {"type": "772"}, NetifKind.LOOPBACK),
        ("ens3", {"device__vendor": "0x8086"}, NetifKind.PHYSICAL),
        ("docker_nic", {"device__vendor": "0x8086"}, NetifKind.PHYSICAL),
        ("bond0", {"bonding__mode": "802.3ad 4", "uevent": "DEVTYPE=bond"}, NetifKind.BOND),
        ("bond1", {"bonding__mode": "active-backup 1", "type": "32"}, NetifKind.BOND),
        ("eth0.100", {"uevent": "DEVTYPE=vlan\nINTERFACE=eth0.100", "iflink": "3"}, NetifKind.VLAN),
        ("virbr0", {"bridge__stp_state": "1", "uevent": "DEVTYPE=bridge"}, NetifKind.BRIDGE),
        ("br-lan", {"bridge__stp_state": "1"}, NetifKind.BRIDGE),
        ("br-0123456789ab", {"bridge__stp_state": "1"}, NetifKind.CONTAINER),
        ("docker0", {"bridge__stp_state": "1"}, NetifKind.CONTAINER),
        ("flannel.1", {"uevent": "DEVTYPE=vxlan"}, NetifKind.CONTAINER),
        ("cali0a1b", {"iflink": "7"}, NetifKind.CONTAINER),
        ("vxlan5", {"uevent": "DEVTYPE=vxlan"}, NetifKind.TUNNEL),
        ("wg0", {"uevent": "DEVTYPE=wireguard", "type": "65534"}, NetifKind.TUNNEL),
        ("tap0", {"tun_flags": "0x1002"}, NetifKind.TUNNEL),
        ("wlp2s0", {"phy80211__index": "0", "device__vendor": "0x8086"}, NetifKind.WIFI),
        ("wlan0", {"uevent": "DEVTYPE=wlan", "device__vendor": "0x8086"}, NetifKind.WIFI),
        ("ibp1s0", {"type": "32", "device__vendor": "0x15b3"}, NetifKind.IPOIB),
        ("ib0.8001", {"type": "32", "iflink": "5"}, NetifKind.IPOIB),
        ("eth0", {"iflink": "41"}, NetifKind.VETH),
        ("veth12ab", {}, NetifKind.VETH),
        ("macvlan0", {"uevent": "DEVTYPE=macvlan", "iflink": "3"}, NetifKind.VIRTUAL),
        ("dummy0", {}, NetifKind.VIRTUAL),
    ],
)
def test_the_kind_is_what_sysfs_shows(tmp_path: Path, name: str, files: dict[str, str], kind: NetifKind) -> None:
    assert _one(tmp_path, _interface(name, 2, **files)).kind is kind


def test_a_card_has_its_driver_node_and_speed(tmp_path: Path) -> None:
    found = _one(
        tmp_path,
        _interface(
            "ens3", speed="200000", device__numa_node="1", device__driver=Link("../../../bus/pci/drivers/mlx5_core")
        ),
    )
    assert (found.driver, found.numa_node, found.speed_mbit_s) == ("mlx5_core", 1, 200000)
    assert (found.is_up, found.has_carrier, found.mtu) == (True, True, 1500)


def test_a_virtio_card_takes_the_node_of_the_pci_device_above_it(tmp_path: Path) -> None:
    files: Files = {"sys/devices/pci0/virtio0/features": "1", "sys/devices/pci0/numa_node": "0"}
    found = _one(tmp_path, files | _interface("ens3", device=Link("../../../devices/pci0/virtio0")))
    assert found.numa_node == 0


@pytest.mark.parametrize("speed", ["-1", "4294967295", "0", ""])
def test_a_speed_that_the_driver_does_not_know_is_a_gap(tmp_path: Path, speed: str) -> None:
    assert isinstance(_one(tmp_path, _interface("ens3", speed=speed)).speed_mbit_s, Gap)


def test_what_is_no_interface_is_left_out(tmp_path: Path) -> None:
    files: Files = {"sys/class/net/bonding_masters": "", "sys/class/net/gone": Link("../../devices/virtual/net/gone")}
    assert probe_netifs(build(tmp_path, files)) == ()


def test_without_the_kernels_list_the_order_is_that_of_the_indices_and_addresses_are_gaps(tmp_path: Path) -> None:
    found = probe_netifs(build(tmp_path, _interface("a", 10) | _interface("b", 9)))
    assert [netif.name for netif in found] == ["b", "a"]
    assert isinstance(found[0].addresses, Gap)
    assert isinstance(found[0].gateways, Gap)


def test_addresses_and_gateways_come_with_the_kernels_list(tmp_path: Path) -> None:
    answer = {
        "name": "ens3",
        "index": 2,
        "flags": 0x1002,
        "addresses": ["10.0.0.2", "fe80::1"],
        "gateways": ["10.0.0.1"],
    }
    found = _one(tmp_path, _interface("ens3"), [answer])
    assert found.addresses == ("10.0.0.2", "fe80::1")
    assert found.gateways == ("10.0.0.1",)
    assert not found.is_up


def test_an_interface_that_sysfs_does_not_show_is_still_listed(tmp_path: Path) -> None:
    unreadable = {"unreadable": "its name is not UTF-8"}
    answer = {"name": "e\\xff", "index": 2, "flags": 1, "addresses": unreadable, "gateways": unreadable}
    found = _one(tmp_path, {}, [answer])
    assert found.is_up
    assert found.addresses == Gap("its name is not UTF-8")
    assert isinstance(found.mtu, Gap)


def test_a_namesake_in_another_network_namespace_is_not_taken_for_the_interface(tmp_path: Path) -> None:
    answer = {"name": "eth0", "index": 5, "flags": 1, "addresses": ["10.0.0.2"], "gateways": []}
    found = _one(tmp_path, _interface("eth0", 2, device__vendor="0x8086"), [answer])
    assert found.kind is NetifKind.VIRTUAL
    assert isinstance(found.driver, Gap)
    assert "another network namespace" in found.driver.reason


def test_a_machine_whose_sys_is_not_there_is_not_one_without_interfaces(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFact, match=r"^/sys/class/net: not there"):
        probe_netifs(Tree(tmp_path))


def test_networks_come_with_the_kernels_list_and_the_larger_arp_ignore_counts(tmp_path: Path) -> None:
    conf = "proc/sys/net/ipv4/conf"
    files: Files = {f"{conf}/all/arp_ignore": "0\n", f"{conf}/eth1/arp_ignore": "1\n"}
    answer = {"name": "eth1", "index": 2, "flags": 1, "addresses": [], "networks": ["10.1.0.0/16"], "gateways": []}
    found = _one(tmp_path, _interface("eth1") | files, [answer])
    assert (found.networks, found.arp_ignore) == (("10.1.0.0/16",), 1)


def test_a_capture_of_an_earlier_release_has_no_networks(tmp_path: Path) -> None:
    answer = {"name": "eth1", "index": 2, "flags": 1, "addresses": [], "gateways": []}
    found = _one(tmp_path, _interface("eth1"), [answer])
    assert (found.networks, found.arp_ignore) == ((), -1)
