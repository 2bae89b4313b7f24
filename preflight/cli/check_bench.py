"""`preflight check` and `preflight bench`: the commands that start ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date

import typer

from preflight import app as application
from preflight.cli import options
from preflight.cli.check_outputs import Outputs, give_up, open_outputs, read_history, save_interim, write_and_print
from preflight.cli.output import Detail, check_outputs, detail_of, print_result, say_where, style
from preflight.cli.program import STARTED_AT
from preflight.cli.shadow import shadowed
from preflight.errors import Interrupted, UsageError
from preflight.judge.check import all_checks
from preflight.judge.policy import parse_policy
from preflight.launch.launch_result import LaunchResult, progress_line
from preflight.launch.nodes.placement import Asked
from preflight.model.input_limits import BASELINE, CAPTURE, POLICY
from preflight.model.policy import Policy
from preflight.model.profile import Profile
from preflight.model.report import Report
from preflight.model.saved_report import load_baseline
from preflight.plan.profiles import DEADLINE_S
from preflight.probe.capture import open_capture
from preflight.render.bench import render_bench, render_bench_screen
from preflight.render.check_screen import Job, render_verdict
from preflight.render.json_document import render_json
from preflight.system.inputs import read_input
from preflight.system.kernel_queries import live_machine, machine_at
from preflight.system.streams import Progress


def check(
    gpus: options.Gpus = None,
    nproc: options.Nproc = None,
    backend: options.Backend = None,
    profile: options.ProfileOption = Profile.QUICK,
    deadline: options.Deadline = None,
    json: options.JsonPath = None,
    env_out: options.EnvOut = "preflight.env",
    report: options.ReportOut = "preflight-report.json",
    also: options.Also = [],  # noqa: B006  typer copies it
    strict: options.Strict = False,
    accept: options.Accept = False,
    shadow: options.Shadow = False,
    stage_limit: options.StageLimit = None,
    keep: options.Keep = False,
    policy: options.PolicyFile = None,
    baseline: options.BaselineFile = None,
    history: options.HistoryFile = None,
    minutes: options.Minutes = None,
    sysroot: options.SysrootOption = None,
    machine: options.PlayedMachine = None,
    nnodes: options.Nnodes = None,
    node_rank: options.NodeRank = None,
    rdzv_endpoint: options.Endpoint = None,
    rdzv_id: options.RunId = None,
    checkpoint_dir: options.SharedDirectory = None,
    tests: options.Tests = None,
    collectives: options.Collectives = None,
    sizes: options.Sizes = None,
    skip: options.Skip = [],  # noqa: B006
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
    starts: options.Starts = "",
    starts_if_unknown: options.StartsIfUnknown = False,
) -> None:
    """Probe this node, try real collectives, and write the settings that the job needs.

    Exit codes: 0 ready, 1 not ready, 2 usage, 3 preflight could not look.
    """
    burn_s = options.burn_seconds(minutes, profile)
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        strict=strict, accept=accept, shadow=shadow, keep=keep,
        is_other_machine=sysroot is not None or machine is not None,
        is_played=machine is not None, policy=None if policy is None else _policy(policy), burn_s=burn_s,
        baseline=None if baseline is None else load_baseline(read_input(baseline, BASELINE), baseline),
        baseline_source=baseline or "", history=read_history(history),
        asked=Asked(nnodes, node_rank, rdzv_endpoint, rdzv_id), checkpoint_dir=checkpoint_dir,
    )  # fmt: skip
    request = narrowed(request, tests, collectives, sizes, skip)
    outputs = open_outputs(
        json, env_out, report, also, detail_of(verbose, quiet), history, Job(starts, starts_if_unknown)
    )
    with shadowed(shadow):
        _check(request, outputs, sysroot, machine)


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


def bench(
    gpus: options.Gpus = None,
    nproc: options.Nproc = None,
    backend: options.Backend = None,
    profile: options.ProfileOption = Profile.STANDARD,
    deadline: options.Deadline = None,
    json: options.JsonPath = None,
    stage_limit: options.StageLimit = None,
    collectives: options.Collectives = "all",
    sizes: options.Sizes = None,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Time every collective under the default settings; -v prints nccl-tests' table.

    Exit codes: 0 the defaults work, 1 they do not, 2 usage, 3 preflight could not look.
    """
    check_outputs(json)
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        collectives=options.parse_collectives(collectives or "all"), default_only=True, tests=frozenset(),
        sizes=() if sizes is None else options.parse_sizes(sizes),
    )  # fmt: skip
    detail = detail_of(verbose, quiet)
    checked = run_ranks(request, Progress(is_quiet=detail is Detail.VERDICT))
    pages: dict[Detail, Callable[[], str]] = {
        Detail.VERDICT: lambda: render_verdict(checked.report, style()),
        Detail.SCREEN: lambda: render_bench_screen(checked.report, style(), json or ""),
        Detail.ALL: lambda: render_bench(checked.report, style()),
    }
    print_result(json, lambda: render_json(checked.report), pages[detail])
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
    deadline_s = request.deadline_s or DEADLINE_S[request.profile]

    def show(launched: LaunchResult) -> None:
        progress.show(lambda width: progress_line(launched, deadline_s, width))

    try:
        return application.check(request, machine, process, os.environ, show, STARTED_AT, save, silent)
    finally:
        progress.clear()


def _policy(path: str) -> Policy:
    names = {check.name for check in all_checks()}
    return parse_policy(read_input(path, POLICY), path, names, date.today().isoformat())
