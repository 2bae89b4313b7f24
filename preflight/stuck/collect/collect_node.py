"""All evidence of this node: what may hang runs in children of its own, side by side, each with its limit."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from preflight.errors import Interrupted, UnreadableFact
from preflight.model.codec import decode_value, encode_value
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import (
    NO_PTRACE,
    SCHEMA_VERSION,
    Connection,
    GpuState,
    HeldLock,
    NodeEvidence,
    OpenFile,
    Orphan,
    OutputTail,
    Process,
    RankProcess,
    RasAnswer,
    RecordedLag,
    Stack,
    ThreadState,
)
from preflight.probe.nvidia_driver import probe_xid_lines
from preflight.stuck.collect.find_ranks import FoundJob, is_data_worker
from preflight.stuck.collect.gpu_states import read_gpus
from preflight.stuck.collect.open_files import Mount, list_opened, moved, parse_locks, read_connections, read_mounts
from preflight.stuck.collect.process_table import Listed, shown_command
from preflight.stuck.collect.python_stacks import read_stacks
from preflight.stuck.collect.ras import NOT_ASKED, Ras, ask_ras
from preflight.stuck.collect.recordings import read_output_tail, read_recordings
from preflight.stuck.collect.thread_states import glance, look_at, scheduler_clock_s, watch
from preflight.system.isolate import Answer, run_isolated
from preflight.system.machine import Json, Machine

LEAST_WATCH_S, REST_S, REST_SHARE = 2.0, 4.0, 0.6
STACKS_S, AGAIN_S = 6.0, 3.0
SPARE_S = 3.0  # for a reader to answer once its time is up
SLOW_S = {"gpus": 6.0, "ras": 6.0, "recorded": 11.0}
MOST_HELPERS = 8  # of a rank whose stacks are read
ALLOW_PTRACE = (
    "Python stacks could not be read: this user may not look into the processes. Run as root or with CAP_SYS_PTRACE "
    "(docker run --cap-add SYS_PTRACE; kubectl debug --profile=general), or as root once: "
    "sysctl kernel.yama.ptrace_scope=0"
)


@dataclass(frozen=True, slots=True)
class How:
    """How evidence is to be taken."""

    watch_s: float  # at most; less where everything rests for long
    is_native: bool = False
    dumps: bool = False  # ask torch for flight recorder dumps where it has set up a pipe for that
    ras: Ras = Ras.REVIEWED


@dataclass(slots=True)
class _Taken:
    """What the readers brought, by pid."""

    threads: Mapping[int, tuple[ThreadState, ...]] = field(default_factory=dict)
    watched_s: float = 0.0
    stacks: Mapping[int, tuple[Stack, ...] | Gap] = field(default_factory=dict)
    earlier: Mapping[int, tuple[Stack, ...] | Gap] = field(default_factory=dict)
    ages_s: Mapping[int, float] = field(default_factory=dict)


def collect_node(machine: Machine, job: FoundJob, how: How, host: str, stopped: list[Interrupted]) -> NodeEvidence:
    """Return the evidence of this node about one job; after a signal, which goes into `stopped`, what there is by then.

    Must be called from a process with a single thread: it forks.
    """
    listed = [p for r in job.ranks for p in (r.process, *r.helpers[:MOST_HELPERS])] + [p for _, p in job.orphans]
    pids = [each.pid for each in listed if each.state != "Z"]
    ranks = {each.process.pid for each in job.ranks}
    of_ranks = [pid for pid in pids if pid in ranks]
    first_opened = {pid: _opened(machine, pid) for pid in of_ranks}
    first_connections = _connections(machine, of_ranks, first_opened)
    most_s, rest_s = how.watch_s, max(min(REST_S, how.watch_s), REST_SHARE * how.watch_s)
    functions: dict[str, Callable[[], Json]] = {
        "watch": partial(
            watch, pids, partial(look_at, machine), partial(scheduler_clock_s, machine),
            min(LEAST_WATCH_S, most_s), most_s, rest_s,
        ),
        "stacks": lambda: _encoded(read_stacks(_by_importance(listed, ranks), how.is_native, STACKS_S)),
        "output": lambda: {pid: encode_value(read_output_tail(machine, pid)) for pid in of_ranks},
        "gpus": lambda: encode_value(read_gpus(machine)),
        "ras": lambda: encode_value(ask_ras(machine, [r.process for r in job.ranks], how.ras)),
        "xids": lambda: encode_value(probe_xid_lines(machine)),
        "recorded": lambda: encode_value(read_recordings([r.process for r in job.ranks], how.dumps)),
    }  # fmt: skip
    limits_s = dict.fromkeys(functions, SPARE_S) | {"watch": most_s + rest_s + SPARE_S} | SLOW_S
    answers = run_isolated(functions, limits_s, when_stopped=stopped.append)
    watched = answers["watch"].value or glance(pids, partial(look_at, machine), partial(scheduler_clock_s, machine))
    earlier = _decoded(answers["stacks"], pids)
    threads = {int(p): decode_value(tuple[ThreadState, ...], each) for p, each in watched["threads"].items()}
    taken = _Taken(
        threads=threads, watched_s=watched["watched_s"],
        earlier=dict.fromkeys(pids, Gap(str(stopped[0]))) if stopped else earlier,
        stacks=earlier if stopped else _again(listed, threads, earlier, how), ages_s=_ages(machine, listed),
    )  # fmt: skip
    connections = _waiting(first_connections, _connections(machine, of_ranks, first_opened))
    mounts: dict[str, tuple[Mount, ...]] = {}
    files = {pid: _files(machine, pid, first_opened.get(pid), mounts) for pid in of_ranks}
    processes = {each.pid: _process(each, taken, files, connections) for each in listed}
    outputs = answers["output"].value or {}
    return NodeEvidence(
        SCHEMA_VERSION, host, _now(), round(taken.watched_s, 1), rest_s, job.name,
        tuple(
            RankProcess(
                r.rank, r.source, r.world_size, r.local_world_size, processes[r.process.pid],
                tuple(processes[h.pid] for h in r.helpers[:MOST_HELPERS]),
                _value(OutputTail | Gap, outputs.get(str(r.process.pid)), answers["output"].failure),
            )
            for r in job.ranks
        ),
        tuple(Orphan(number, processes[p.pid]) for number, p in job.orphans),
        _locks(machine, pids),
        _value(tuple[GpuState, ...] | Gap, answers["gpus"].value, answers["gpus"].failure),
        _value(RasAnswer | Gap, answers["ras"].value, answers["ras"].failure),
        _value(RecordedLag | Gap, answers["recorded"].value, answers["recorded"].failure),
        _value(tuple[str, ...] | Gap, answers["xids"].value, answers["xids"].failure),
        tuple(_not_seen(answers, processes.values(), of_ranks, job)),
    )  # fmt: skip


def _now() -> str:
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _by_importance(listed: Iterable[Listed], ranks: set[int]) -> list[int]:
    """Return the living: ranks first, since there may be more processes than time."""
    alive = [each.pid for each in listed if each.state != "Z"]
    return [pid for pid in alive if pid in ranks] + [pid for pid in alive if pid not in ranks]


def _encoded(stacks: Mapping[int, tuple[Stack, ...] | Gap]) -> Json:
    return {pid: encode_value(each) for pid, each in stacks.items()}


def _decoded(answer: Answer, pids: Iterable[int]) -> dict[int, tuple[Stack, ...] | Gap]:
    found = answer.value or {}
    return {pid: _value(tuple[Stack, ...] | Gap, found.get(str(pid)), answer.failure) for pid in pids}


def _value(kind: Any, document: Json, failure: str) -> Any:
    return decode_value(kind, document) if document is not None else Gap(failure or "it was not read")


def _again(
    listed: Iterable[Listed],
    threads: Mapping[int, tuple[ThreadState, ...]],
    earlier: Mapping[int, tuple[Stack, ...] | Gap],
    how: How,
) -> dict[int, tuple[Stack, ...] | Gap]:
    """Return the stacks at the end of the watch: read again of what did not sleep through it."""
    moving = [
        each.pid
        for each in listed
        if isinstance(earlier.get(each.pid), tuple) and (main := threads.get(each.pid))
        if main[0].state == "R" or main[0].wakes != 0
    ]
    again = read_stacks(moving, False, AGAIN_S)  # --native stops a process once, and not twice
    return {pid: _later(stacks, again.get(pid), how.is_native) for pid, stacks in earlier.items()}


def _later(
    first: tuple[Stack, ...] | Gap, last: tuple[Stack, ...] | Gap | None, is_native: bool
) -> tuple[Stack, ...] | Gap:
    """Return the stacks of the second look, unless it saw nothing, or the same without the frames of C."""
    if not isinstance(last, tuple) or not _has_frames(last):
        return first
    is_same = isinstance(first, tuple) and [each.python_frames for each in first] == [
        each.python_frames for each in last
    ]
    return first if is_native and is_same else last


def _has_frames(stacks: tuple[Stack, ...] | Gap | None) -> bool:
    """Tell whether a stack was caught: that of a process that runs may change while it is read."""
    return isinstance(stacks, tuple) and any(stack.frames for stack in stacks)


def _ages(machine: Machine, listed: Iterable[Listed]) -> dict[int, float]:
    with contextlib.suppress(UnreadableFact, ValueError, IndexError):
        uptime_s = float(machine.text("proc/uptime").split()[0])
        hz = os.sysconf("SC_CLK_TCK")
        return {each.pid: round(max(0.0, uptime_s - each.started_ticks / hz), 1) for each in listed}
    return {}


def _opened(machine: Machine, pid: int) -> Any:
    try:
        return list_opened(machine, pid)
    except UnreadableFact as error:
        return Gap(str(error))


def _files(machine: Machine, pid: int, first: Any, mounts: dict[str, tuple[Mount, ...]]) -> tuple[OpenFile, ...] | Gap:
    if first is None or isinstance(first, Gap):
        return first or Gap("it was not read")
    last = _opened(machine, pid)
    return last if isinstance(last, Gap) else moved(first[0], last[0], read_mounts(machine, pid, mounts))


def _connections(
    machine: Machine, pids: Sequence[int], opened: Mapping[int, Any]
) -> dict[int, tuple[Connection, ...] | Gap]:
    """Return the connections by process; the kernel's table is read once for each network namespace."""
    tables: dict[str, dict[int, Connection]] = {}
    found: dict[int, tuple[Connection, ...] | Gap] = {}
    for pid in pids:
        mine = opened[pid]
        if isinstance(mine, Gap):
            found[pid] = mine
            continue
        try:
            namespace = machine.link(f"proc/{pid}/ns/net")
        except UnreadableFact:
            namespace = str(pid)
        if namespace not in tables:
            tables[namespace] = read_connections(machine, pid)
        found[pid] = tuple(tables[namespace][i] for i in sorted(mine[1]) if i in tables[namespace])
    return found


