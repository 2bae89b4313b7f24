"""Read counters of the hardware and the kernel, such as memory errors, lost links, Xids and network bytes.

Only the increase of a counter during a run is judged.
"""
# Kernel counters include kills for lack of memory, refusals to start a process, and reports of faulty memory. The
# absolute value of a counter means little. The increase is judged in model/counters.py.

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from functools import partial

from preflight.errors import UnreadableFact
from preflight.facts.cgroup import read_oom_kills, read_pids_refusals
from preflight.facts.nvidia_driver import probe_xid_lines
from preflight.facts.nvml import probe_nvml
from preflight.facts.pci_bus import DEVICES, probe_pci
from preflight.facts.rdma import probe_hca_ports
from preflight.facts.reading import gap_or, read_whole
from preflight.model.codec import decode_value, encode_value
from preflight.model.counters import (
    KERNEL_LOG,
    NOT_KEPT,
    OF_PROCESS,
    ON_BUS,
    XID,
    XIDS,
    Counter,
    CounterKind,
    Counts,
    OutsideKind,
)
from preflight.model.facts import Gap, Gpu
from preflight.model.gpu import RecoveryAction
from preflight.model.hca import LINK_ERRORS
from preflight.model.xids import KILLED, XID_LINE
from preflight.system.isolate import run_isolated
from preflight.system.machine import Json, Machine
from preflight.system.nvml import WAKING

LIMIT_S = 5.0
NVML = "NVML"
NETIFS = "sys/class/net"
HCAS = "sys/class/infiniband"
FATAL, SURVIVED = CounterKind.FATAL, CounterKind.SURVIVED
REPAIRED, TRAFFIC = CounterKind.REPAIRED, CounterKind.TRAFFIC

# Of an RDMA port (Documentation/ABI/stable/sysfs-class-infiniband); the data counters count words of 4 bytes.
PORT_COUNTERS = dict.fromkeys(sorted(LINK_ERRORS), REPAIRED) | {
    "link_downed": FATAL,
    "port_xmit_data": TRAFFIC,
    "port_rcv_data": TRAFFIC,
}
WORDS = ("port_xmit_data", "port_rcv_data")
# Written by the kernel's AER driver (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).
AER_FILES = {
    "aer_dev_correctable": ("TOTAL_ERR_COR", REPAIRED),
    "aer_dev_nonfatal": ("TOTAL_ERR_NONFATAL", SURVIVED),  # an Unsupported Request is one
    "aer_dev_fatal": ("TOTAL_ERR_FATAL", FATAL),
}
PID = re.compile(r", pid='?(\d{1,10})\b", re.ASCII)  # `Xid (PCI:0000:1b:00): 45, pid=1234, name=python3, Ch 00000010`
AER_LINE = re.compile(r"(\w{1,40})\s+(\d{1,20})", re.ASCII)
# Linux, mm/memory-failure.c and arch/x86/kernel/cpu/mce: what it says when memory has gone bad.
MEMORY_FAILURE = re.compile(r"memory failure: 0x|hardware memory corruption|uncorrected hardware memory error", re.I)


def probe_counters(machine: Machine, limit_s: float = LIMIT_S, waking_s: float = WAKING.all_s) -> tuple[Counter, ...]:
    """Return all counters of the machine, with a reason (Gap) for a counter that could not be read.

    Call this function from a process with a single thread, because the function forks.
    """
    # The sources are read in parallel. `waking_s` is added to the time limit of NVML, because a driver may first have
    # to wake its GPUs.
    readers: dict[str, Callable[[Machine], tuple[Counter, ...]]] = {
        NVML: _gpus,
        "the network's counters": lambda machine: (*_ports(machine), *_netifs(machine)),
        "the PCI bus": _aer,
        KERNEL_LOG: _xids,
    }
    asked = {name: partial(_outcome, reader, machine) for name, reader in readers.items()}
    limits_s = dict.fromkeys(asked, limit_s) | {NVML: limit_s + waking_s}
    answers = run_isolated(asked, limits_s)
    found: list[Counter] = []
    for name, answer in answers.items():
        why = Gap(answer.failure.removeprefix("UnreadableFact: "))
        unread = (Counter(name, "all", FATAL, why, name),)
        found += unread if answer.failure else decode_value(tuple[Counter, ...], answer.value)
    return tuple(found)


