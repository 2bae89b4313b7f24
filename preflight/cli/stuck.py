"""`preflight stuck`: examine a job that hangs now."""

from __future__ import annotations

import os
import platform
import pwd
import time
from collections.abc import Sequence
from dataclasses import replace

import typer

from preflight.cli.commands import StuckOptions
from preflight.cli.extras import must_have_linux
from preflight.cli.output import PROGRAM, STDOUT, check_outputs, detail_of, refuse_stdout, style
from preflight.errors import Interrupted, UsageError
from preflight.model.stuck import EXIT_CODES, StuckVerdict
from preflight.model.stuck_evidence import NodeEvidence
from preflight.show.json_document import render_json
from preflight.show.stuck import job_title, jobs_page, stuck_page
from preflight.stuck.collect.jobs import FoundJob, ProcessTable
from preflight.stuck.collect.node import CollectOptions, collect_node
from preflight.stuck.collect.ras import AskRas
from preflight.stuck.judge.answer import answer
from preflight.stuck.node_files import read_nodes, wait_for_nodes, write_node
from preflight.system.files import PRIVATE, write_atomically
from preflight.system.kernel_queries import live_machine
from preflight.system.known_bugs import load_known_bugs
from preflight.system.machine import Machine
from preflight.system.streams import to_stderr, to_stdout
from preflight.trial.nodes.placement import step_nodes

WATCH_S = 6.0
ASKS = {None: AskRas.REVIEWED, True: AskRas.INSIST, False: AskRas.NEVER}  # by --ras and --no-ras
BY_WEIGHT = (1, 3, 0)  # exit codes: what --all answers for several jobs
LARGEST_PID = 1 << 22  # PID_MAX_LIMIT of Linux
OTHERS_S = 8.0  # for the other nodes' files
CLOCK_SKEW_S = 30.0  # between nodes and the file server


def stuck(asked: StuckOptions) -> None:
    """Run `preflight stuck` on this node, and exit with the result's exit code.

    With `--merge`, read the evidence that several nodes wrote, and don't examine this node.
    """
    refuse_stdout("--out", asked.out)
    check_outputs(asked.json)
    if asked.of is not None and asked.pid is not None:
        raise UsageError(f"{asked.of} and --pid {asked.pid}: name one process")
    pid = asked.pid if asked.of is None else asked.of
    if pid is not None and not 0 < pid <= LARGEST_PID:
        raise UsageError(f"--pid {pid}: a process has a number from 1 to {LARGEST_PID}")
    if asked.merge is not None and (asked.out or pid or asked.job or asked.user or asked.all_jobs):
        raise UsageError("--merge reads no process of this node: give it alone, or with --json")
    if asked.all_jobs and (asked.json or asked.out or pid):
        raise UsageError("--all prints a page for each job: give one job's PID for --json or --out")
    stopped: list[Interrupted] = []
    if asked.merge is not None:
        nodes, problems = read_nodes(asked.merge)
        if not nodes:
            raise UsageError(f"{asked.merge}: no node wrote its evidence there{': ' + problems[0] if problems else ''}")
        for problem in problems:
            to_stderr(f"{PROGRAM}: {problem}\n")
        raise typer.Exit(answered(asked, nodes, stopped))
    must_have_linux("preflight stuck without --merge")
    machine = live_machine()
    found = find_jobs(asked, pid, machine)
    if len(found) > 1 and not asked.all_jobs:
        if asked.json is not None:
            raise UsageError(
                f"{len(found)} jobs run here: name one, such as `preflight stuck {found[0].ranks[0].process.pid}`"
            )
        to_stdout(jobs_page([job.row(machine) for job in found]).shown(detail_of(asked.verbose, asked.quiet), style()))
        raise typer.Exit(UsageError.exit_code)
    codes: set[int] = set()
    for job in found or (None,):
        if not stopped:
            if job is not None and asked.all_jobs:
                to_stdout(job_title(job.row(machine), is_first=not codes, is_quiet=asked.quiet))
            nodes = () if job is None else _look(asked, job, machine, stopped)
            codes.add(answered(asked, nodes, stopped))
    raise typer.Exit(stopped[0].exit_code if stopped else next(code for code in BY_WEIGHT if code in codes))


