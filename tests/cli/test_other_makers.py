"""A node whose GPUs are not NVIDIA's is never ready after a test of its CPUs, unless that was asked for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import Command
from tests.sysroot import build

pytestmark = pytest.mark.heavy(6)

BUS = "sys/bus/pci/devices"
FINDING = "gpu-of-another-maker"
SLOTS = ("05", "15", "65", "75", "85", "95", "e5", "f5")
MI300X: dict[str, str | bytes] = {
    f"{BUS}/0000:{slot}:00.0/{name}": value
    for slot in SLOTS
    for name, value in {"vendor": "0x1002", "device": "0x74a1", "class": "0x120000", "numa_node": "0"}.items()
}
LAPTOP: dict[str, str | bytes] = {
    f"{BUS}/{bdf}/{name}": value
    for bdf, ids in {
        "0000:00:02.0": ("0x8086", "0xa780", "0x030000"),  # Intel graphics
        "0000:00:0b.0": ("0x8086", "0x7d1d", "0x120000"),  # Intel NPU
        "0000:03:00.0": ("0x1002", "0x6660", "0x038000"),  # a laptop's AMD GPU
        "0000:04:00.0": ("0x1a03", "0x2000", "0x030000"),  # a server's console
    }.items()
    for name, value in zip(("vendor", "device", "class"), ids, strict=True)
}
EMPTY: dict[str, str | bytes] = {"dev/": "", "proc/1/cgroup": "0::/"}


def sysroot(tmp_path: Path, files: dict[str, str | bytes]) -> list[str]:
    build(tmp_path / "tree", {**EMPTY, **files})
    return ["--sysroot", str(tmp_path / "tree"), "--json", "-"]


@pytest.mark.parametrize("asked", [[], ["--accept"], ["--backend", "nccl"], ["--gpus", "0"], ["--nproc", "2"]], ids=str)
def test_eight_mi300x_are_unknown_whatever_but_gloo_was_asked_for(command: Command, asked: list[str]) -> None:
    ran = command.run("check", *asked, *sysroot(command.tmp_path, MI300X))
    assert ran.code == 3, ran.stderr
    assert ran.document["verdict"] == "unknown"
    assert [each["check"] for each in ran.document["findings"] if each["severity"] == "fail"] == [FINDING]
    assert "8 AMD GPUs" in ran.document["headline"]
    assert ran.document["trials"] == []
    assert not (command.cwd / "preflight.env").exists()


def test_gloo_that_was_asked_for_is_ready_and_says_that_the_gpus_stay_untested(command: Command) -> None:
    ran = command.run("check", "--backend", "gloo", *sysroot(command.tmp_path, MI300X))
    assert (ran.code, ran.document["verdict"]) == (0, "ready"), ran.stderr
    assert {each["check"]: each["severity"] for each in ran.document["findings"]}[FINDING] == "info"


def test_probe_is_inconclusive_and_names_the_makers_tools(command: Command) -> None:
    build(command.tmp_path / "tree", {**EMPTY, **MI300X})
    ran = command.run("probe", "--sysroot", str(command.tmp_path / "tree"))
    assert ran.code == 3
    assert FINDING in ran.stdout and "rccl-tests" in ran.stdout


def test_a_laptop_and_a_servers_console_stay_ready(command: Command) -> None:
    ran = command.run("check", *sysroot(command.tmp_path, LAPTOP))
    assert (ran.code, ran.document["verdict"]) == (0, "ready"), ran.stderr
    assert FINDING not in [each["check"] for each in ran.document["findings"]]


def test_this_machine_with_eight_mi300x_on_its_bus_is_unknown(
    command: Command, need: Callable[[str, bool, str], None]
) -> None:
    build(command.tmp_path / "tree", MI300X)
    devices = command.tmp_path / "tree" / BUS
    prefix = ("unshare", "--mount", "sh", "-c", f'mount --bind {devices} /{BUS} && exec "$@"', "sh")
    can_mount = subprocess.run([*prefix, "true"], env=command.environ(), capture_output=True, check=False)
    need("mounts", can_mount.returncode == 0, "mounting needs root")
    ran = command.run("check", prefix=prefix)
    assert ran.code == 3, ran.stderr
    assert ran.stdout.startswith("UNKNOWN  the node has 8 AMD GPUs")
    assert command.run("check", "--accept", prefix=prefix).stdout.startswith("NODE UNKNOWN")
