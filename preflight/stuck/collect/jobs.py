"""The jobs on this machine, and the processes that are ranks of these jobs.

A read of a hanging process's environment or command line may block forever.
"""
# A helper process, such as a data worker, inherits the variables of its rank. A launcher may also have Slurm's
# variables.

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from preflight.errors import UnreadableFact
from preflight.model.gap import Gap
from preflight.model.launchers import LAUNCHERS, engine_name
from preflight.model.stuck import JobRow
from preflight.system.isolate import Asker, isolate_calls
from preflight.system.machine import Json, Machine

# The innermost launcher first: the first row whose rank is there counts.
RANK_VARIABLES = tuple(row for launcher in reversed(LAUNCHERS) for row in launcher.ranks)
JOB_VARIABLES = tuple(row for launcher in reversed(LAUNCHERS) for row in launcher.job_variables)
KEPT_VARIABLES = frozenset(name for row in (*RANK_VARIABLES, *JOB_VARIABLES) for name in row if name)
# Where the job says that its evidence lies, or which libraries it takes; used, and never written anywhere.
PLACES = frozenset((
    "NCCL_RAS_ADDR", "NCCL_RAS_ENABLE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "LD_PRELOAD", "VLLM_NCCL_SO_PATH",
))  # fmt: skip
GROUP_THREADS = frozenset(("gloo_tcp_loop", "pt_gloo_runloop", "pt_nccl_watchdg", "pt_nccl_heartbt"))  # torch's names
DATA_WORKER = "pt_data_worker"
WRAPPERS = frozenset((
    "bash", "sh", "dash", "zsh", "env", "numactl", "taskset", "timeout", "nice", "time", "setpriv", "sudo", "su",
    "strace", "tini", "dumb-init", "apptainer", "singularity", "enroot",
    *(program for launcher in LAUNCHERS for program in launcher.wrappers),
))  # fmt: skip
# What a rank's script starts beside the program.
COMPANIONS = frozenset((
    "tail", "tee", "cat", "sleep", "tensorboard", "nvidia-smi", "dcgmi", "top", "htop", "watch", "ssh", "rsync",
    "wandb-core", "wandb-service", "py-spy",
))  # fmt: skip
OWN_NAME = "preflight-"  # of what `preflight run` has next to a job, which inherits its rank's variables
OWN_WORKER = "preflight.trial.worker"  # the module that runs as the ranks of a check
INIT = 1
SECRET = re.compile(r"(?i)(token|secret|passw|api[-_]?key|access[-_]?key|private[-_]?key|credential|auth|bearer|sas)")
URL_PASSWORD = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
LONG_RANDOM = re.compile(r"(?=[^\s/]*\d)(?=[^\s/]*[A-Za-z])[A-Za-z0-9+_=-]{32,}")  # no path, no word
HIDDEN = "[hidden]"
COMMAND_CHARS = 400
MOST_THREAD_NAMES, MOST_ARGUMENTS, VALUE_CHARS = 512, 64, 256
FIND_S = 4.0
FAILURES = (UnreadableFact, ValueError, IndexError, OSError)


