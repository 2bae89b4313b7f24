"""Queries about a machine whose results are not in files. Every result is JSON."""

from __future__ import annotations

import functools
import os
import pwd
import resource
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from preflight.errors import UnreadableFact, UsageError
from preflight.system.dcb import traffic_classes
from preflight.system.ethtool import port_speeds
from preflight.system.installed import installed_software
from preflight.system.interfaces import network_interfaces
from preflight.system.machine import Json, Tree
from preflight.system.nvml import LIBRARY, ask_nvml
from preflight.system.secrets import shown
from preflight.system.shm_segments import nccl_segments

UNLIMITED = "unlimited"
KMSG_BYTES = 1 << 14
DRIVER_LINE = "NVRM: "
LINK_LINES = ("Link is ", "Link up", "Link down")
ALARM_LINES = ("emory failure", "emory corruption", "emory error", "ardware Error")  # either case

# Only what NCCL, gloo, torch and CUDA read: a report travels, and an environment holds secrets.
REPORTED_PREFIXES = ("NCCL_", "GLOO_", "TORCH_", "CUDA_")
REPORTED_NAMES = frozenset({"TP_SOCKET_IFNAME", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS"})

LIMITS = ("memlock", "nofile", "stack", "nproc")


def live_machine() -> Tree:
    """Return the machine that this process runs on."""
    return Tree(Path("/"), LIVE_QUESTIONS)


def tree_machine(root: Path) -> Tree:
    """Return the machine that was recorded as files below the folder `root`.

    NVML is queried only through a library in this folder, never through this machine's library.
    """
    library = root / LIBRARY
    questions = {"nvml": lambda: ask_nvml(str(library.resolve()))} if library.is_file() else {}
    return Tree(root, questions)


def machine_at(sysroot: str | None) -> Tree:
    """Return the machine recorded in the folder `sysroot`, or this machine if `sysroot` is None.

    Raise UsageError if `sysroot` is not a directory.
    """
    if sysroot is None:
        return live_machine()
    if not os.path.isdir(sysroot):
        raise UsageError(f"--sysroot {sysroot}: not a directory")
    return tree_machine(Path(sysroot))


def kernel_log() -> Json:
    """Return the NVIDIA driver's lines in the kernel log, oldest first."""
    return _kernel_lines(DRIVER_LINE)


def kernel_alarms() -> Json:
    """Return the kernel log's lines that report faulty memory."""
    return _kernel_lines(*ALARM_LINES)


def kernel_history() -> Json:
    """Return the kernel log's lines from the NVIDIA driver and about links, as `{now_s, begins_s, lines}`.

    The lines about links say that a network link went up or down. All times are in seconds since boot.
    """
    # `begins_s` is the time of the oldest line, or 0 if no line has been dropped.
    begins_s, lines = 0.0, []
    for number, (head, text) in enumerate(_kernel_records()):
        _, sequence, at_us = head.split(",")[:3]  # Documentation/ABI/testing/dev-kmsg
        if number == 0 and sequence != "0":
            begins_s = int(at_us) / 1e6
        if any(sign in text for sign in (DRIVER_LINE, *LINK_LINES)):
            lines.append([int(at_us) / 1e6, text])
    return {"now_s": time.clock_gettime(time.CLOCK_MONOTONIC), "begins_s": begins_s, "lines": lines}


def _kernel_lines(*signs: str) -> list[str]:
    return [text for _, text in _kernel_records() if any(sign in text for sign in signs)]


def _kernel_records() -> Iterator[tuple[str, str]]:
    """Yield the prefix and the text of each record of the kernel log.

    The prefix has the form "priority,sequence,microseconds,flags".
    """
    descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(descriptor, KMSG_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the ring has overwritten the next record
                continue
            head, _, text = _printable(record).partition(";")
            yield head, text.partition("\n")[0]
    finally:
        os.close(descriptor)


def uname() -> Json:
    """Return the host name, kernel release and architecture."""
    answer = os.uname()
    return {"nodename": answer.nodename, "release": answer.release, "machine": answer.machine}


def cpu_affinity() -> Json:
    """Return the logical CPUs that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def shm_statvfs() -> Json:
    """Return `{size_bytes, free_bytes}` of /dev/shm. `free_bytes` is the space that an ordinary user may still use."""
    answer = os.statvfs("/dev/shm")
    return {"size_bytes": answer.f_blocks * answer.f_frsize, "free_bytes": answer.f_bavail * answer.f_frsize}


def rlimits() -> Json:
    """Return the soft resource limits of this process by name, in bytes or counts, or as "unlimited"."""
    soft = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0] for name in LIMITS}
    return {name: UNLIMITED if value == resource.RLIM_INFINITY else value for name, value in soft.items()}


def own_limits() -> dict[str, int]:
    """Return this process's limits of address space and CPU time, as `{bytes, cpu_s}`.

    `bytes` is the size of the address space. `cpu_s` is the CPU time in seconds. A limit that is not set is left out.
    """
    soft = {"bytes": resource.getrlimit(resource.RLIMIT_AS)[0], "cpu_s": resource.getrlimit(resource.RLIMIT_CPU)[0]}
    return {name: value for name, value in soft.items() if value != resource.RLIM_INFINITY}


def host_addresses() -> Json:
    """Return the host's own name and its addresses, in the resolver's order."""
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a name that IDNA can't encode is a UnicodeError
        raise UnreadableFact(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    return {"name": name, "addresses": list(dict.fromkeys(str(entry[4][0]) for entry in found))}


def environment() -> Json:
    """Return the environment variables that NCCL, gloo, torch or CUDA read, as {name: value}."""
    items = ((_printable(name), _printable(value)) for name, value in os.environb.items())
    return {name: shown(name, value) for name, value in sorted(items) if is_reported(name)}


def is_reported(name: str) -> bool:
    """Return whether a report may contain the environment variable `name`."""
    return name.startswith(REPORTED_PREFIXES) or name in REPORTED_NAMES


def home() -> Json:
    """Return the home directory and the working directory.

    The home directory comes from getpwuid, as in NCCL.
    """
    try:
        directory = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        directory = ""  # NCCL then reads no user file
    return {"home": directory, "working_directory": os.getcwd()}


def _printable(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _reasoned(name: str, question: Callable[[], Json]) -> Callable[[], Json]:
    @functools.wraps(question)
    def ask() -> Json:
        try:
            return question()
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise UnreadableFact(f"{name}: {where}{error.strerror or error}") from None

    return ask


LIVE_QUESTIONS: Mapping[str, Callable[[], Json]] = {
    name: _reasoned(name, question)
    for name, question in {
        "uname": uname,
        "cpu_affinity": cpu_affinity,
        "shm_statvfs": shm_statvfs,
        "shm_mapped": nccl_segments,
        "rlimits": rlimits,
        "host_addresses": host_addresses,
        "interfaces": network_interfaces,
        "traffic_classes": traffic_classes,
        "port_speeds": port_speeds,
        "environment": environment,
        "home": home,
        "software": installed_software,
        "nvml": ask_nvml,
        "kernel_log": kernel_log,
        "kernel_alarms": kernel_alarms,
        "kernel_history": kernel_history,
    }.items()
}
