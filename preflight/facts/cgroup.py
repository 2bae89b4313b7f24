"""Read the CPU, memory and process limits of this process from cgroup version 1, version 2 or both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from preflight.errors import UnreadableFact
from preflight.facts.reading import gap_or, parse_whole
from preflight.model.facts import Limit
from preflight.system.machine import Machine

MOUNT = "sys/fs/cgroup"
MOUNT_V2 = (MOUNT, f"{MOUNT}/unified")  # alone, or beside version 1
MOUNT_V1 = {"cpu": ("cpu", "cpu,cpuacct", "cpuacct,cpu"), "memory": ("memory",), "pids": ("pids",)}

# Version 1 has no word for "no limit": it gives the largest number of whole pages, which is near 2**63.
NO_LIMIT_V1 = 1 << 60

N = TypeVar("N", int, float)


def read_cpu_limit(machine: Machine) -> float | Limit:
    """Return how many CPUs the tightest cgroup limit of this process allows, such as 0.5 for half a CPU."""
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    v2 = [parse_cpu_max(text) for (text,) in _texts(machine, "", "cpu.max")]
    v1 = [cpus_of(*map(parse_whole, texts, names)) for texts in _texts(machine, "cpu", *names)]
    return tightest([*v2, *v1])


def read_memory_limit_bytes(machine: Machine) -> int | Limit:
    """Return how many bytes of memory the tightest cgroup limit of this process allows."""
    v2 = [parse_max(text, "memory.max") for (text,) in _texts(machine, "", "memory.max")]
    v1 = [parse_memory_limit_v1(text) for (text,) in _texts(machine, "memory", "memory.limit_in_bytes")]
    return tightest([*v2, *v1])


def read_pids_limit(machine: Machine) -> int | Limit:
    """Return how many processes and threads the tightest cgroup limit of this process allows."""
    texts = [*_texts(machine, "", "pids.max"), *_texts(machine, "pids", "pids.max")]
    return tightest(parse_max(text, "pids.max") for (text,) in texts)


def usable_cpus(machine: Machine) -> float:
    """Return how many CPUs this process may use.

    The result is the number of CPUs in the process's affinity mask, or the cgroup's limit if this limit is lower.
    """
    allowed = float(len(machine.ask("cpu_affinity")))
    limit = gap_or(lambda: read_cpu_limit(machine))
    return max(0.1, min(allowed, limit)) if isinstance(limit, float) else allowed


def read_oom_kills(machine: Machine) -> int:
    """Return the number of out-of-memory kills in this process's own cgroup.

    The number includes kills for lack of memory on the host. Raise UnreadableFact if there is no file with the number.
    """
    v2 = _texts(machine, "", "memory.events")
    texts = v2 or _texts(machine, "memory", "memory.oom_control")
    if not texts:
        raise UnreadableFact("cgroup: no memory.events above this process")
    return parse_event_count(texts[-1][0], "oom_kill")


def read_pids_refusals(machine: Machine) -> int:
    """Return how often a limit refused a new process or thread in this process's cgroup and the cgroups above.

    Raise UnreadableFact if there is no file with the number.
    """
    # Before Linux 6.11, the kernel counts a refusal in the cgroup that wanted to start the process. Since Linux 6.11,
    # the kernel counts a refusal in the cgroup that has the limit.
    texts = [*_texts(machine, "", "pids.events"), *_texts(machine, "pids", "pids.events")]
    if not texts:
        raise UnreadableFact("cgroup: no pids.events above this process")
    return sum(parse_event_count(text, "max") for (text,) in texts)


def _texts(machine: Machine, controller: str, *names: str) -> list[tuple[str, ...]]:
    """Return the texts of the files `names` at each level of a controller's cgroup hierarchy.

    Levels without the first file are left out. In version 2, the controller is "".
    """
    if not controller and not machine.names(MOUNT):
        raise UnreadableFact(f"/{MOUNT}: no cgroup file system is mounted there")
    path = parse_cgroup_path(machine.text("proc/self/cgroup"), controller)
    mounts: Iterable[str] = MOUNT_V2
    if controller:  # the same hierarchy is mounted under one name and linked from others
        mounts = [f"{MOUNT}/{name}" for name in MOUNT_V1[controller] if machine.exists(f"{MOUNT}/{name}")][:1]
    places = [f"{mount}{level}" for mount in mounts for level in levels(path)]
    there = [place for place in places if machine.exists(f"{place}/{names[0]}")]
    return [tuple(machine.text(f"{place}/{name}") for name in names) for place in there]


def parse_cgroup_path(text: str, controller: str) -> str:
    """Return this process's cgroup path for `controller`, or "/" if the controller is not listed.

    `text` is the content of /proc/self/cgroup. In version 2, the controller is "".
    """
    for line in text.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller in controllers.split(",") and path.startswith("/"):
            return path
    return "/"


def levels(path: str) -> tuple[str, ...]:
    """Return the cgroup `path` and all paths above, the top first, such as `("", "/a", "/a/b")` for `/a/b`."""
    # The limits of the upper levels apply too. In a container, `path` may be a path of the host, and only the top level
    # ("") exists in the container. `..` stands for a level outside the cgroup namespace.
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return tuple("".join(f"/{part}" for part in parts[:depth]) for depth in range(len(parts) + 1))


def parse_cpu_max(text: str) -> float | Limit:
    """Return the CPU limit in the text of cpu.max, as a number of CPUs, such as 0.5 for `50000 100000`.

    Return UNLIMITED for `max 100000`. The numbers in the file are microseconds.
    """
    quota, _, period = text.partition(" ")
    if quota == "max":
        return Limit.UNLIMITED
    return cpus_of(parse_whole(quota, "cpu.max"), parse_whole(period or "100000", "cpu.max"))


def parse_max(text: str, name: str) -> int | Limit:
    """Return the limit in the text of memory.max (bytes) or pids.max (processes).

    Return UNLIMITED for `max`. `name` is the name of the file, for error messages.
    """
    return Limit.UNLIMITED if text == "max" else parse_whole(text, name)


def parse_memory_limit_v1(text: str) -> int | Limit:
    """Return the limit in the text of memory.limit_in_bytes, in bytes.

    Return UNLIMITED if the file shows no limit.
    """
    limit_bytes = parse_whole(text, "memory.limit_in_bytes")
    return Limit.UNLIMITED if not 0 <= limit_bytes < NO_LIMIT_V1 else limit_bytes


def cpus_of(quota_us: int, period_us: int) -> float | Limit:
    """Return the number of CPUs that a quota of CPU time per period allows.

    Return UNLIMITED if the quota is negative. Raise UnreadableFact if the period is not positive.
    """
    if period_us <= 0:
        raise UnreadableFact(f"cgroup: {period_us} us is not a period")
    return Limit.UNLIMITED if quota_us < 0 else quota_us / period_us


def parse_event_count(text: str, name: str) -> int:
    """Return the number after `name` in the text of memory.events, memory.oom_control or pids.events.

    Raise UnreadableFact if `name` is missing.
    """
    for line in text.splitlines():
        found, _, count = line.partition(" ")
        if found == name:
            return parse_whole(count.strip(), name)
    raise UnreadableFact(f"cgroup: no {name} in its events")


def tightest(limits: Iterable[N | Limit]) -> N | Limit:
    """Return the smallest limit, or UNLIMITED if no limit is set."""
    return min((limit for limit in limits if not isinstance(limit, Limit)), default=Limit.UNLIMITED)
