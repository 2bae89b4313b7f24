"""How the lines look that NCCL (2.4 to 2.30) prints at INFO: which process, which step of its start, which path.

Every pattern is linear (no look-around, bounded repetition), so that `explain` can search gigabytes with them.
"""

from __future__ import annotations

import re
from enum import IntEnum

# `host:pid:tid [dev] NCCL INFO ...`; some launchers put the process's host there, some containers a bare number.
PROCESS = re.compile(r"([A-Za-z0-9][\w.-]{0,63}):(\d{1,8}):\d{1,8}[ :]")

VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,4})?)(?:\+cuda([\d.]{1,8}))?")
BOOTSTRAP = re.compile(r"Bootstrap ?: Using (?:\[0\])?([^\s:]{1,32}):([^\s<]{1,64})")
NETWORK = re.compile(r"Using network (\S[\w /.+-]{0,40}?)\s*$")
SOCKETS = re.compile(r"NET/Socket ?: Using (?=\[)(.{1,2000})")
INTERFACE = re.compile(r"\[\d{1,3}\]([^\s:\[\]]{1,32}):")
CARDS = re.compile(r"NET/IB ?: Using (?=\[)(.{1,4000})")
CARD = re.compile(r"\[\d{1,3}\]([\w+-]{1,64}):(\d{1,3})/(IB|RoCE|SHARP|\w{1,12})")
OUT_OF_BAND = re.compile(r"OOB ([^\s:]{1,32}):")
NO_IB = re.compile(r"NET/IB ?: No device found")

_P2P = r"P2P/(?:CUMEM|MNNVL|IPC|direct pointer|indirect/\d{1,7}(?:\[[0-9a-f]{1,16}\])?)(?:/read)?(?:/CE)?"
_SHM = r"SHM/(?:direct|CE)(?:/(?:direct|CE))?|SHM\b|direct shared memory"
# `(3)` names the rank on whose card the data leave (PXN), `(PCI)` that GPUDirect goes by PCIe on a machine with C2C.
_DEVICE = r"[A-Za-z][\w .+-]{0,40}?/\d{1,4}(?:\(\d{1,7}\))?(?:/GDRDMA)?(?:\(PCI\))?(?:/Shared)?"
# 2.4: `Ring 00 : 0[1] -> 1[3] via P2P/IPC`; later `Channel 00/0 : 0[1b000] -> 1[1c000] [send] via NET/IB/0/GDRDMA`
PATH = re.compile(
    r"(?:Channel|Ring|Tree) \d{1,4}(?:/\d{1,4})? ?: "
    r"(\d{1,7})(?:\[[0-9a-f]{1,16}\])? -> (\d{1,7})(?:\[[0-9a-f]{1,16}\])?"
    rf"(?: \[(?:send|receive)\])? via ({_P2P}|{_SHM}|NET/{_DEVICE}|[A-Z][A-Z0-9]{{1,15}}/\w{{1,32}})"
)
# CollNet has no peer: a rank hands its data to the switch. `Coll 00 : 3 [send] via` up to 2.4, `CollNet 00/0 :` later.
COLLNET = re.compile(
    rf"Coll(?:Net)? \d{{1,4}}(?:/\d{{1,4}})? : (\d{{1,7}}) \[(?:send|receive)\] via (COLLNET/{_DEVICE})"
)

NVLS = re.compile(r"NVLS multicast support is (not )?available")
NVLS_TREE = re.compile(r"Connected NVLS tree")
P2P_OFF = re.compile(r"P2P is disabled between (?:NVLINK )?connected GPUs (\d{1,4}) and (\d{1,4})")
ALGORITHM = re.compile(r"(?:([A-Z][A-Za-z]{3,20}): )?(\d{1,20}) Bytes -> Algo ([A-Z0-9_]{1,20}) proto ([A-Z0-9]{1,10})")
READY = re.compile(r"n[Rr]anks (\d{1,7}).{0,200}Init COMPLETE")


class Step(IntEnum):
    """How far a process got in NCCL's start-up, in NCCL's order."""

    BOOTSTRAP = 0
    NETWORK = 1
    BEGAN = 2
    TOPOLOGY = 3
    CHANNELS = 4
    CONNECTED = 5
    COMPLETE = 6
    COLLECTIVE = 7


# As text, since a search for all of them at once is compiled elsewhere.
STEP_WORDS: dict[Step, str] = {
    Step.BOOTSTRAP: r"Bootstrap ?: Using",
    Step.NETWORK: r"Using network |NET/(?:IB|Socket) ?: Using \[",
    Step.BEGAN: r"Init START",
    Step.TOPOLOGY: r"Setting affinity for GPU|NVLS multicast support",
    Step.CHANNELS: r"Channel \d{1,3}(?:/\d{1,3})? :|via (?:P2P|SHM|NET|direct|COLLNET)[/ ]",
    Step.CONNECTED: r"Connected all (?:rings|trees)",
    Step.COMPLETE: r"Init COMPLETE",
    Step.COLLECTIVE: r"NCCL INFO [A-Z][A-Za-z]{3,16}: opCount \d",
}
_STEPS = tuple((step, re.compile(words)) for step, words in STEP_WORDS.items())


def steps(line: str) -> tuple[Step, ...]:
    """Return the steps that a line tells of; launchers glue lines together, so there may be several."""
    return tuple(step for step, pattern in _STEPS if pattern.search(line))


def process(line: str) -> str:
    """Return who printed a line, as `host:pid`; "" where it has no such prefix."""
    match = PROCESS.search(line)
    return f"{match[1]}:{match[2]}" if match else ""