def find_jobs(asked: StuckOptions, pid: int | None, machine: Machine) -> tuple[FoundJob, ...]:
    """Return the jobs on this node that the options or `pid` select.

    If no job is selected, write the reason to stderr.
    """
    uid = _uid_of(asked.user) if asked.user is not None else os.geteuid()
    is_named = pid is not None or asked.job is not None or asked.all_jobs
    is_any = os.geteuid() == 0 and asked.user is None and is_named
    table = ProcessTable.read(machine, lambda owner: is_any or owner == uid).without(os.getpid())
    if table.note:
        to_stderr(f"{PROGRAM}: {table.note}\n")
    found = table.jobs(pid)
    if asked.job is not None:
        found = tuple(each for each in found if each.goes_by(asked.job))
    if not found:
        to_stderr(f"{PROGRAM}: {_nobody(pid, asked.job, len(table.by_pid))}\n")
    return found


def answered(
    asked: StuckOptions, nodes: tuple[NodeEvidence, ...], stopped: list[Interrupted], unseen: Sequence[str] = ()
) -> int:
    """Judge the evidence from the nodes, print and write the report, and return the exit code.

    `stopped` has the signal that interrupted the command, if any.
    """
    # `unseen` has a line with the reason for each node that gave no evidence.
    report = answer(nodes, load_known_bugs())
    if unseen and report.verdict is StuckVerdict.NOT_STUCK:
        unknown, of_others = StuckVerdict.UNKNOWN, f"some nodes were not checked; of the others: {report.summary}"
        report = replace(report, verdict=unknown, exit_code=EXIT_CODES[unknown], summary=of_others)
    report = replace(report, not_seen=(*unseen, *report.not_seen))
    if stopped:
        to_stderr(f"{PROGRAM}: {stopped[0]}: these are the results so far\n")
    if asked.json is not None and asked.json != STDOUT:
        write_atomically(asked.json, render_json(report), PRIVATE)
    written = [each for each in (asked.out, asked.json) if each is not None]
    page = stuck_page(report, written).shown(detail_of(asked.verbose, asked.quiet), style())
    to_stdout(render_json(report) if asked.json == STDOUT else page)
    return stopped[0].exit_code if stopped else report.exit_code


def look_here(asked: StuckOptions, job: FoundJob, machine: Machine, stopped: list[Interrupted]) -> NodeEvidence:
    """Return this node's evidence about `job`.

    If a signal cuts the collection short, the signal is added to `stopped`.
    """
    options = CollectOptions(watch_s(asked), asked.native, asked.dump, ASKS[asked.ras])
    return collect_node(machine, job, options, platform.node(), stopped)


def watch_s(asked: StuckOptions) -> float:
    """Return the maximum number of seconds for watching the ranks.

    The result is the value of `--watch`, or WATCH_S by default.
    """
    return WATCH_S if asked.watch is None else asked.watch


def _look(asked: StuckOptions, job: FoundJob, machine: Machine, stopped: list[Interrupted]) -> tuple[NodeEvidence, ...]:
    """Return the evidence about a job from this node, and from the other nodes that wrote evidence into --out."""
    started_at, out = time.time(), asked.out
    evidence = look_here(asked, job, machine, stopped)
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
    more = "" if os.geteuid() == 0 else "; for other users' ranks, run as root with --user, --job or --pid"
    return f"no rank{about} was found among {process_count} processes of this user{more}"


def _uid_of(user: str) -> int:
    if os.geteuid() != 0:
        raise UsageError("--user: only root can look into other users' processes")
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UsageError(f"--user {user}: there is no such user") from None