def _waiting(
    first: Mapping[int, tuple[Connection, ...] | Gap], last: Mapping[int, tuple[Connection, ...] | Gap]
) -> dict[int, tuple[Connection, ...] | Gap]:  # fmt: skip
    """Return the last look with the queues that were there at both looks: others are on their way."""
    queued = {(pid, c.local, c.remote): c.send_queue_bytes for pid, each in first.items() for c in _known(each)}

    def waiting(pid: int, each: Connection) -> Connection:
        lasting = min(each.send_queue_bytes, queued.get((pid, each.local, each.remote), 0))
        return replace(each, send_queue_bytes=lasting)

    return {p: c if isinstance(c, Gap) else tuple(waiting(p, each) for each in c) for p, c in last.items()}


def _known(connections: tuple[Connection, ...] | Gap) -> tuple[Connection, ...]:
    return () if isinstance(connections, Gap) else connections


def _locks(machine: Machine, pids: Iterable[int]) -> tuple[HeldLock, ...]:
    try:
        locks = parse_locks(machine.text("proc/locks"), pids, {})
    except UnreadableFact:
        return ()
    return tuple(replace(each, holder=_command_of(machine, each.holding_pid)) for each in locks)


def _command_of(machine: Machine, pid: int) -> str:
    try:
        return machine.text(f"proc/{pid}/comm")  # the command line would take the process's memory lock
    except UnreadableFact:
        return ""


