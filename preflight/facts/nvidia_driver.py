"""Read the NVIDIA device files, the version of the NVIDIA kernel module, and GPU errors in the kernel log."""

from __future__ import annotations

import re

from preflight.errors import UnreadableFact
from preflight.facts.reading import first_of, gap_or, need
from preflight.model.facts import DeviceNodes
from preflight.model.xids import XID_LINE
from preflight.system.machine import Machine

MODULE = "sys/module/nvidia/version"
PROC = "proc/driver/nvidia/version"


def probe_device_nodes(machine: Machine) -> DeviceNodes:
    """Return the names in /dev that start with `nvidia`, and the version of the loaded nvidia module."""
    need(machine, "dev")
    return DeviceNodes(
        nvidia=tuple(name for name in machine.names("dev") if name.startswith("nvidia")),
        kernel_module=gap_or(
            lambda: first_of(lambda: machine.text(MODULE), lambda: parse_module_version(machine.text(PROC)))
        ),
    )


def parse_module_version(text: str) -> str:
    """Return the version of the NVIDIA kernel module, from the text of /proc/driver/nvidia/version.

    The module may be open or proprietary. Raise UnreadableFact if the text has no version.
    """
    match = re.search(r"^NVRM version:.*?Kernel Module.*?\s([0-9]+(?:\.[0-9]+)+)(?:\s|$)", text, re.MULTILINE)
    if match is None:
        raise UnreadableFact(f"/{PROC}: it names no version")
    return match.group(1)


MOST_LINES = 100


def probe_xid_lines(machine: Machine) -> tuple[str, ...]:
    """Return the newest kernel log lines with "NVRM: Xid", in order from the oldest to the newest.

    Return () if the nvidia module is not loaded.
    """
    modules = machine.names("sys/module")
    if modules and "nvidia" not in modules:
        return ()
    return parse_kernel_log(machine.ask("kernel_log"))


def parse_kernel_log(lines: list[str]) -> tuple[str, ...]:
    """Return the newest lines that report an Xid, at most MOST_LINES lines, the oldest line first."""
    return tuple(line for line in lines if XID_LINE.search(line))[-MOST_LINES:]