def _outcome(reader: Callable[[Machine], tuple[Counter, ...]], machine: Machine) -> Json:
    return encode_value(reader(machine))


def _gpus(machine: Machine) -> tuple[Counter, ...]:
    return tuple(counter for gpu in probe_nvml(machine).gpus for counter in gpu_counters(gpu))


def gpu_counters(gpu: Gpu) -> Iterator[Counter]:
    """Yield the counters of one GPU from its NVML values.

    A counter that could not be read has a reason (Gap) as its value.
    """

    def counter(name: str, kind: CounterKind, value: int | Gap, source: str) -> Counter:
        return Counter(f"GPU {gpu.nvml_index}", name, kind, value, source, gpu.nvml_index)

    for name, kind, record, field, source in (
        ("ecc_corrected", REPAIRED, gpu.ecc, "volatile_corrected", "TotalEccErrors"),
        ("ecc_uncorrected", FATAL, gpu.ecc, "volatile_uncorrected", "TotalEccErrors"),
        ("rows_remapped_correctable", REPAIRED, gpu.row_remap, "correctable", "RemappedRows"),
        ("rows_remapped_uncorrectable", FATAL, gpu.row_remap, "uncorrectable", "RemappedRows"),
        ("row_remap_pending", SURVIVED, gpu.row_remap, "is_pending", "RemappedRows"),
        ("row_remap_failed", FATAL, gpu.row_remap, "has_failed", "RemappedRows"),
        ("pcie_replays", REPAIRED, gpu.pcie, "replays", "PcieReplayCounter"),
    ):
        value = record if isinstance(record, Gap) else getattr(record, field)
        yield counter(name, kind, value if isinstance(value, Gap) else int(value), f"nvmlDeviceGet{source}")
    action = gpu.recovery_action
    asked = action if isinstance(action, Gap) else int(action is not RecoveryAction.NONE)
    yield counter("recovery_asked_for", FATAL, asked, "NVML field 230")
    if isinstance(gpu.nvlinks, Gap):
        yield counter("nvlink_errors", REPAIRED, gpu.nvlinks, "nvmlDeviceGetNvLinkErrorCounter")
        return
    # A port into which nothing is plugged is inactive and counts nothing; one that goes down during the run failed.
    states = [link.is_active for link in gpu.nvlinks]
    unknown = next((state for state in states if isinstance(state, Gap)), None)
    if states:
        down = unknown if unknown is not None else states.count(False)
        yield counter("nvlinks_down", FATAL, down, "nvmlDeviceGetNvLinkState")
    for name in ("replay_errors", "recovery_errors", "crc_errors"):
        values = [getattr(link, name) for link in gpu.nvlinks if link.is_active is not False]
        gap = next((value for value in values if isinstance(value, Gap)), None)
        if values:
            kind = SURVIVED if name == "recovery_errors" else REPAIRED  # the link was trained anew
            total = gap if gap is not None else sum(values)
            yield counter(f"nvlink_{name}", kind, total, "nvmlDeviceGetNvLinkErrorCounter")


def _ports(machine: Machine) -> Iterator[Counter]:
    for port in probe_hca_ports(machine):
        subject = f"{port.hca}:{port.port}"
        source = f"/{HCAS}/{port.hca}/ports/{port.port}/counters"
        if isinstance(port.counters, Gap):
            has_none = not machine.exists(source[1:])  # EFA's ports count elsewhere
            why = Gap(f"{NOT_KEPT} counters of this port: {port.counters.reason}") if has_none else port.counters
            yield Counter(subject, "errors", REPAIRED, why, source)
            continue
        for each in port.counters:
            if each.name in PORT_COUNTERS:
                value = 4 * each.value if each.name in WORDS else each.value
                yield Counter(subject, each.name, PORT_COUNTERS[each.name], value, f"{source}/{each.name}")


