from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.facts.pci_bus import (
    CONTROLS,
    parse_acs,
    parse_place,
    parse_speed,
    parse_width,
    probe_pci,
    without_serial,
)
from preflight.facts.pci_distance import gpu_paths, level, nic_paths
from preflight.facts.rdma import probe_nics
from preflight.model.facts import Gap, PciDevice, PciKind
from preflight.system.machine import Tree
from tests.sysroot import Link, build
from tests.topology import device

Files = dict[str, str | bytes | Link]
ROOT = "devices/pci0000:10"
GPU_A = f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0"
GPU_B = f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0"
NIC_A = f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:02.0/0000:15:00.0"


def _config(*capabilities: tuple[int, bytes]) -> bytes:
    """Return a config space with these extended capabilities in a chain."""
    space = bytearray(4096)
    offset = 0x100
    for i, (identity, body) in enumerate(capabilities):
        following = offset + 0x40 if i + 1 < len(capabilities) else 0
        space[offset : offset + 4] = (identity | 1 << 16 | following << 20).to_bytes(4, "little")
        space[offset + 4 : offset + 4 + len(body)] = body
        offset += 0x40
    return bytes(space)


def _acs(word: int) -> tuple[int, bytes]:
    return 0x000D, b"\x1f\x00" + word.to_bytes(2, "little")


def _device(place: str, pci_class: str, ids: tuple[str, str], **files: str | bytes | Link) -> Files:
    bdf = place.rpartition("/")[2]
    made: Files = {f"sys/bus/pci/devices/{bdf}": Link(f"../../../{place}")}
    scripted: Files = {"class": pci_class, "vendor": ids[0], "device": ids[1], "numa_node": "0", "config": bytes(64)}
    return made | {f"sys/{place}/{name}": value for name, value in (scripted | dict(files)).items()}


def _bridges(**files: str | bytes | Link) -> Files:
    parts = GPU_A.split("/")
    places = ["/".join(parts[:end]) for end in (3, 4, 5)] + [f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:01.0"]
    return {k: v for place in places for k, v in _device(place, "0x060400", ("0x8086", "0x2030"), **files).items()}


def _machine(root: Path, **files: str | bytes | Link) -> Tree:
    gpu = {"current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}
    tree = _bridges(**files)
    for place in (GPU_A, GPU_B):
        tree |= _device(place, "0x030200", ("0x10de", "0x2330"), **gpu)
    tree |= _device(NIC_A, "0x020700", ("0x15b3", "0x1021"))
    tree |= _device(f"{ROOT}/0000:10:01.0/0000:11:00.0/0000:12:02.0", "0x060400", ("0x8086", "0x2030"))
    tree |= {"sys/class/infiniband/mlx5_0/device": Link("../../../devices/x/0000:15:00.0"), "sys/kernel/x": ""}
    return build(root, tree)


def _by_bdf(machine: Tree) -> dict[str, PciDevice]:
    return {each.bdf: each for each in probe_pci(machine)}


def test_the_tree_holds_the_gpus_the_adapters_and_the_bridges_above_them(tmp_path: Path) -> None:
    found = _by_bdf(_machine(tmp_path))
    kinds = {bdf: each.kind.value for bdf, each in found.items()}
    assert kinds == {
        "0000:13:00.0": "gpu", "0000:14:00.0": "gpu", "0000:15:00.0": "nic", "0000:10:01.0": "root_port",
        "0000:11:00.0": "switch_upstream", "0000:12:00.0": "switch_downstream", "0000:12:01.0": "switch_downstream",
        "0000:12:02.0": "switch_downstream",
    }  # fmt: skip
    gpu = found["0000:13:00.0"]
    assert gpu.parents == ("0000:10:01.0", "0000:11:00.0", "0000:12:00.0")
    assert (gpu.host_bridge, gpu.device, gpu.numa_node) == ("pci0000:10", "10de:2330", 0)
    assert (gpu.speed_gt_s, gpu.speed_max_gt_s, gpu.width) == (2.5, 32.0, 16)
    assert isinstance(gpu.width_max, Gap)


def test_the_distances_are_those_of_the_tree(tmp_path: Path) -> None:
    machine = _machine(tmp_path)
    without_nvml = Gap("no NVML")
    pci = probe_pci(machine)
    assert [path.level for path in _tuple(gpu_paths(without_nvml, without_nvml, pci, ()))] == ["PIX"]
    paths = _tuple(nic_paths(without_nvml, probe_nics(machine), pci, ()))
    assert [(path.gpu, path.nic, path.level) for path in paths] == [(0, "mlx5_0", "PIX"), (1, "mlx5_0", "PIX")]


def _tuple(value: tuple | Gap) -> tuple:  # type: ignore[type-arg]
    assert isinstance(value, tuple)
    return value


def test_without_root_acs_is_unknown_and_not_off(tmp_path: Path) -> None:
    bridge = _by_bdf(_machine(tmp_path))["0000:12:00.0"]
    assert isinstance(bridge.acs, Gap)
    assert "root" in bridge.acs.reason


def test_with_root_the_controls_of_a_bridge_are_read(tmp_path: Path) -> None:
    bridge = _by_bdf(_machine(tmp_path, config=_config((0x0001, b""), _acs(0x1D))))["0000:12:00.0"]
    assert bridge.acs == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")


def test_no_iommu_group_on_a_kernel_without_groups_is_no_iommu(tmp_path: Path) -> None:
    gpu = _by_bdf(_machine(tmp_path))["0000:13:00.0"]
    assert (gpu.iommu_group, gpu.iommu_type) == ("", "")


def test_the_type_of_a_devices_group_is_read(tmp_path: Path) -> None:
    files: Files = {f"sys/{GPU_A}/iommu_group": Link("../../../../kernel/iommu_groups/7")}
    build(tmp_path, files | {"sys/kernel/iommu_groups/7/type": "DMA-FQ"})
    found = _by_bdf(_machine(tmp_path))
    assert (found["0000:13:00.0"].iommu_group, found["0000:13:00.0"].iommu_type) == ("7", "DMA-FQ")
    assert isinstance(found["0000:14:00.0"].iommu_group, Gap)  # an IOMMU is active, so no group is a riddle


SWITCH = ("r", "u", "d")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (("r",), ("r",), "PIX"),  # two functions behind one port
        (("r", "u", "d1"), ("r", "u", "d2"), "PIX"),
        (("r", "u", "d1"), ("r", "u", "d1"), "PIX"),
        (("r", "u", "d1", "v", "e1"), ("r", "u", "d2"), "PXB"),
        (("r", "u", "d1", "v", "e1"), ("r", "u", "d1", "v", "e2"), "PIX"),
        (("r", "u", "d1", "v", "e1"), ("r", "u", "d2", "w", "f1"), "PXB"),
        (("r1",), ("r2",), "PHB"),
        ((), (), "PHB"),
    ],
)
def test_switches_between_two_devices_are_counted(a: tuple[str, ...], b: tuple[str, ...], expected: str) -> None:
    one, other = device("0000:20:00.0", parents=a), device("0000:21:00.0", parents=b)
    assert level(one, other, 1) == level(other, one, 1) == expected