def _process(
    each: Listed, taken: _Taken, files: Mapping[int, tuple[OpenFile, ...] | Gap],
    connections: Mapping[int, tuple[Connection, ...] | Gap],
) -> Process:  # fmt: skip
    threads = taken.threads.get(each.pid, ())
    not_read = Gap("not read of helpers")
    has_ended = Gap("the process has ended")
    return Process(
        each.pid, each.parent_pid, each.name, shown_command(each.arguments),
        threads[0].state if threads else "Z" if each.state == "Z" else "X", taken.ages_s.get(each.pid, 0.0), threads,
        taken.stacks.get(each.pid, has_ended), taken.earlier.get(each.pid, has_ended),
        files.get(each.pid, not_read), connections.get(each.pid, not_read), is_data_worker(each),
    )  # fmt: skip


def _not_seen(
    answers: Mapping[str, Answer], processes: Iterable[Process], ranks: Sequence[int], job: FoundJob
) -> Iterable[str]:
    for name, answer in answers.items():
        if answer.failure:
            yield f"{name}: {answer.failure}"
    ras = _value(RasAnswer | Gap, answers["ras"].value, "")
    if isinstance(ras, Gap) and ras.reason.startswith(NOT_ASKED):
        yield ras.reason
    gaps = [p.stacks.reason for p in processes if p.pid in ranks and isinstance(p.stacks, Gap)]
    forbidden = [reason for reason in gaps if reason.startswith(NO_PTRACE)]
    if forbidden:
        yield f"{ALLOW_PTRACE} ({len(forbidden)} of {len(ranks)} ranks)"
    for reason in sorted(set(gaps) - set(forbidden)):
        yield f"Python stacks of {gaps.count(reason)} of {len(ranks)} ranks: {reason}"
    hidden = [r.process.hidden for r in job.ranks if r.process.hidden]
    if hidden:
        yield f"the environment of {len(hidden)} of {len(job.ranks)} ranks: {hidden[0]}"
