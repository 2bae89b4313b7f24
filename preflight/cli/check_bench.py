"""`preflight check` and `preflight bench`: the commands that start ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date

import typer

from preflight import app as application
from preflight.cli import commands, options
from preflight.cli.check_outputs import Outputs, give_up, open_outputs, read_history, save_interim, write_and_print
from preflight.cli.output import PROGRAM, Detail, check_outputs, detail_of, print_result, say_where, style
from preflight.cli.program import STARTED_AT
from preflight.errors import Interrupted, UsageError
from preflight.judge.check import all_checks
from preflight.judge.policy import parse_policy
from preflight.launch.launch_result import LaunchResult, progress_line
from preflight.launch.nodes.placement import Asked
from preflight.model.baseline import Baseline
from preflight.model.input_limits import BASELINE, CAPTURE, POLICY
from preflight.model.policy import Policy
from preflight.model.report import Report
from preflight.model.saved_report import load_baseline
from preflight.probe.capture import open_capture
from preflight.render.bench import render_bench, render_bench_screen
from preflight.render.check_screen import JobToStart, render_verdict
from preflight.render.json_document import render_json
from preflight.render.text import clean
from preflight.system.inputs import read_input
from preflight.system.kernel_queries import live_machine, machine_at
from preflight.system.streams import Progress, to_stderr

SHADOWED = (1, 3)  # a wrong request stays 2, and a signal what it is


def check(asked: commands.CheckOptions) -> None:
    """Carry out `preflight check`."""
    burn_s = options.burn_seconds(asked.minutes, asked.profile)
    request = application.Request(
        gpus=asked.gpus, nproc=asked.nproc, backend=asked.backend, profile=asked.profile, deadline_s=asked.deadline,
        stage_limit_s=asked.stage_limit, strict=asked.strict, accept=asked.accept, shadow=asked.shadow, keep=asked.keep,
        is_other_machine=asked.sysroot is not None or asked.machine is not None, is_played=asked.machine is not None,
        policy=None if asked.policy is None else _policy(asked.policy), burn_s=burn_s,
        baseline=None if asked.baseline is None else _baseline(asked.baseline), baseline_source=asked.baseline or "",
        history=read_history(asked.history),
        asked=Asked(asked.nnodes, asked.node_rank, asked.rdzv_endpoint, asked.rdzv_id),
        checkpoint_dir=asked.checkpoint_dir,
    )  # fmt: skip
    request = narrowed(request, asked.tests, asked.collectives, asked.sizes, asked.skip or ())
    outputs = open_outputs(
        asked.json, asked.env_out, asked.report, asked.also or (), detail_of(asked.verbose, asked.quiet), asked.history,
        JobToStart(asked.starts, asked.starts_if_unknown),
    )  # fmt: skip
    with shadowed(asked.shadow):
        _check(request, outputs, asked.sysroot, asked.machine)


@contextmanager
def shadowed(is_on: bool) -> Iterator[None]:
    """Exit with 0 where the answer would be 1 or 3, also where preflight itself failed, and say so on stderr.

    The answer is in the report, and nobody acts on the exit code: so a gate can be watched first.
    """
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


def narrowed(
    request: application.Request, tests: str | None, collectives: str | None, sizes: str | None, skip: Sequence[str]
) -> application.Request:
    """Return the request for only those tests and measurements, without the checks to skip; and for it to be told."""
    left_out = options.parse_skip(skip, {check.name for check in all_checks()}) if skip else frozenset()
    given = {"tests": tests, "collectives": collectives, "sizes": sizes, "skip": ",".join(sorted(left_out)) or None}
    return replace(
        request,
        tests=request.tests if tests is None else options.parse_tests(tests),
        collectives=request.collectives if collectives is None else options.parse_collectives(collectives),
        sizes=() if sizes is None else options.parse_sizes(sizes),
        skip=left_out,
        narrowed=" ".join(f"--{name} {''.join(text.split())}" for name, text in given.items() if text is not None),
    )


def _check(request: application.Request, outputs: Outputs, sysroot: str | None, machine: str | None) -> None:
    try:
        progress = Progress(is_quiet=outputs.detail is Detail.VERDICT)
        checked = run_ranks(request, progress, sysroot, machine, lambda interim: save_interim(interim, outputs))
    except (Exception, Interrupted) as error:
        if getattr(error, "exit_code", 3) != UsageError.exit_code:  # nobody may take an earlier run's answer for this
            give_up(application.unprobed(request, error), outputs)
        raise
    write_and_print(checked, outputs)


def bench(asked: commands.BenchOptions) -> None:
    """Carry out `preflight bench`."""
    check_outputs(asked.json)
    request = application.Request(
        gpus=asked.gpus, nproc=asked.nproc, backend=asked.backend, profile=asked.profile, deadline_s=asked.deadline,
        stage_limit_s=asked.stage_limit, collectives=options.parse_collectives(asked.collectives or "all"),
        default_only=True, tests=frozenset(), sizes=() if asked.sizes is None else options.parse_sizes(asked.sizes),
    )  # fmt: skip
    detail = detail_of(asked.verbose, asked.quiet)
    checked = run_ranks(request, Progress(is_quiet=detail is Detail.VERDICT))
    pages: dict[Detail, Callable[[], str]] = {
        Detail.VERDICT: lambda: render_verdict(checked.report, style()),
        Detail.SCREEN: lambda: render_bench_screen(checked.report, style(), asked.json or ""),
        Detail.ALL: lambda: render_bench(checked.report, style()),
    }
    print_result(asked.json, lambda: render_json(checked.report), pages[detail])
    say_where(checked.run_dir)
    raise typer.Exit(checked.report.exit_code)


def run_ranks(
    request: application.Request,
    progress: Progress,
    sysroot: str | None = None,
    capture_file: str | None = None,
    save: Callable[[Report], None] = lambda _: None,
) -> application.Checked:
    """Run a check on this machine, on a tree's facts, or on a capture whose machine the backend plays.

    `save` is given the report that holds if this process is killed meanwhile.
    """
    if sysroot is not None and capture_file is not None:
        raise UsageError("--sysroot and --machine: one machine at a time")
    live = live_machine()
    machine, silent = (
        (machine_at(sysroot), {}) if capture_file is None else open_capture(read_input(capture_file, CAPTURE))
    )
    process = live if capture_file is None else machine

    def show(launched: LaunchResult) -> None:
        progress.show(lambda width: progress_line(launched, request.until_s, width))

    try:
        return application.check(request, machine, process, os.environ, show, STARTED_AT, save, silent)
    finally:
        progress.clear()


def _policy(path: str) -> Policy:
    names = {check.name for check in all_checks()}
    return parse_policy(read_input(path, POLICY), path, names, date.today().isoformat())


def _baseline(path: str) -> Baseline:
    return load_baseline(read_input(path, BASELINE), path)
