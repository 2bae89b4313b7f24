"""`preflight stuck`: a job that hangs now."""

from __future__ import annotations

import os
import platform
import pwd
import time

import typer

from preflight.cli.commands import StuckOptions
from preflight.cli.output import PROGRAM, STDOUT, check_outputs, detail_of, refuse_stdout, style
from preflight.errors import Interrupted, UsageError
from preflight.model.stuck_evidence import NodeEvidence
from preflight.show.json_document import render_json
from preflight.show.stuck import stuck_page
from preflight.stuck.collect.jobs import ProcessTable
from preflight.stuck.collect.node import CollectOptions, collect_node
from preflight.stuck.collect.ras import AskRas
from preflight.stuck.judge.answer import answer
from preflight.stuck.node_files import read_nodes, wait_for_nodes, write_node
from preflight.system.files import PRIVATE, write_atomically
from preflight.system.kernel_queries import live_machine
from preflight.system.streams import to_stderr, to_stdout
from preflight.trial.nodes.placement import step_nodes

WATCH_S = 6.0
ASKS = {None: AskRas.REVIEWED, True: AskRas.INSIST, False: AskRas.NEVER}  # by --ras and --no-ras
LARGEST_PID = 1 << 22  # PID_MAX_LIMIT of Linux
OTHERS_S = 8.0  # for the other nodes' files
CLOCK_SKEW_S = 30.0  # between nodes and the file server


def stuck(asked: StuckOptions) -> None:
    """Carry out `preflight stuck`."""
    refuse_stdout("--out", asked.out)
    check_outputs(asked.json)
    if asked.pid is not None and not 0 < asked.pid <= LARGEST_PID:
        raise UsageError(f"--pid {asked.pid}: a process has a number from 1 to {LARGEST_PID}")
    if asked.merge is not None and (asked.out or asked.pid or asked.job or asked.user):
        raise UsageError("--merge reads no process of this node: give it alone, or with --json")
    stopped: list[Interrupted] = []
    if asked.merge is not None:
        nodes, problems = read_nodes(asked.merge)
        if not nodes:
            raise UsageError(f"{asked.merge}: no node wrote its evidence there{': ' + problems[0] if problems else ''}")
    else:
        problems = ()
        nodes = _look(asked, stopped)
    for problem in problems:
        to_stderr(f"{PROGRAM}: {problem}\n")
    report = answer(nodes)
    code = stopped[0].exit_code if stopped else report.exit_code
    if stopped:
        to_stderr(f"{PROGRAM}: {stopped[0]}: these are the results so far\n")
    if asked.json == STDOUT:
        to_stdout(render_json(report))
        raise typer.Exit(code)
    if asked.json is not None:
        write_atomically(asked.json, render_json(report), PRIVATE)
    written = [each for each in (asked.out, asked.json) if each is not None]
    to_stdout(stuck_page(report, written).shown(detail_of(asked.verbose, asked.quiet), style()))
    raise typer.Exit(code)


def _look(asked: StuckOptions, stopped: list[Interrupted]) -> tuple[NodeEvidence, ...]:
    pid, job, user, out = asked.pid, asked.job, asked.user, asked.out
    watch_s = WATCH_S if asked.watch is None else asked.watch
    options = CollectOptions(watch_s, asked.native, asked.dump, ASKS[asked.ras])
    started_at = time.time()
    machine = live_machine()
    uid = _uid_of(user) if user is not None else os.geteuid()
    is_any = os.geteuid() == 0 and user is None and (pid is not None or job is not None)
    table = ProcessTable.read(machine, lambda owner: is_any or owner == uid).without(os.getpid())
    if table.note:
        to_stderr(f"{PROGRAM}: {table.note}\n")
    found = table.jobs(pid)
    if job is not None:
        found = tuple(each for each in found if job in each.name.replace(":", " ").split()[1:])
    if not found:
        to_stderr(f"{PROGRAM}: {_nobody(pid, job, len(table.by_pid))}\n")
        return ()
    if len(found) > 1:
        raise UsageError(f"{len(found)} jobs run here, name one with --pid: {'; '.join(map(str, found[:8]))}")
    evidence = collect_node(machine, found[0], options, platform.node(), stopped)
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


def _uid_of(user: str) -> int:
    if os.geteuid() != 0:
        raise UsageError("--user: only root can look into other users' processes")
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UsageError(f"--user {user}: there is no such user") from None
