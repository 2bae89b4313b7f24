"""Helper functions for probes: they convert text to numbers, and turn errors into Gaps, which hold the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from preflight.errors import UnreadableFact
from preflight.model.facts import Gap
from preflight.system.machine import Json, Machine

T = TypeVar("T")

WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")
CPU_LIMIT = 1 << 16  # more than any kernel is built for; a damaged file must not fill memory


def gap_or(read: Callable[[], T]) -> T | Gap:
    """Return the result of `read`, or a Gap with the reason if `read` raises UnreadableFact."""
    try:
        return read()
    except UnreadableFact as error:
        return Gap(str(error))


def first_of(*reads: Callable[[], T]) -> T:
    """Return the result of the first function in `reads` that succeeds.

    If all functions fail, raise UnreadableFact with the reasons.
    """
    reasons = []
    for read in reads:
        try:
            return read()
        except UnreadableFact as error:
            reasons.append(str(error))
    raise UnreadableFact("; ".join(reasons))


def need(machine: Machine, path: str, why: str = "") -> None:
    """Raise UnreadableFact if `path` does not exist on `machine`. The error message ends with `why`."""
    if not machine.exists(path):
        raise UnreadableFact(f"/{path}: not there{why}")


def answered(value: Json) -> Json:
    """Return `value`, a part of a reply. Raise UnreadableFact if `value` is `{"unreadable": reason}`."""
    if isinstance(value, dict) and "unreadable" in value:
        raise UnreadableFact(str(value["unreadable"]))
    return value


def parse_whole(text: str, what: str) -> int:
    """Return the integer in `text`. Raise UnreadableFact for any other text.

    `what` names the value in the error message.
    """
    if not WHOLE_NUMBER.fullmatch(text):
        why = f"{text[:40]!r} is not a whole number" if text else "the file is empty"
        raise UnreadableFact(f"{what}: {why}")
    return int(text)


def read_whole(machine: Machine, path: str) -> int:
    """Return the integer in the file `path`. Raise UnreadableFact if the file has no integer."""
    return parse_whole(machine.text(path), path.rpartition("/")[2])


def parse_numa_node(text: str) -> int:
    """Return the NUMA node in `text`, the content of a device's file in /sys.

    Raise UnreadableFact for -1, which means that the node is unknown.
    """
    # The kernel writes -1 in most virtual machines, and if the firmware does not name the NUMA node.
    node = parse_whole(text, "numa_node")
    if node < 0:
        raise UnreadableFact(f"the kernel says {node}: the firmware does not tell which NUMA node it is near")
    return node


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs in a kernel list such as `0-3,8`, in ascending order. Raise UnreadableFact for other text."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        low = parse_whole(first, "CPU list")
        high = parse_whole(last, "CPU list") if dash else low
        if not 0 <= low <= high < CPU_LIMIT:
            raise UnreadableFact(f"CPU list: {part[:40]!r} is not a range of CPUs")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def parse_cpu_mask(text: str) -> tuple[int, ...]:
    """Return the CPUs in a kernel mask such as `00000000,0000ff00`.

    The mask is hexadecimal. Each word has 32 CPUs. The word with the highest CPUs comes first.
    """
    digits = text.strip().replace(",", "")
    if not re.fullmatch(rf"[0-9a-fA-F]{{1,{CPU_LIMIT // 4}}}", digits):
        raise UnreadableFact(f"CPU mask: {text[:40]!r} is not hexadecimal")
    mask = int(digits, 16)
    return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def parse_meminfo(text: str, key: str) -> int:
    """Return the value of `key` in bytes, from the text of /proc/meminfo or of a NUMA node's meminfo.

    Raise UnreadableFact if `key` is missing.
    """
    # The unit `kB` in these files means KiB.
    match = re.search(rf"^(?:Node +[0-9]+ +)?{re.escape(key)}: +([0-9]{{1,15}}) kB *$", text, re.MULTILINE | re.ASCII)
    if match is None:
        raise UnreadableFact(f"meminfo: there is no {key}")
    return int(match.group(1)) * 1024