class Identity(NamedTuple):
    """The values that identify a rank: the variable with the rank number, the number, and the job.

    Every process that a rank starts inherits these values.
    """

    variable: str  # RANK, SLURM_PROCID, ...
    number: str
    job: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """A process on this machine, with the values that show whether the process is a rank."""

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

    @property
    def identity(self) -> Identity | None:
        """Return the values that identify the rank of the process, or None if the process is not a rank."""
        if self.is_own:
            return None
        for variable, *_ in RANK_VARIABLES:
            number = self.variables.get(variable, "")
            if number.isdecimal() and len(number) < 10:
                job = tuple(self.variables.get(name, "") for row in JOB_VARIABLES for name in row)
                return Identity(variable, number, job)
        return None

    @property
    def job_name(self) -> str:
        """Return the job name from the process's variables, such as `SLURM_JOB_ID 17:0`, or "" without a name."""
        for row in JOB_VARIABLES:
            values = [self.variables.get(name, "") for name in row]
            if values[0]:
                return f"{row[0]} {':'.join(filter(None, values))}"
        return ""

    @property
    def is_own(self) -> bool:
        """Return whether the process belongs to `preflight run` or `preflight check`."""
        return self.name.startswith(OWN_NAME) or OWN_WORKER in self.arguments

    @property
    def is_ending(self) -> bool:
        """Return whether the kernel is ending the process and has already freed the process's memory."""
        # The result is False for zombies and for processes that are blocked in the kernel (state D).
        return not self.arguments and not self.hidden and self.state not in ("Z", "D")

    @property
    def has_group_threads(self) -> bool:
        """Return whether the process has threads of a torch process group."""
        return bool(self.thread_names & GROUP_THREADS)

    @property
    def engine_name(self) -> str:
        """Return the title of a serving engine's process (such as vLLM), or "" for other processes."""
        return engine_name(self.arguments[0]) if self.arguments else ""

    @property
    def is_data_worker(self) -> bool:
        """Return whether the process has the name that torch 2.6 and newer give to DataLoader workers."""
        return self.name.startswith(DATA_WORKER)

    @property
    def is_wrapper(self) -> bool:
        """Return whether the process is a shell or another program that only runs a different program."""
        program = os.path.basename(self.arguments[0]) if self.arguments else self.name
        return program in WRAPPERS or self.name in WRAPPERS

    @property
    def command(self) -> str:
        """Return the command line for display, without values that look like secrets."""
        shown, hide_next = [], False
        for argument in self.arguments:
            name, equals, _ = argument.partition("=")
            if hide_next and not argument.startswith("-"):
                shown.append(HIDDEN)
            elif equals and SECRET.search(name):
                shown.append(f"{name}={HIDDEN}")
            else:
                shown.append(LONG_RANDOM.sub(HIDDEN, URL_PASSWORD.sub(HIDDEN, argument)))
            hide_next = argument.startswith("-") and not equals and bool(SECRET.search(name))
        return " ".join(shown)[:COMMAND_CHARS]

    def number(self, variable: str) -> int | Gap:
        """Return the integer in the environment variable `variable` of the process, or a Gap if there is no integer."""
        text = self.variables.get(variable, "")
        is_number = text.isdecimal() and len(text) < 10
        return int(text) if is_number else Gap(f"{variable or 'no variable'} does not say it")


@dataclass(frozen=True, slots=True)
class FoundRank:
    """The process of a rank, with its rank number, its job, and its child processes (`helpers`)."""

    process: ListedProcess
    rank: int | Gap
    source: str
    world_size: int | Gap
    local_world_size: int | Gap
    helpers: tuple[ListedProcess, ...]
    job_name: str


@dataclass(frozen=True, slots=True)
class FoundJob:
    """The ranks of one job on this node.

    `orphans` are processes that still run although their rank has ended. `servers` are processes of a serving engine.
    """

    # The servers give work to the ranks.

    name: str
    ranks: tuple[FoundRank, ...]
    orphans: tuple[tuple[int, ListedProcess], ...] = ()
    servers: tuple[ListedProcess, ...] = ()

    def goes_by(self, job_id: str) -> bool:
        """Return whether `job_id` is the id of this job. For Slurm's id 7:0, the id 7 matches too."""
        name = self.name.partition(" ")[2]
        return job_id in (name, name.partition(":")[0])

    def row(self, machine: Machine) -> JobRow:
        """Return the row of the job in a list of jobs: the pid, command, folder, running time and number of ranks."""
        first = self.ranks[0].process
        folder, since_s = "?", 0.0
        with contextlib.suppress(*FAILURES):
            folder = machine.link(f"proc/{first.pid}/cwd")
        with contextlib.suppress(*FAILURES):
            uptime_s = float(machine.text("proc/uptime").split()[0])
            since_s = max(0.0, uptime_s - first.started_ticks / os.sysconf("SC_CLK_TCK"))
        program, _, rest = first.command.partition(" ")
        command = f"{os.path.basename(program)} {rest}".strip() or first.name
        return JobRow(first.pid, len(self.ranks), command, folder, since_s)


