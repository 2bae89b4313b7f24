"""`preflight stuck`: a job that hangs now."""

from __future__ import annotations

import os
import platform
import pwd
import time
from typing import Annotated

import typer

from preflight.cli.options import JsonPath, Quiet, Verbose, timed, valued
from preflight.cli.output import PROGRAM, STDOUT, Detail, check_outputs, detail_of, refuse_stdout, style
from preflight.errors import Interrupted, UsageError
from preflight.launch.nodes.placement import step_nodes
from preflight.model.stuck import StuckReport
from preflight.model.stuck_evidence import NodeEvidence
from preflight.render.json_document import render_json
from preflight.render.stuck import render_stuck
from preflight.render.stuck_screen import render_stuck_screen, render_stuck_verdict
from preflight.stuck.collect.collect_node import How, collect_node
from preflight.stuck.collect.find_ranks import FoundJob, find_jobs, jobs_of_pid, without_own
from preflight.stuck.collect.process_table import list_processes
from preflight.stuck.judge.answer import answer
from preflight.stuck.node_files import read_nodes, wait_for_nodes, write_node
from preflight.system.files import PRIVATE, write_atomically
from preflight.system.kernel_queries import live_machine
from preflight.system.streams import to_stderr, to_stdout

WATCH_S = 6.0
LARGEST_PID = 1 << 22  # PID_MAX_LIMIT of Linux
OTHERS_S = 8.0  # for the other nodes' files
CLOCK_SKEW_S = 30.0  # between nodes and the file server

Pid = Annotated[int | None, valued("PID", "The job of this rank, or below this launcher.", "--pid")]
JobOption = Annotated[str | None, valued("ID", "The job with this Slurm job id or torchrun run id.", "--job")]
User = Annotated[str | None, valued("NAME", "The job of this user (root only).", "--user")]
Out = Annotated[str | None, valued("DIR", "Write this node's evidence there, for --merge.", "--out")]
Merge = Annotated[str | None, valued("DIR", "Judge what several nodes wrote there; look at nothing here.", "--merge")]
Native = Annotated[bool, typer.Option("--native", help="C and C++ frames too; stops each process for milliseconds.")]
Dump = Annotated[bool, typer.Option("--dump", help="Have torch write flight recorder dumps, where its pipe is set up.")]
Watch = Annotated[float | None, timed("Watch for so long at most whether ranks move (6s).", "--watch")]


def stuck(
    pid: Pid = None, job: JobOption = None, user: User = None, watch: Watch = None, native: Native = False,
    dump: Dump = False, out: Out = None, merge: Merge = None, json: JsonPath = None, verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Say of a job that hangs now which rank is where and why, without harming it.

    Looks at the ranks on this node; signals, changes and kills nothing, and writes nothing but --out and --json.
    Exit codes: 0 not stuck, 1 stuck and said why, 2 usage, 3 could not tell.
    """
    refuse_stdout("--out", out)
    check_outputs(json)
    if pid is not None and not 0 < pid <= LARGEST_PID:
        raise UsageError(f"--pid {pid}: a process has a number from 1 to {LARGEST_PID}")
    if merge is not None and (out or pid or job or user):
        raise UsageError("--merge looks at nothing here: give it alone, or with --json")
    stopped: list[Interrupted] = []
    if merge is not None:
        nodes, problems = read_nodes(merge)
        if not nodes:
            raise UsageError(f"{merge}: no node wrote its evidence there{': ' + problems[0] if problems else ''}")
    else:
        problems = ()
        nodes = _look(pid, job, user, How(WATCH_S if watch is None else watch, native, dump), out, stopped)
    for problem in problems:
        to_stderr(f"{PROGRAM}: {problem}\n")
    report = answer(nodes)
    code = stopped[0].exit_code if stopped else report.exit_code
    if stopped:
        to_stderr(f"{PROGRAM}: {stopped[0]}: this is what had been seen by then\n")
    if json == STDOUT:
        to_stdout(render_json(report))
        raise typer.Exit(code)
    if json is not None:
        write_atomically(json, render_json(report), PRIVATE)
    to_stdout(_page(report, detail_of(verbose, quiet), [each for each in (out, json) if each is not None]))
    raise typer.Exit(code)


def _page(report: StuckReport, detail: Detail, written: list[str]) -> str:
    match detail:
        case Detail.VERDICT:
            return render_stuck_verdict(report, style())
        case Detail.SCREEN:
            return render_stuck_screen(report, style(), written)
        case Detail.ALL:
            return render_stuck(report, style())


def _look(
    pid: int | None, job: str | None, user: str | None, how: How, out: str | None, stopped: list[Interrupted]
) -> tuple[NodeEvidence, ...]:  # fmt: skip
    started_at = time.time()
    machine = live_machine()
    uid = _uid_of(user) if user is not None else os.geteuid()
    is_any = os.geteuid() == 0 and user is None and (pid is not None or job is not None)
    processes, note = list_processes(machine, lambda owner: is_any or owner == uid)
    if note:
        to_stderr(f"{PROGRAM}: {note}\n")
    processes = without_own(processes, os.getpid())
    found = find_jobs(processes)
    if pid is not None:
        found = jobs_of_pid(found, processes, pid)
    if job is not None:
        found = tuple(each for each in found if job in each.name.replace(":", " ").split()[1:])
    if not found:
        to_stderr(f"{PROGRAM}: {_nobody(pid, job, len(processes))}\n")
        return ()
    if len(found) > 1:
        raise UsageError(f"{len(found)} jobs run here, name one with --pid: {'; '.join(map(_shown, found[:8]))}")
    evidence = collect_node(machine, found[0], how, platform.node(), stopped)
    if out is None:
        return (evidence,)
    to_stderr(f"{PROGRAM}: this node's evidence is in {write_node(out, evidence)}\n")
    count, number = step_nodes(os.environ)
    if count < 2 or number != 0 or stopped:
        return (evidence,)
    try:
        wait_for_nodes(out, count, started_at - CLOCK_SKEW_S, OTHERS_S)
    except Interrupted as error:
        stopped.append(error)
    nodes, _ = read_nodes(out)
    return tuple(each for each in nodes if each.job == evidence.job) or (evidence,)


def _nobody(pid: int | None, job: str | None, process_count: int) -> str:
    about = f" of --pid {pid}" if pid is not None else f" of --job {job}" if job is not None else ""
    more = "" if os.geteuid() == 0 else "; other users' ranks take root and --user, --job or --pid"
    return f"no rank{about} was found among {process_count} processes of this user{more}"


def _shown(job: FoundJob) -> str:
    numbers = [each.process.pid for each in job.ranks]
    return f"--pid {numbers[0]} ({len(numbers)} ranks, {job.name})"


def _uid_of(user: str) -> int:
    if os.geteuid() != 0:
        raise UsageError("--user: only root can look into other users' processes")
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UsageError(f"--user {user}: there is no such user") from None
