from __future__ import annotations

from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.facts.nvidia_driver import parse_module_version, probe_device_nodes
from preflight.facts.pci_bus import probe_nvidia_pci
from preflight.facts.system import probe_numa_nodes
from preflight.model.facts import DeviceNodes, Gap, NumaNode, NvidiaPciDevice
from preflight.system.machine import Tree
from tests.sysroot import Link, build

PCI = "sys/bus/pci/devices"
NODE = "sys/devices/system/node"


def _pci(bdf: str, vendor: str, pci_class: str, **more: str | Link) -> dict[str, str | bytes | Link]:
    files: dict[str, str | Link] = {"vendor": vendor, "class": pci_class, "device": "0x2330", "numa_node": "1", **more}
    return {f"{PCI}/{bdf}/{name}": content for name, content in files.items()}


def test_only_display_controllers_of_nvidia_are_gpus(tmp_path: Path) -> None:
    files = (
        _pci("0000:1b:00.0", "0x10de", "0x030200", driver=Link("../../../bus/pci/drivers/nvidia"))
        | _pci("0000:1c:00.0", "0x10de", "0x068000")
        | _pci("0000:1d:00.0", "0x1002", "0x030000")
    )
    expected = NvidiaPciDevice(bdf="0000:1b:00.0", device_id="0x2330", driver="nvidia", numa_node=1)
    assert probe_nvidia_pci(build(tmp_path, files)) == (expected,)


def test_a_gpu_without_driver_and_node_is_still_a_gpu(tmp_path: Path) -> None:
    (device,) = probe_nvidia_pci(build(tmp_path, _pci("0000:1b:00.0", "0x10de", "0x030000", numa_node="-1")))
    assert device.driver == Gap("no kernel driver is bound to it")
    assert isinstance(device.numa_node, Gap)


def test_a_device_that_was_unplugged_after_the_listing_is_left_out(tmp_path: Path) -> None:
    assert probe_nvidia_pci(build(tmp_path, {f"{PCI}/0000:01:00.0": Link("../../../devices/gone")})) == ()


def test_a_machine_whose_sys_is_not_mounted_is_not_one_without_gpus(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFact):
        probe_nvidia_pci(Tree(tmp_path))


def test_device_files_and_the_modules_version_are_read(tmp_path: Path) -> None:
    machine = build(
        tmp_path, {"dev/nvidia0": "", "dev/nvidiactl": "", "dev/null": "", "sys/module/nvidia/version": "1.2"}
    )
    assert probe_device_nodes(machine) == DeviceNodes(nvidia=("nvidia0", "nvidiactl"), kernel_module="1.2")


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", "580.65.06"),
    ],
)
def test_both_kinds_of_kernel_module_give_their_version(line: str, version: str) -> None:
    assert parse_module_version(f"{line}\nGCC version: gcc 12.3.0") == version


def test_a_machine_without_the_module_gives_a_gap_that_names_both_places(tmp_path: Path) -> None:
    module = probe_device_nodes(build(tmp_path, {"dev/null": ""})).kernel_module
    assert isinstance(module, Gap)
    assert "/sys/module/nvidia/version" in module.reason
    assert "/proc/driver/nvidia/version" in module.reason


def test_numa_nodes_come_in_the_order_of_their_ids(tmp_path: Path) -> None:
    files = {f"{NODE}/node{node}/cpulist": f"{node}" for node in (0, 2, 10)}
    assert [node.id for node in probe_numa_nodes(build(tmp_path, files))] == [0, 2, 10]


def test_a_numa_node_has_its_cpus_memory_and_distances(tmp_path: Path) -> None:
    files = {"cpulist": "0-1,4", "meminfo": "Node 0 MemTotal:  1000 kB", "distance": "10 21"}
    machine = build(tmp_path, {f"{NODE}/node0/{name}": text for name, text in files.items()})
    assert probe_numa_nodes(machine) == (NumaNode(id=0, cpus=(0, 1, 4), memory_bytes=1024000, distances=(10, 21)),)


def test_a_node_of_memory_only_has_no_cpus_and_keeps_its_gaps(tmp_path: Path) -> None:
    (node,) = probe_numa_nodes(build(tmp_path, {f"{NODE}/node0/cpulist": ""}))
    assert node.cpus == ()
    assert isinstance(node.memory_bytes, Gap)
    assert isinstance(node.distances, Gap)


def test_a_kernel_without_numa_has_no_nodes(tmp_path: Path) -> None:
    assert probe_numa_nodes(build(tmp_path, {"sys/devices/system/cpu/online": "0"})) == ()
