"""The meaning of each Xid error number, and the immediate action that NVIDIA's Xid catalog gives.

If the driver itself asks for an action, such as a reset, this action takes precedence over the catalog.
"""
# CATALOG is https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (Ampere and newer, as of September
# 2026). `where` holds the GPU columns of the catalog, and `recovery` holds the column "Xid 154 linkage". Separate
# checks read the driver's requests from NVML. An Xid means the same in all drivers. Only `recovery` depends on the
# branch of the driver. The mapping of NVIDIA/NVSentinel (xiderrorsmapping.csv at 6f8b0fc) is older, and differs for 160
# and 162.

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.model.word import Word

# As the driver writes it to the kernel log: the GPU's address on the bus, and the number.
# Of a MIG instance it adds the instance's numbers.
XID_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:]{7,20})(?: GPU-I:\d{1,3})?(?: GPU-CI:\d{1,3})?\): ([0-9]{1,4})\b")

# The catalog ends at 163. The names are the driver's own: nverror.h of open-gpu-kernel-modules 595.45.04.
DRIVER = "nverror.h, open-gpu-kernel-modules 595.45.04: the driver's name of the error; the catalog has no action yet"
CATALOG = "Xid catalog, NVIDIA"
RETIREMENT = "Xid catalog, NVIDIA; nvmlDeviceGetRemappedRows: a pending remapping won't affect future work"


class XidMeaning(Word):
    """What the number of an Xid says about the hardware."""

    HARDWARE = "hardware"  # the GPU, its links or its firmware need a reset, a repair or a reboot
    REMAPPING = "remapping"  # NVML's state of row remapping decides
    APPLICATION = "application"  # the program was at fault, or was ended
    RECOVERY = "recovery"  # its subcode decides how bad it is; NVML gives the driver's recovery action
    REPORT = "report"  # NVIDIA's only action is a report to NVIDIA


@dataclass(frozen=True, slots=True)
class XidRow:
    """A group of Xids with the same meaning."""

    numbers: frozenset[int]
    meaning: XidMeaning
    words: str
    source: str = CATALOG
    where: str = ""  # only on these GPUs
    recovery: str = ""  # the first branch whose driver requests an action, through NVML and Xid 154


def _row(
    meaning: XidMeaning, words: str, *numbers: int, source: str = CATALOG, where: str = "", recovery: str = ""
) -> XidRow:  # fmt: skip
    return XidRow(frozenset(numbers), meaning, words, source, where, recovery)


HARDWARE, APPLICATION = XidMeaning.HARDWARE, XidMeaning.APPLICATION
KILLED = 45
R565, HOPPER, NVLINK_5 = "R565", "H100 and newer", "B100, GB200: NVLink 5"
ROWS = (
    _row(HARDWARE, "an uncorrectable memory error", 48, recovery=R565),
    _row(HARDWARE, "auxiliary power is not connected to the board", 54, where="A100, H100, B100"),
    _row(HARDWARE, "the GPU stopped processing", 46),
    _row(HARDWARE, "an internal controller halted", 62, recovery=R565),
    _row(HARDWARE, "a context switch timed out", 109, recovery="R570"),
    _row(HARDWARE, "a security fault; failing hardware may cause it", 110, where=HOPPER, recovery=R565),
    _row(HARDWARE, "a fatal timeout", 158, recovery="every branch that has it"),
    _row(HARDWARE, "an NVLink error", 74, where="A100, H100: NVLink 4 and before", recovery=R565),
    _row(HARDWARE, "an NVLink could not be trained", 136, where="H100", recovery=R565),
    _row(HARDWARE, "an NVLink was taken down", 155, where=NVLINK_5, recovery=R565),
    _row(XidMeaning.RECOVERY, "an NVLink error; the driver's recovery action shows how serious it is", *range(144, 151),
         where=NVLINK_5, recovery=R565),
    _row(HARDWARE, "the GPU has fallen off the bus", 79, recovery=R565),
    _row(HARDWARE, "an uncorrectable memory error that was not contained", 95, recovery=R565),
    _row(HARDWARE, "an uncorrectable memory error, and no spare row was left to replace the bad one", 140),
    _row(HARDWARE, "the GPU's system processor (GSP) does not answer", 119),
    _row(HARDWARE, "the GPU's system processor (GSP) failed", 120, recovery=R565),
    _row(HARDWARE, "the GPU could not be initialised", 143, where=HOPPER, recovery="R575"),
    _row(HARDWARE, "the GPU retired a resource", 156, where=HOPPER, recovery=R565),
    _row(HARDWARE, "a fatal timeout on PCIe", 167, source=DRIVER),
    _row(HARDWARE, "the GPU goes on with less memory", 168, source=DRIVER),
    _row(HARDWARE, "an uncorrectable memory error", 171, 175, source=DRIVER),
    _row(HARDWARE, "an uncorrectable error in on-chip memory", 172, source=DRIVER),
    _row(HARDWARE, "a fatal error of the link between CPU and GPU (C2C)", 173, source=DRIVER),
    _row(APPLICATION, "a process was ended when its channel was reset, or PCIe corrected an error", 174, 176,
         source=DRIVER),
    _row(XidMeaning.REMAPPING, "a memory row or page was, or could not be, replaced", 63, 64, source=RETIREMENT),
    _row(APPLICATION, "a process was ended while it used the GPU", KILLED),
    _row(APPLICATION, "a memory error that was contained to one program", 94, where="Ampere and newer"),
    _row(APPLICATION, "a fault of the program: address, instruction or data", 8, 11, 13, 25, 31, 32, 60, 68, 69, 80),
    _row(APPLICATION, "a copy engine's fault of the program", *range(39, 42), *range(70, 73), *range(75, 78), 85,
         *range(126, 136)),
    _row(APPLICATION, "a decoder's fault of the program", *range(82, 85), 86, 88, 89, *range(96, 106), 139),
    _row(APPLICATION, "no action is needed", 14, 37, 38, 43, 44, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153,
         157, 160, 161, 162, 163),
    _row(APPLICATION, "the driver's recovery action changed: NVML tells what it is", 154),
)  # fmt: skip
UNLISTED = XidRow(frozenset(), XidMeaning.REPORT, "no action is known except a report to NVIDIA")


def row_of(number: int) -> XidRow:
    """Return the row for an Xid number, or UNLISTED if the Xid is in no row."""
    return next((row for row in ROWS if number in row.numbers), UNLISTED)


def numbers_of(*meanings: XidMeaning, about: str = "") -> tuple[int, ...]:
    """Return the numbers of the Xids whose meaning is in `meanings` and whose text contains `about`."""
    return tuple(sorted(n for row in ROWS if row.meaning in meanings and about in row.words for n in row.numbers))
