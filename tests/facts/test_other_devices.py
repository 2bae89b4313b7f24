"""What computes is told from what only shows a picture, compresses or drives a laptop's camera."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.facts.capture import capture_document, open_capture
from preflight.facts.other_devices import probe_other_devices
from preflight.facts.process import parse_other_build
from preflight.facts.run import Capture, probe_node
from preflight.model.facts import NodeFacts, OtherDevice, known
from tests.sysroot import build

BUS = "sys/bus/pci/devices"


def on_bus(vendor: str, device: str, pci_class: str, bdf: str = "0000:05:00.0") -> dict[str, str | bytes]:
    return {
        f"{BUS}/{bdf}/vendor": f"0x{vendor}",
        f"{BUS}/{bdf}/device": f"0x{device}",
        f"{BUS}/{bdf}/class": f"0x{pci_class}",
        "dev/": "",
    }


@pytest.mark.parametrize(
    ("vendor", "device", "pci_class", "what"),
    [
        ("1002", "74a1", "120000", "AMD GPU"),  # MI300X
        ("1002", "740f", "038000", "AMD GPU"),  # MI210
        ("8086", "0bd5", "038000", "Intel GPU"),  # Data Center GPU Max 1550
        ("8086", "56c0", "038000", "Intel GPU"),  # Data Center GPU Flex 170
        ("19e5", "d802", "120000", "Ascend NPU"),
        ("1da3", "1020", "120000", "Gaudi accelerator"),  # Gaudi 2
        ("1ae0", "0063", "ff0000", "TPU"),  # v5e
    ],
)
def test_what_is_made_for_computing_is_known_by_its_maker(
    tmp_path: Path, vendor: str, device: str, pci_class: str, what: str
) -> None:
    machine = build(tmp_path, on_bus(vendor, device, pci_class))
    assert probe_other_devices(machine) == (OtherDevice(what, "0000:05:00.0", f"{vendor}:{device}", True),)


@pytest.mark.parametrize(
    ("vendor", "device", "pci_class"),
    [
        pytest.param("1002", "1638", "030000", id="AMD APU"),
        pytest.param("1002", "6660", "038000", id="AMD laptop GPU beside another"),
        pytest.param("8086", "a780", "030000", id="Intel graphics"),
        pytest.param("8086", "3e92", "038000", id="Intel graphics without a screen"),
        pytest.param("8086", "7d1d", "120000", id="Intel NPU of a laptop"),
        pytest.param("8086", "0b30", "120000", id="Intel FPGA"),
        pytest.param("1a03", "2000", "030000", id="ASPEED console"),
        pytest.param("102b", "0536", "030000", id="Matrox console"),
        pytest.param("19e5", "1711", "030000", id="Huawei console"),
        pytest.param("19e5", "a250", "120000", id="Kunpeng ZIP engine"),
        pytest.param("1ae0", "0042", "020000", id="Google network card"),
        pytest.param("1022", "1502", "118000", id="AMD NPU of a laptop"),
    ],
)
def test_what_laptops_and_stock_servers_have_does_not_count(
    tmp_path: Path, vendor: str, device: str, pci_class: str
) -> None:
    machine = build(tmp_path, on_bus(vendor, device, pci_class))
    assert not any(each.computes for each in probe_other_devices(machine))


def test_a_device_file_shows_an_accelerator_and_what_every_laptop_has_shows_none(tmp_path: Path) -> None:
    names = ("davinci0", "davinci_manager", "hl0", "hl_controlD0", "accel0", "accel/accel0", "kfd", "dri/renderD128")
    machine = build(tmp_path, {"sys/bus/": "", **{f"dev/{name}": "" for name in names}})
    found = [(each.what, each.where) for each in probe_other_devices(machine)]
    assert found == [("TPU", "/dev/accel0"), ("Ascend NPU", "/dev/davinci0"), ("Gaudi accelerator", "/dev/hl0")]


@pytest.mark.parametrize(
    ("text", "build_of"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.2.41134'\n", "ROCm 6.2.41134"),
        ("cuda = None\nhip: Optional[str] = None\nxpu: Optional[str] = '20250101'\n", "XPU 20250101"),
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\nxpu: Optional[str] = None\n", ""),
        ("cuda = '11.8'\n", ""),
    ],
    ids=["ROCm", "XPU", "CUDA", "older"],
)
def test_torch_tells_whose_gpus_it_is_built_for(text: str, build_of: str) -> None:
    assert parse_other_build(text) == build_of


def test_a_capture_of_such_a_machine_shows_it_again_and_an_older_one_has_a_gap(tmp_path: Path) -> None:
    reads = Capture()
    probe_node(build(tmp_path, on_bus("1002", "74a1", "120000")), capture=reads)
    document = capture_document(reads)
    assert [each.where for each in known(reopened(document).other_devices)] == ["0000:05:00.0"]

    older = json.loads(document)
    for kind in ("class", "device"):  # an earlier preflight read these of NVIDIA's devices only
        del older["reads"]["text"][f"{BUS}/0000:05:00.0/{kind}"]
    assert "not recorded" in str(reopened(json.dumps(older)).other_devices)


def reopened(document: str) -> NodeFacts:
    machine, silent = open_capture(document)
    return probe_node(machine, silent=silent)[0]
