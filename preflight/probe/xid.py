"""Read what the NVIDIA driver wrote to the kernel log about failing GPUs."""

from __future__ import annotations

import re

from preflight.system.machine import Machine

MOST_LINES = 100
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:]{7,20})\): ([0-9]{1,4})\b")


def probe_xid_lines(machine: Machine) -> tuple[str, ...]:
    """Return the newest "NVRM: Xid" lines, oldest first; none where the nvidia module is not loaded."""
    modules = machine.names("sys/module")
    if modules and "nvidia" not in modules:
        return ()
    return parse_kernel_log(machine.ask("kernel_log"))


def parse_kernel_log(lines: list[str]) -> tuple[str, ...]:
    """Return the lines that report an Xid."""
    return tuple(line for line in lines if XID.search(line))[-MOST_LINES:]
