"""What an Xid in the driver's log says of the GPU: NVIDIA's own immediate action for each, by the Xid catalog.

CATALOG is https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (Ampere and newer) and its mapping in
NVIDIA/NVSentinel, xiderrorsmapping.csv at 6f8b0fc, from which the actions are. What the driver itself asks for comes
before any row: its recovery action and the state of row remapping are read from NVML by checks of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CATALOG = "Xid catalog, NVIDIA"
RETIREMENT = "Xid catalog, NVIDIA; nvmlDeviceGetRemappedRows: a pending remapping won't affect future work"


class XidMeaning(Enum):
    """How much an Xid that came up counts by itself."""

    HARDWARE = "hardware"  # the GPU, its links or its firmware need a reset, a repair or a reboot
    REMAPPING = "remapping"  # the state of row remapping tells, as NVML has it
    APPLICATION = "application"  # the program was at fault, or was ended
    REPORT = "report"  # NVIDIA names no action but to tell them


@dataclass(frozen=True, slots=True)
class XidRow:
    """Some Xids of one meaning."""

    numbers: frozenset[int]
    meaning: XidMeaning
    words: str
    source: str = CATALOG
    where: str = ""  # only on these GPUs or drivers


def _row(meaning: XidMeaning, words: str, *numbers: int, source: str = CATALOG, where: str = "") -> XidRow:
    return XidRow(frozenset(numbers), meaning, words, source, where)


HARDWARE, APPLICATION = XidMeaning.HARDWARE, XidMeaning.APPLICATION
KILLED = 45
ROWS = (
    _row(HARDWARE, "an uncorrectable memory error", 48),
    _row(HARDWARE, "the GPU stopped processing, or its controllers halted", 46, 62, 109, 110, 158),
    _row(HARDWARE, "an NVLink error", 74, where="NVLink 4 and before"),
    _row(HARDWARE, "an NVLink error", 136, 144, 145, 146, 147, 148, 149, 150, 155, where="NVLink 5"),
    _row(HARDWARE, "the GPU has fallen off the bus", 79),
    _row(HARDWARE, "an uncorrectable memory error that was not contained", 95, 140, where="Ampere and newer"),
    _row(HARDWARE, "the GPU's system processor (GSP) does not answer", 119, 120, where="drivers with GSP firmware"),
    _row(HARDWARE, "the GPU could not be initialised, or retired a resource", 143, 156, 160, 162, where="Blackwell"),
    _row(XidMeaning.REMAPPING, "a memory row or page was, or could not be, replaced", 63, 64, source=RETIREMENT),
    _row(APPLICATION, "a process was ended while it used the GPU", KILLED),
    _row(APPLICATION, "a memory error that was contained to the program that met it", 94, where="Ampere and newer"),
    _row(APPLICATION, "a fault of the program: address, instruction or data", 8, 11, 13, 25, 31, 32, 60, 68, 69, 80),
    _row(APPLICATION, "a copy engine's fault of the program", *range(39, 42), *range(70, 73), *range(75, 78), 85,
         *range(126, 136)),
    _row(APPLICATION, "a decoder's fault of the program", *range(82, 85), 86, 88, 89, *range(96, 106), 139),
    _row(APPLICATION, "nothing to act on", 14, 37, 38, 43, 44, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157,
         161),
    _row(APPLICATION, "the driver's recovery action changed: NVML tells what it is", 154),
)  # fmt: skip
UNLISTED = XidRow(frozenset(), XidMeaning.REPORT, "no action is known for it but a report to NVIDIA")


def row_of(number: int) -> XidRow:
    """Return what an Xid means; one that no row has is worth a look and proves nothing."""
    return next((row for row in ROWS if number in row.numbers), UNLISTED)