def test_other_host_bridges_are_node_or_sys_by_numa_node() -> None:
    one, other = device("a"), device("b", host_bridge="pci0000:80")
    assert level(one, other, 2) == "NODE"
    assert level(one, device("b", host_bridge="pci0000:80", numa_node=1), 2) == "SYS"


def test_an_unknown_numa_node_is_a_gap_unless_there_is_only_one() -> None:
    one, other = device("a"), device("b", host_bridge="pci0000:80", numa_node=Gap("-1"))
    assert level(one, other, 1) == "NODE"
    with pytest.raises(UnreadableFact):
        level(one, other, 2)


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_a_distance_is_the_same_both_ways(a: list[str], b: list[str]) -> None:
    one, other = device("x", PciKind.GPU, tuple(a)), device("y", PciKind.NIC, tuple(b))
    assert level(one, other, 1) == level(other, one, 1)


def test_the_place_of_a_device_behind_a_virtual_root_counts_from_that_root() -> None:
    link = "../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0"
    assert parse_place(link).host_bridge == "pci10000:e0"
    assert parse_place(link).parents == ("10000:e0:06.0",)


@given(st.integers(0, 0x7F))
def test_every_control_word_is_read_bit_by_bit(word: int) -> None:
    assert parse_acs(_config(_acs(word))) == tuple(n for bit, n in enumerate(CONTROLS) if word >> bit & 1)


def test_a_device_without_acs_has_no_controls_and_one_whose_space_ends_early_is_unknown() -> None:
    assert parse_acs(_config((0x0003, bytes(8)))) == ()
    with pytest.raises(UnreadableFact, match="without root only 64 bytes"):
        parse_acs(_config(_acs(0x5D))[:64])


@given(st.binary(min_size=65, max_size=5000))
def test_any_config_space_is_read_to_an_end(config: bytes) -> None:
    assert set(parse_acs(config)) <= set(CONTROLS)
    assert len(without_serial(config)) == len(config)


def test_the_serial_number_of_a_card_is_taken_out_and_nothing_else() -> None:
    config = _config((0x0003, bytes(range(1, 9))), _acs(0x5D))
    bare = without_serial(config)
    assert bytes(range(1, 9)) in config
    assert bytes(range(1, 9)) not in bare
    assert parse_acs(bare) == parse_acs(config)


@pytest.mark.parametrize(("text", "speed"), [("16.0 GT/s PCIe", 16.0), ("8 GT/s", 8.0), ("2.5 GT/s PCIe", 2.5)])
def test_a_link_speed_is_read(text: str, speed: float) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["Unknown", "Unknown speed", "", "16.0"])
def test_an_unknown_speed_is_a_gap(text: str) -> None:
    with pytest.raises(UnreadableFact):
        parse_speed(text)


@pytest.mark.parametrize("text", ["0", "255", "63", "-1"])
def test_a_width_that_is_none_is_a_gap(text: str) -> None:
    with pytest.raises(UnreadableFact):
        parse_width(text)


@pytest.mark.parametrize("lanes", [1, 16, 32])
def test_a_width_from_one_lane_to_thirty_two_is_read(lanes: int) -> None:
    assert parse_width(str(lanes)) == lanes
