"""All evidence from this node. Each read that may hang runs in a child process with a time limit."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from preflight.errors import Interrupted, UnreadableFact
from preflight.facts.nvidia_driver import probe_xid_lines
from preflight.model.codec import decode_value, encode_value
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import (
    NO_PTRACE,
    SCHEMA_VERSION,
    GpuState,
    JobSoftware,
    NodeEvidence,
    Orphan,
    OutputTail,
    Process,
    RankProcess,
    RasAnswer,
    RecordedLag,
    ThreadState,
)
from preflight.stuck.collect.gpus import read_gpus
from preflight.stuck.collect.jobs import FoundJob
from preflight.stuck.collect.libraries import read_software
from preflight.stuck.collect.open_files import FileWatch, read_locks, read_moved_bytes
from preflight.stuck.collect.ras import NOT_ASKED, AskRas, ask_ras
from preflight.stuck.collect.recordings import read_output_tail, read_recordings
from preflight.stuck.collect.stacks import STACKS_S, Stacks, read_stacks, reread_stacks
from preflight.stuck.collect.threads import glance_at_threads, watch_threads
from preflight.system.as_user import become_user
from preflight.system.isolate import Answer, run_isolated
from preflight.system.machine import Json, Machine

REST_S, REST_SHARE = 4.0, 0.6
SPARE_S = 3.0  # for a reader to answer once its time is up
SLOW_S = {"gpus": 6.0, "software": 6.0, "ras": 6.0, "recorded": 11.0}
MOST_HELPERS = 8  # of a rank whose stacks are read
ALLOW_PTRACE = (
    "Python stacks could not be read: this user may not read the processes. Run as root or with CAP_SYS_PTRACE "
    "(docker run --cap-add SYS_PTRACE; kubectl debug --profile=general), or run once as root: sysctl "
    "kernel.yama.ptrace_scope=0"
)


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """The options for collecting evidence from a node; the defaults disturb the job least."""

    watch_s: float  # at most; shorter if every process has rested for long
    is_native: bool = False
    dumps: bool = False  # ask torch for flight recorder dumps, if it has set up a pipe for that
    ras: AskRas = AskRas.REVIEWED


def collect_node(
    machine: Machine, job: FoundJob, options: CollectOptions, host: str, stopped: list[Interrupted]
) -> NodeEvidence:
    """Return the evidence about `job` from this node, whose name is `host`.

    Call this function from a process with a single thread, because the function forks.
    """
    # After a signal, the evidence so far is returned, and the signal is added to `stopped`.
    # Ranks first: there may be more processes than time.
    rank_processes = [each.process for each in job.ranks]
    helpers = [each for rank in job.ranks for each in rank.helpers[:MOST_HELPERS]]
    listed = [*rank_processes, *job.servers, *helpers, *(each for _, each in job.orphans)]
    uid = rank_processes[0].uid
    pids = [each.pid for each in listed if each.state != "Z"]
    rank_pids = [each.pid for each in rank_processes if each.state != "Z"]

    # What may hang, and what takes a while, at the same time. The files are looked at before and after.
    file_watch = FileWatch(machine, rank_pids)
    moved_before = {pid: read_moved_bytes(machine, pid) for pid in pids}
    most_s, rest_s = options.watch_s, max(min(REST_S, options.watch_s), REST_SHARE * options.watch_s)

    def stacks_by_pid() -> Json:
        found = read_stacks(pids, options.is_native, STACKS_S, uid)
        return {pid: encode_value(each) for pid, each in found.items()}

    def as_user(read: Callable[[], Json]) -> Callable[[], Json]:
        """Return a reader that becomes the job's user before the read."""

        def reader() -> Json:
            become_user(uid)
            return read()

        return reader

    functions: dict[str, Callable[[], Json]] = {
        "watch": partial(watch_threads, machine, pids, most_s, rest_s),
        "stacks": stacks_by_pid,
        "output": as_user(lambda: {pid: encode_value(read_output_tail(machine, pid)) for pid in rank_pids}),
        "gpus": lambda: encode_value(read_gpus(machine)),
        "software": as_user(lambda: encode_value(read_software(machine, rank_processes))),
        "ras": as_user(lambda: encode_value(ask_ras(machine, rank_processes, options.ras))),
        "xids": lambda: encode_value(probe_xid_lines(machine)),
        "recorded": as_user(lambda: encode_value(read_recordings(rank_processes, options.dumps))),
    }
    limits_s = dict.fromkeys(functions, SPARE_S) | SLOW_S
    limits_s |= {"watch": most_s + rest_s + SPARE_S, "stacks": STACKS_S + SPARE_S}
    answers = run_isolated(functions, limits_s, when_stopped=stopped.append)

    def answered(kind: Any, name: str, pid: int | None = None) -> Any:
        """Return the result of the reader `name` (for process `pid`), or a Gap if the reader failed."""
        value = answers[name].value
        part = value if pid is None else (value or {}).get(str(pid))
        return decode_value(kind, part) if part is not None else Gap(answers[name].failure or "it was not read")

    # What moved meanwhile is looked at again.
    watched = answers["watch"].value or glance_at_threads(machine, pids)
    threads = {int(pid): decode_value(tuple[ThreadState, ...], each) for pid, each in watched["threads"].items()}
    earlier: dict[int, Stacks] = {pid: answered(Stacks, "stacks", pid) for pid in pids}
    stacks: dict[int, Stacks] = earlier
    if stopped:
        earlier = dict.fromkeys(pids, Gap(str(stopped[0])))
    else:
        earlier, stacks = reread_stacks(earlier, threads, options.is_native, uid)
    moved = {pid: read_moved_bytes(machine, pid) for pid in pids}
    connections = file_watch.waiting_connections()
    files = {pid: file_watch.files(pid) for pid in rank_pids}
    uptime_s, ticks_per_s = None, os.sysconf("SC_CLK_TCK")
    with contextlib.suppress(UnreadableFact, ValueError, IndexError):
        uptime_s = float(machine.text("proc/uptime").split()[0])

    has_ended, not_read = Gap("the process has ended"), Gap("not read of helpers")
    processes = {}
    for each in listed:
        own = threads.get(each.pid, ())
        processes[each.pid] = Process(
            pid=each.pid,
            parent_pid=each.parent_pid,
            name=each.name,
            command=each.command,
            state=own[0].state if own else "Z" if each.state == "Z" else "X",
            age_s=0.0 if uptime_s is None else round(max(0.0, uptime_s - each.started_ticks / ticks_per_s), 1),
            threads=own,
            stacks=stacks.get(each.pid, has_ended),
            earlier_stacks=earlier.get(each.pid, has_ended),
            files=files.get(each.pid, not_read),
            connections=connections.get(each.pid, not_read),
            is_data_worker=each.is_data_worker,
            moved_bytes=max(0, (moved.get(each.pid) or 0) - (moved_before.get(each.pid) or 0)),
        )
    ranks = tuple(
        RankProcess(
            rank=each.rank,
            rank_source=each.source,
            world_size=each.world_size,
            local_world_size=each.local_world_size,
            process=processes[each.process.pid],
            helpers=tuple(processes[helper.pid] for helper in each.helpers[:MOST_HELPERS]),
            output=answered(OutputTail | Gap, "output", each.process.pid),
            name=each.process.engine_name,
        )
        for each in job.ranks
    )
    no_rank = Gap("it is not a rank")
    servers = tuple(
        RankProcess(
            no_rank, "", no_rank, no_rank, processes[each.pid], (), no_rank,
            each.engine_name or f"the program {each.name}",
        )
        for each in job.servers
    )  # fmt: skip
    ras = answered(RasAnswer | Gap, "ras")
    return NodeEvidence(
        schema_version=SCHEMA_VERSION,
        host=host,
        taken_at=dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        watched_s=round(watched["watched_s"], 1),
        rest_s=rest_s,
        job=job.name,
        ranks=ranks,
        orphans=tuple(Orphan(number, processes[each.pid]) for number, each in job.orphans),
        locks=read_locks(machine, pids),
        gpus=answered(tuple[GpuState, ...] | Gap, "gpus"),
        ras=ras,
        recorded=answered(RecordedLag | Gap, "recorded"),
        xid_lines=answered(tuple[str, ...] | Gap, "xids"),
        software=answered(JobSoftware | Gap, "software"),
        servers=servers,
        not_seen=tuple(_not_seen(answers, job, ras, [processes[pid].stacks for pid in rank_pids])),
    )


def _not_seen(answers: dict[str, Answer], job: FoundJob, ras: RasAnswer | Gap, stacks: list[Stacks]) -> Iterator[str]:
    """Yield texts on evidence that could not be read, each with the step that would make it readable."""
    for name, answer in answers.items():
        if answer.failure:
            yield f"{name}: {answer.failure}"
    if isinstance(ras, Gap) and ras.reason.startswith(NOT_ASKED):
        yield ras.reason
    gaps = [each.reason for each in stacks if isinstance(each, Gap)]
    forbidden = [reason for reason in gaps if reason.startswith(NO_PTRACE)]
    if forbidden:
        yield f"{ALLOW_PTRACE} ({len(forbidden)} of {len(stacks)} ranks)"
    for reason in sorted(set(gaps) - set(forbidden)):
        yield f"Python stacks of {gaps.count(reason)} of {len(stacks)} ranks: {reason}"
    hidden = [each.process.hidden for each in job.ranks if each.process.hidden]
    if hidden:
        yield f"the environment of {len(hidden)} of {len(job.ranks)} ranks: {hidden[0]}"