def _netifs(machine: Machine) -> Iterator[Counter]:
    for name in machine.names(NETIFS):
        for counted in ("rx_bytes", "tx_bytes"):
            path = f"{NETIFS}/{name}/statistics/{counted}"
            if machine.exists(path):
                yield Counter(name, counted, TRAFFIC, gap_or(partial(read_whole, machine, path)), f"/{path}")


def _aer(machine: Machine) -> tuple[Counter, ...]:
    """Return the PCIe AER error counters of the GPUs, the adapters and the bridges above these devices."""
    devices = [device.bdf for device in probe_pci(machine)]
    found = tuple(counter for bdf in devices for counter in _of_device(machine, bdf))
    if devices and not found:
        why = f"{NOT_KEPT} AER counters of these devices: they have no AER, or the firmware does not share them"
        return (Counter("PCI bus", "aer", REPAIRED, Gap(why), f"/{DEVICES}/*/aer_dev_*"),)
    return found


def _of_device(machine: Machine, bdf: str) -> Iterator[Counter]:
    """Yield the PCIe AER counters of a device.

    Yield nothing if AER is off or the firmware handles AER.
    """
    for file, (total, kind) in AER_FILES.items():
        path = f"{DEVICES}/{bdf}/{file}"
        if machine.exists(path):
            value = gap_or(lambda: parse_aer(machine.text(path), total))  # noqa: B023  called at once
            yield Counter(bdf, file, kind, value, f"/{path}")


def parse_aer(text: str, total: str) -> int:
    """Return the count on the line of `text` that begins with the name `total`.

    `text` is the content of a kernel file of PCIe errors (AER). Raise UnreadableFact if the line is missing.
    """
    for match in filter(None, map(AER_LINE.fullmatch, map(str.strip, text.splitlines()))):
        if match[1] == total:
            return int(match[2])
    raise UnreadableFact(f"{total}: not in the kernel's file")


def _xids(machine: Machine) -> tuple[Counter, ...]:
    """Return one counter for each GPU address and Xid in the kernel log, and one counter for all Xids together.

    Xid 45 has one counter for each process.
    """
    lines = probe_xid_lines(machine)
    found = Tally((match[1].lower(), _named(match)) for line in lines if (match := XID_LINE.search(line)))
    each = (Counter(f"{ON_BUS}{bus}", name, FATAL, n, KERNEL_LOG) for (bus, name), n in found.items())
    return (Counter(KERNEL_LOG, XIDS, FATAL, len(lines), KERNEL_LOG), *each)


def _named(xid: re.Match[str]) -> str:
    """Return the name of the counter for an Xid.

    For Xid 45 the name includes the process, which preflight may have killed.
    """
    pid = PID.match(xid.string, xid.end()) if int(xid[2]) == KILLED else None
    return f"{XID}{xid[2]}{OF_PROCESS}{int(pid[1])}" if pid else f"{XID}{xid[2]}"


def _read_memory_failures(machine: Machine) -> int:
    return count_memory_failures(machine.ask("kernel_alarms"))


READERS: dict[OutsideKind, tuple[Callable[[Machine], int], str]] = {
    OutsideKind.OOM_KILL: (read_oom_kills, "the cgroup's memory.events"),
    OutsideKind.PIDS_LIMIT: (read_pids_refusals, "the cgroup's pids.events"),
    OutsideKind.MEMORY_FAILURE: (_read_memory_failures, "kernel log"),
}


def probe_outside_events(machine: Machine) -> Counts:
    """Return {kind: (count, source)} for events outside the run that may end the run, such as out-of-memory kills.

    The counts begin with the boot of the machine or the creation of the cgroup. If a count can't be read, a Gap object
    with the reason replaces the count.
    """
    return {kind: (gap_or(partial(read, machine)), source) for kind, (read, source) in READERS.items()}


def count_memory_failures(lines: object) -> int:
    """Return how many of the kernel log lines report faulty memory.

    Raise UnreadableFact if `lines` is not a list.
    """
    if not isinstance(lines, list):
        raise UnreadableFact("the kernel log is no list of lines")
    return sum(bool(MEMORY_FAILURE.search(str(line))) for line in lines)
