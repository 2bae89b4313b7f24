"""The processes of this machine as far as their ranks are to be found: parents, owners, names, rank variables.

Reading an environment or a command line takes the process's memory lock, which a process that the kernel holds may
keep for ever: each of these reads is one that may hang. Only the variables that are named here leave this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from preflight.errors import UnreadableFact
from preflight.system.isolate import Asker, isolate_calls
from preflight.system.machine import Json, Machine

RANK_VARIABLES = frozenset((
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID", "SLURM_STEP_ID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK", "PMI_SIZE", "PMIX_RANK",
))  # fmt: skip
# Where the job says that its evidence lies; used, and never written anywhere.
PLACES = frozenset((
    "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
))  # fmt: skip
SECRET = re.compile(r"(?i)(token|secret|passw|api[-_]?key|access[-_]?key|private[-_]?key|credential|auth|bearer|sas)")
URL_PASSWORD = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
LONG_RANDOM = re.compile(r"(?=[^\s/]*\d)(?=[^\s/]*[A-Za-z])[A-Za-z0-9+_=-]{32,}")  # no path, no word
HIDDEN = "[hidden]"
COMMAND_CHARS = 400
FIND_S = 4.0
FAILURES = (UnreadableFact, ValueError, IndexError, OSError)


@dataclass(frozen=True, slots=True)
class Listed:
    """A process of the table."""

    pid: int
    parent_pid: int
    uid: int
    name: str
    state: str
    started_ticks: int
    arguments: tuple[str, ...]
    variables: dict[str, str]
    places: dict[str, str]
    thread_names: frozenset[str]
    hidden: str = ""  # why its environment could not be read


def list_processes(machine: Machine, wanted: Callable[[int], bool]) -> tuple[tuple[Listed, ...], str]:
    """Return the processes whose owner is wanted, and what could not be seen ("" = nothing).

    To be called from a process with a single thread, since it forks.
    """
    answer = isolate_calls(lambda asker: _table(machine, asker, wanted), FAILURES, _reason, FIND_S)
    if "error" in answer:
        return (), str(answer["error"])
    return tuple(_listed(each) for each in answer["processes"]), str(answer["note"])


def _reason(error: Exception) -> Json:
    return {"unreadable": str(error)}


def _table(machine: Machine, asker: Asker, wanted: Callable[[int], bool]) -> Json:
    """Return what is wanted of each process; where the asker makes no calls, from what is known."""
    listing = asker.ask("list", lambda: _own(machine, wanted))
    if isinstance(listing, dict) and "unreadable" in listing:
        return {"error": f"/proc could not be listed: {listing['unreadable']}"}
    found = []
    for each in listing["own"]:
        pid = each["pid"]
        answer = {} if each["state"] == "Z" else asker.ask(f"memory/{pid}", lambda: _memory(machine, pid))  # noqa: B023
        found.append(each | ({"hidden": answer["unreadable"]} if "unreadable" in answer else answer))
    return {"processes": found, "note": listing["note"]}


def _own(machine: Machine, wanted: Callable[[int], bool]) -> Json:
    own, gone = [], 0
    names = [name for name in machine.names("proc") if name.isdecimal()]
    for name in names:
        try:
            state = parse_stat(machine.text(f"proc/{name}/stat"))
            uid = parse_uid(machine.text(f"proc/{name}/status"))
            if wanted(uid):
                own.append({"pid": int(name), "uid": uid, "threads": _thread_names(machine, name), **state})
        except FAILURES:
            gone += 1  # it has ended meanwhile, or its owner hides it
    return {"own": own, "note": "" if names else "/proc shows no process"}


def _thread_names(machine: Machine, pid: str) -> list[str]:
    names = set()
    for tid in machine.names(f"proc/{pid}/task")[:512]:
        try:
            names.add(machine.text(f"proc/{pid}/task/{tid}/comm"))
        except FAILURES:
            continue
    return sorted(names)


def _memory(machine: Machine, pid: int) -> Json:
    arguments = _strings(machine.data(f"proc/{pid}/cmdline"))
    try:
        environ = dict(pair.split("=", 1) for pair in _strings(machine.data(f"proc/{pid}/environ")) if "=" in pair)
        hidden = ""
    except FAILURES as error:
        environ, hidden = {}, str(error)
    kept = {name: value[:256] for name, value in environ.items() if name in RANK_VARIABLES | PLACES}
    return {"arguments": arguments[:64], "environ": kept, "hidden": hidden}


def _strings(data: bytes) -> list[str]:
    return [part.decode("utf-8", "backslashreplace") for part in data.split(b"\0") if part]


def _listed(each: Json) -> Listed:
    environ = each.get("environ", {})
    return Listed(
        each["pid"], each["parent"], each["uid"], each["name"], each["state"], each["started"],
        tuple(each.get("arguments", ())),
        {name: value for name, value in environ.items() if name in RANK_VARIABLES},
        {name: value for name, value in environ.items() if name in PLACES},
        frozenset(each["threads"]), each.get("hidden", ""),
    )  # fmt: skip


def parse_stat(text: str) -> Json:
    """Parse /proc/PID/stat: name, state, parent and start in clock ticks since boot; the name may hold anything."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return {
        "name": head.partition("(")[2],
        "state": fields[0],
        "parent": int(fields[1]),
        "started": int(fields[19]),
    }


def parse_uid(status: str) -> int:
    """Parse the effective owner out of /proc/PID/status; ValueError where it is not there."""
    for line in status.splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    raise ValueError("no Uid line")


def shown_command(arguments: Iterable[str]) -> str:
    """Return a command line for people, without values that look like secrets."""
    shown, hide_next = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif equals and SECRET.search(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(LONG_RANDOM.sub(HIDDEN, URL_PASSWORD.sub(HIDDEN, argument)))
        hide_next = argument.startswith("-") and not equals and bool(SECRET.search(name))
    return " ".join(shown)[:COMMAND_CHARS]