class ProcessTable:
    """The processes of this machine with their parents. `note` names processes that could not be read."""

    def __init__(self, processes: Iterable[ListedProcess], note: str = "") -> None:
        self.note = note
        self.by_pid = {each.pid: each for each in processes}
        self.children: Mapping[int, list[ListedProcess]] = defaultdict(list)
        for each in self.by_pid.values():
            self.children[each.parent_pid].append(each)

    @classmethod
    def read(cls, machine: Machine, wanted: Callable[[int], bool]) -> ProcessTable:
        """Return the processes of all users whose user id `wanted` accepts.

        Call this method from a process with a single thread, because the method forks.
        """

        def program(asker: Asker) -> Json:
            listing = asker.ask("list", lambda: _list_own(machine, wanted))
            if isinstance(listing, dict) and "unreadable" in listing:
                return {"own": [], "note": f"/proc could not be listed: {listing['unreadable']}"}
            own = []
            for each in listing["own"]:
                pid, memory = each["pid"], {}
                if each["state"] != "Z":
                    memory = asker.ask(f"memory/{pid}", lambda: _read_memory(machine, pid))  # noqa: B023  called at once
                own.append(each | ({"hidden": memory["unreadable"]} if "unreadable" in memory else memory))
            return {"own": own, "note": listing["note"]}

        answer = isolate_calls(program, FAILURES, lambda error: {"unreadable": str(error)}, FIND_S)
        processes = []
        for each in answer["own"]:
            environ = each.get("environ", {})
            variables = {name: value for name, value in environ.items() if name in KEPT_VARIABLES}
            places = {name: value for name, value in environ.items() if name in PLACES}
            processes.append(
                ListedProcess(
                    each["pid"], each["parent"], each["uid"], each["name"], each["state"], each["started"],
                    tuple(each.get("arguments", ())), variables, places, frozenset(each["threads"]),
                    each.get("hidden", ""),
                )
            )  # fmt: skip
        return cls(processes, answer["note"])

    def without(self, own_pid: int) -> ProcessTable:
        """Return the table without process `own_pid` and its descendants.

        In the returned table, the ancestors of `own_pid` have no variables, so that no ancestor counts as a rank.
        """
        children = {each.pid for each in self.below(own_pid)}  # one of them reads this table
        others = {pid: each for pid, each in self.by_pid.items() if pid not in children}
        own = others.pop(own_pid, None)
        while own is not None and (own := others.get(own.parent_pid)) is not None:
            others[own.pid] = replace(own, variables={})
            if own.parent_pid == own.pid:
                break
        return ProcessTable(others.values(), self.note)

    def below(self, pid: int) -> Iterator[ListedProcess]:
        """Yield all descendants of process `pid`, the nearest first."""
        visited, waiting = {pid}, list(self.children.get(pid, ()))
        while waiting:
            each = waiting.pop(0)
            if each.pid not in visited:
                visited.add(each.pid)
                yield each
                waiting += self.children.get(each.pid, ())

    def jobs(self, pid: int | None = None) -> tuple[FoundJob, ...]:
        """Return the jobs on this node. If `pid` is given, return only the jobs of this process."""
        named = list(self.ranks_by_variables())
        known = {each.pid for rank in named for each in (rank.process, *rank.helpers)}
        ranks = [*named, *self.ranks_by_threads(known)]
        orphans = list(self.orphans_of(ranks))
        members: dict[str, list[FoundRank]] = defaultdict(list)
        for each in ranks:
            members[each.job_name].append(each)
        jobs = tuple(
            FoundJob(
                name,
                tuple(sorted(own, key=lambda r: (r.rank if isinstance(r.rank, int) else 1 << 30, r.process.pid))),
                tuple((number, process) for job, number, process in orphans if job == name),
                tuple(self.servers_of(own)),
            )
            for name, own in sorted(members.items())
            if not all(each.process.is_wrapper for each in own)  # somebody's shell in an allocation
        )
        if pid is None:
            return jobs
        below = {pid, *(each.pid for each in self.below(pid))}
        return tuple(
            job
            for job in jobs
            if any(r.process.pid in below or pid in {h.pid for h in r.helpers} for r in job.ranks)
        )  # fmt: skip

    def ranks_by_variables(self) -> Iterator[FoundRank]:
        """Yield the ranks that environment variables identify.

        A rank is the topmost process with the rank's variables, but not a wrapper such as a shell.
        """
        tops: dict[Identity, ListedProcess] = {}
        for each in sorted(self.by_pid.values(), key=lambda p: (p.started_ticks, p.pid)):
            own, parent = each.identity, self.by_pid.get(each.parent_pid)
            if own is None or each.is_data_worker or each.state == "Z":
                continue
            if parent is not None and parent.identity == own and not self.is_launcher(parent):
                continue
            if not self.is_launcher(each):
                tops.setdefault(own, each)
        with_launcher = {top.job_name for top in tops.values() if top.parent_pid != INIT}
        for own, top in tops.items():
            # What a rank that is gone has left behind: init adopted it, and not the other ranks. One with threads of a
            # process group is a rank: the shell that started it has ended (nohup, setsid, ssh).
            if top.parent_pid == INIT and top.job_name in with_launcher and not top.has_group_threads:
                continue
            programs = [p for p in (top, *self.below(top.pid)) if p.identity == own and not p.is_wrapper]
            in_group = [p for p in programs if p.has_group_threads and not p.is_data_worker]
            no_companions = [p for p in programs if p.name not in COMPANIONS]
            process = next(iter(in_group or no_companions or programs), top)
            _, size, _, local_size = next(row for row in RANK_VARIABLES if row.rank == own.variable)
            yield FoundRank(
                process, int(own.number), own.variable, process.number(size), process.number(local_size),
                tuple(self.below(process.pid)), process.job_name or f"launcher {process.parent_pid}",
            )  # fmt: skip

    def is_launcher(self, each: ListedProcess) -> bool:
        """Return whether the process started several ranks, or started a rank of torchrun."""
        own = each.identity
        if own is not None and own.variable == "RANK" and "LOCAL_RANK" in each.variables:
            return False
        others = [(p, p.identity) for p in self.below(each.pid) if p.identity not in (None, own)]
        numbers = {identity.number for _, identity in others if identity}
        is_torchrun = any("TORCHELASTIC_RUN_ID" in other.variables for other, _ in others)
        return len(numbers) > 1 or (is_torchrun and "TORCHELASTIC_RUN_ID" not in each.variables)

    def ranks_by_threads(self, known: set[int]) -> Iterator[FoundRank]:
        """Yield the processes that have a torch process group and whose pid is not in `known`.

        These ranks are numbered in the order of their start.
        """
        found = [
            each
            for each in self.by_pid.values()
            if each.pid not in known and not each.is_data_worker and not each.is_own and each.has_group_threads
            and not each.is_ending
        ]  # fmt: skip
        starters = {each.parent_pid for each in found} & {each.pid for each in found}
        families: dict[int, list[ListedProcess]] = defaultdict(list)  # by what started them: a launcher, or rank 0
        for each in found:
            families[each.pid if each.pid in starters else each.parent_pid].append(each)
        unknown = Gap("its variables were set after its start")
        for starter, members in families.items():
            job_name = next(filter(None, (each.job_name for each in members)), f"launcher {starter}")
            for number, each in enumerate(sorted(members, key=lambda p: (p.started_ticks, p.pid))):
                is_only = len(members) == 1
                named = f"called {each.engine_name}" if each.engine_name else "presumed from the order of start"
                rank, source = (unknown, "") if is_only else (number, named)
                others: set[int] = set()
                if each.pid in starters:
                    started = (other for other in members if other is not each)
                    others = {p.pid for other in started for p in (other, *self.below(other.pid))}
                helpers = tuple(p for p in self.below(each.pid) if p.pid not in others)
                yield FoundRank(each, rank, source, unknown, unknown, helpers, job_name)

    def servers_of(self, ranks: Iterable[FoundRank]) -> Iterator[ListedProcess]:
        """Yield the processes of the ranks' serving engine that are not ranks."""
        known = {rank.process.pid for rank in ranks}
        for rank in ranks:
            each, is_engine = rank.process, bool(rank.process.engine_name)
            while is_engine and (parent := self.by_pid.get(each.parent_pid)) is not None:
                if parent.pid in known or parent.is_wrapper:
                    break
                children = (other for other in self.children[parent.pid] if other.pid not in known)
                servers = (parent, *(other for other in children if other.engine_name))
                known |= {other.pid for other in servers}
                yield from servers
                each, is_engine = parent, bool(parent.engine_name)

    def orphans_of(self, ranks: Sequence[FoundRank]) -> Iterator[tuple[str, int, ListedProcess]]:
        """Yield (job, rank, process) for each process that still runs although its rank has ended."""
        known = {each.pid for rank in ranks for each in (rank.process, *rank.helpers)}
        numbers: dict[str, set[int | Gap]] = defaultdict(set)
        for rank in ranks:
            numbers[rank.job_name].add(rank.rank)
        for each in self.by_pid.values():
            own = each.identity
            if own is None or each.pid in known or not (each.is_data_worker or each.parent_pid == INIT):
                continue
            if each.job_name in numbers and int(own.number) not in numbers[each.job_name]:
                yield each.job_name, int(own.number), each


