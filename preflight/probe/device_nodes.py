"""Read which NVIDIA device files there are to open, and the version of the kernel module behind them."""

from __future__ import annotations

import re

from preflight.errors import UnreadableFact
from preflight.model.facts import DeviceNodes
from preflight.probe.reading import first_of, gap_or
from preflight.system.machine import Machine

MODULE = "sys/module/nvidia/version"
PROC = "proc/driver/nvidia/version"


def probe_device_nodes(machine: Machine) -> DeviceNodes:
    """Return the names below /dev that start with nvidia, and the loaded module's version."""
    if not machine.exists("dev"):
        raise UnreadableFact("/dev: not there")
    return DeviceNodes(
        nvidia=tuple(name for name in machine.names("dev") if name.startswith("nvidia")),
        kernel_module=gap_or(
            lambda: first_of(lambda: machine.text(MODULE), lambda: parse_module_version(machine.text(PROC)))
        ),
    )


def parse_module_version(text: str) -> str:
    """Return the version in /proc/driver/nvidia/version, of the open and of the proprietary module."""
    match = re.search(r"^NVRM version:.*?Kernel Module.*?\s([0-9]+(?:\.[0-9]+)+)(?:\s|$)", text, re.MULTILINE)
    if match is None:
        raise UnreadableFact(f"/{PROC}: it names no version")
    return match.group(1)
