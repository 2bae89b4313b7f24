"""Recorded evidence: ranks as real jobs showed them, with the parts that a test is about replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from preflight.model.gap import Gap
from preflight.model.stuck_evidence import (
    NO_PTRACE,
    SCHEMA_VERSION,
    Connection,
    Frame,
    NodeEvidence,
    OpenFile,
    Process,
    RankProcess,
    Stack,
    ThreadState,
)

SITE = "/venv/lib/python3.11/site-packages"
C10D = f"{SITE}/torch/distributed/distributed_c10d.py"
JOB = "/home/user/train.py"
NONE = Gap("not read")
ALL_REDUCE = (
    Frame("all_reduce", C10D, 3252),
    Frame("_exception_logger.<locals>.wrapper", f"{SITE}/torch/distributed/c10d_logger.py", 83),
    Frame("all_reduce_gradients", JOB, 187),
    Frame("train", JOB, 167),
)
SAVE = (
    Frame("_save", f"{SITE}/torch/serialization.py", 88),
    Frame("save_checkpoint", JOB, 52),
    Frame("train", JOB, 170),
)


def frames(*calls: tuple[str, str, int]) -> tuple[Frame, ...]:
    """Return frames, innermost first; a path without `/` is one of the job's own files."""
    return tuple(
        Frame(name, file if file.startswith(("/", "<")) else f"/home/user/{file}", n) for name, file, n in calls
    )


def thread(tid: int, state: str = "S", channel: str = "futex_do_wait", asleep_s: float | Gap = 60.0) -> ThreadState:
    """Return a main thread that has slept for a minute, unless told otherwise."""
    return ThreadState(tid, "python", state, channel, 0.0, 0 if asleep_s == 60.0 else 5, asleep_s)


def process(
    pid: int, stack: Sequence[Frame] | None = ALL_REDUCE, main: ThreadState | None = None, *, has_gil: bool = False,
    earlier: Sequence[Frame] | None = None, files: tuple[OpenFile, ...] = (),
    connections: tuple[Connection, ...] = (), is_data_worker: bool = False, name: str = "python",
) -> Process:  # fmt: skip
    """Return a process; without a stack ptrace is forbidden."""
    first = main or thread(pid)
    group = ThreadState(pid + 1000, "gloo_tcp_loop", "S", "do_epoll_wait", 0.0, 0, 60.0)
    stacks: tuple[Stack, ...] | Gap = Gap(f"{NO_PTRACE} for this user")
    before = stacks
    if stack is not None:
        stacks = (Stack(pid, "MainThread", has_gil, tuple(stack)),)
        before = (Stack(pid, "MainThread", has_gil, tuple(stack if earlier is None else earlier)),)
    return Process(
        pid, 1, name, f"{name} train.py", first.state, 600.0, (first, group), stacks, before, files, connections,
        is_data_worker,
    )  # fmt: skip


def rank(
    number: int | Gap, own: Process | None = None, helpers: tuple[Process, ...] = (), size: int = 4
) -> RankProcess:
    """Return a rank that waits in an all_reduce, unless told otherwise."""
    pid = 100 + number if isinstance(number, int) else 199
    return RankProcess(number, "RANK", size, size, own or process(pid), helpers, NONE)


def server(pid: int, name: str, own: Process) -> RankProcess:
    """Return a process that gives a serving engine's ranks their work."""
    return RankProcess(NONE, "", NONE, NONE, replace(own, pid=pid), (), NONE, name)


def node(*ranks: RankProcess, host: str = "n0", **parts: Any) -> NodeEvidence:
    """Return a node's evidence."""
    values: dict[str, Any] = {
        "orphans": (),
        "locks": (),
        "gpus": NONE,
        "ras": NONE,
        "recorded": NONE,
        "xid_lines": NONE,
        "not_seen": (),
    } | parts
    return NodeEvidence(SCHEMA_VERSION, host, "2026-11-22T00:00:00Z", 2.0, 4.0, "job", ranks, **values)


def four(odd: RankProcess, host: str = "n0", **parts: Any) -> NodeEvidence:
    """Return four ranks, of which one is as told."""
    ranks = tuple(odd if odd.rank == number else rank(number) for number in range(4))
    return node(*ranks, host=host, **parts)