def _list_own(machine: Machine, wanted: Callable[[int], bool]) -> Json:
    """For each wanted process, return the data that can be read without the lock on the process's memory."""
    own = []
    pids = [name for name in machine.names("proc") if name.isdecimal()]
    for pid in pids:
        try:
            state = parse_stat(machine.text(f"proc/{pid}/stat"))
            uid = parse_uid(machine.text(f"proc/{pid}/status"))
            if wanted(uid):
                threads = set()
                for tid in machine.names(f"proc/{pid}/task")[:MOST_THREAD_NAMES]:
                    with contextlib.suppress(*FAILURES):
                        threads.add(machine.text(f"proc/{pid}/task/{tid}/comm"))
                own.append({"pid": int(pid), "uid": uid, "threads": sorted(threads), **state})
        except FAILURES:
            continue  # it has ended meanwhile, or its owner hides it
    return {"own": own, "note": "" if pids else "/proc shows no process"}


def _read_memory(machine: Machine, pid: int) -> Json:
    """Return a process's arguments, and the environment variables that preflight uses.

    `hidden` says why variables are missing. The arguments are read last. If the arguments could be read, the process
    still had its memory when the variables were read. If the arguments are missing, the process is ending and nothing
    is hidden. In this case, Linux 6.14 and newer refuse to open the variables (ESRCH), and older kernels return no
    variables.
    """
    environ, hidden = b"", ""
    try:
        environ = machine.data(f"proc/{pid}/environ")
    except FAILURES as error:
        hidden = str(error)
    command = machine.data(f"proc/{pid}/cmdline")
    hidden = hidden if command else ""
    arguments, pairs = (
        [part.decode("utf-8", "backslashreplace") for part in data.split(b"\0") if part] for data in (command, environ)
    )
    variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    kept = {name: value[:VALUE_CHARS] for name, value in variables.items() if name in KEPT_VARIABLES | PLACES}
    return {"arguments": arguments[:MOST_ARGUMENTS], "environ": kept, "hidden": hidden}


def parse_stat(text: str) -> Json:
    """Return the name, state, parent, and start (clock ticks since boot) of a process from /proc/PID/stat."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return {
        "name": head.partition("(")[2],
        "state": fields[0],
        "parent": int(fields[1]),
        "started": int(fields[19]),
    }


def parse_uid(status: str) -> int:
    """Return the effective user id in the text of /proc/PID/status. Raise ValueError if the user id is missing."""
    for line in status.splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    raise ValueError("no Uid line")
