"""`preflight check` and `preflight bench`: the commands that start ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields

import typer

from preflight.check import app as application
from preflight.check.request import BenchRequest, Request
from preflight.cli import commands
from preflight.cli.check_outputs import Outputs, give_up, open_outputs, save_interim, write_and_print
from preflight.cli.output import PROGRAM, check_outputs, detail_of, print_result, say_where, style
from preflight.cli.program import STARTED_AT
from preflight.errors import Interrupted, UsageError
from preflight.facts.capture import open_capture
from preflight.judge.check import all_checks
from preflight.model.input_limits import CAPTURE
from preflight.model.placement import start_line
from preflight.model.report import Report
from preflight.show.bench import bench_page
from preflight.show.json_document import render_json
from preflight.show.text import Detail, clean
from preflight.system.inputs import read_input
from preflight.system.kernel_queries import live_machine, machine_at
from preflight.system.machine import Machine
from preflight.system.streams import Progress, to_stderr
from preflight.trial.agent_process import AgentProcess
from preflight.trial.launch_result import LaunchResult, progress_line

MOST_LINES = 3  # for the nodes that are still to be started
SHADOWED = (1, 3)  # a wrong request stays 2, and a signal what it is


def check(request: Request, agent: AgentProcess) -> None:
    """Run `preflight check` on this node, write the outputs, and exit with the report's exit code."""
    outputs = open_outputs(request)
    if outputs.detail is not Detail.VERDICT and request.node_rank == 0 and request.nnodes and request.rdzv_endpoint:
        others = range(1, request.nnodes)
        for rank in others[:MOST_LINES]:
            to_stderr(f"{PROGRAM}: on node {rank}: {start_line(request.nnodes, rank, request.rdzv_endpoint)}\n")
        if others[MOST_LINES:]:
            to_stderr(f"{PROGRAM}: and so on to --node-rank {others[-1]}\n")
    with shadowed(request.shadow):
        with given_up(request, outputs):
            progress = Progress(is_quiet=outputs.detail is Detail.VERDICT)
            checked = run_ranks(request, agent, progress, lambda interim: save_interim(interim, outputs))
        write_and_print(checked, outputs)


@contextmanager
def given_up(request: Request, outputs: Outputs) -> Iterator[None]:
    """Write a report with the verdict "unknown" if the block fails or is stopped.

    After a usage error, no report is written.
    """
    # Without this report, a reader could take the report of an earlier run for the report of this run.
    try:
        yield
    except (Exception, Interrupted) as error:
        if getattr(error, "exit_code", 3) != UsageError.exit_code:
            give_up(application.unprobed(request, error), outputs)
        raise


@contextmanager
def shadowed(is_on: bool) -> Iterator[None]:
    """If `is_on` (--shadow) is true, replace the exit codes 1 and 3 of the block by 0, and say so on stderr.

    The report still contains the real verdict.
    """
    # A failure of preflight also ends with exit code 0.
    try:
        yield
    except typer.Exit as end:
        if not is_on or end.exit_code not in SHADOWED:
            raise
        _exit_with_0(end.exit_code, "")
    except Exception as error:
        code = getattr(error, "exit_code", 3)
        if not is_on or code not in SHADOWED:
            raise
        _exit_with_0(code, f"{type(error).__name__}: {error}; ")


def _exit_with_0(code: int, why: str) -> None:
    to_stderr(f"{PROGRAM}: {clean(' '.join(why.split()))}{' ' if why else ''}--shadow: exit code 0 instead of {code}\n")
    raise typer.Exit(0) from None


def bench(asked: commands.BenchOptions, agent: AgentProcess) -> None:
    """Run `preflight bench`: time the collectives, print the result, and exit with the report's exit code."""
    check_outputs(asked.json)
    request = BenchRequest(**{field.name: getattr(asked, field.name) for field in fields(asked)})
    detail = detail_of(asked.verbose, asked.quiet)
    checked = run_ranks(request, agent, Progress(is_quiet=detail is Detail.VERDICT))
    page = bench_page(checked.report, asked.json or "")
    print_result(asked.json, lambda: render_json(checked.report), lambda: page.shown(detail, style()))
    say_where(checked.run_dir)
    raise typer.Exit(checked.report.exit_code)


def run_ranks(
    request: Request, agent: AgentProcess, progress: Progress, save: Callable[[Report], None] = lambda _: None
) -> application.Checked:
    """Run the ranks on the machine that `request` selects, and return the result of the check.

    The machine is this one, a recorded /sys and /proc tree, or a captured machine that the backend simulates. Raise
    UsageError if the options are invalid.
    """
    # `agent` runs the ranks, and `progress` shows the results so far. Before the ranks start, `save` gets the report
    # that is valid if this process is killed.
    request.must_make_sense({check.name for check in all_checks()})
    live = live_machine()
    machine: Machine = live
    silent: Mapping[str, str] = {}
    if request.sysroot is not None:
        machine = machine_at(request.sysroot)
    elif request.machine is not None:
        machine, silent = open_capture(read_input(request.machine, CAPTURE))
    process = machine if request.is_played else live

    def show(launched: LaunchResult) -> None:
        progress.show(lambda width: progress_line(launched, request.until_s, width))

    try:
        return application.check(request, machine, process, os.environ, agent, show, STARTED_AT, save, silent)
    finally:
        progress.clear()
