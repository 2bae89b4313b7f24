"""The command line: parse, call app, print, and turn the outcome into an exit code. Only this file prints and exits."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from preflight import __version__
from preflight.cli.options import (
    Accept,
    Backend,
    Deadline,
    EnvOut,
    Gpus,
    JsonPath,
    Keep,
    Logs,
    MachineOption,
    Nproc,
    ProfileOption,
    ReportOut,
    StageLimit,
    Strict,
    SysrootOption,
    TopoOption,
    UnmeasuredEnv,
    check_seconds,
)
from preflight.cli.output import (
    PROGRAM,
    STDOUT,
    check_outputs,
    print_result,
    retire_env,
    say_where,
    style,
    write_and_print,
)
from preflight.errors import PreflightError, UsageError
from preflight.model.run import Profile
from preflight.render.text import clean
from preflight.system.files import read_input, write_atomically
from preflight.system.signals import raise_on_signals
from preflight.system.streams import open_missing_streams, to_stderr, to_stdout

if TYPE_CHECKING:
    from preflight import app as application
    from preflight.survey import Survey
    from preflight.system.machine import Machine

STARTED_AT = time.monotonic()

app = typer.Typer(
    name=PROGRAM,
    help="Find out why a multi-GPU job will fail before it does, and which NCCL settings it needs, by trying them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.command()
def check(
    gpus: Gpus = None,
    nproc: Nproc = None,
    backend: Backend = None,
    profile: ProfileOption = Profile.QUICK,
    deadline: Deadline = None,
    json: JsonPath = None,
    env_out: EnvOut = "preflight.env",
    report: ReportOut = "preflight-report.json",
    strict: Strict = False,
    accept: Accept = False,
    stage_limit: StageLimit = None,
    keep: Keep = False,
    sysroot: SysrootOption = None,
) -> None:
    """Probe this node, try real collectives, and write the settings that the job needs.

    Exit codes: 0 ready, 1 not ready, 2 usage, 3 preflight could not look.
    """
    from preflight import app as application  # noqa: PLC0415  `--help` must not pay for it

    check_seconds("--deadline", deadline)
    check_seconds("--stage-limit", stage_limit)
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        strict=strict, accept=accept, keep=keep, is_other_machine=sysroot is not None,
    )  # fmt: skip
    check_outputs(env_out, report, *([json] if json not in (None, STDOUT) else []))
    try:
        checked = _run(request, sysroot)
    except Exception as error:
        if getattr(error, "exit_code", 3) == 3:  # unknown: nobody may source what an earlier run found
            retire_env(env_out)
        raise
    write_and_print(checked, json, env_out, report)


@app.command()
def bench(
    gpus: Gpus = None,
    nproc: Nproc = None,
    backend: Backend = None,
    profile: ProfileOption = Profile.STANDARD,
    deadline: Deadline = None,
    json: JsonPath = None,
    stage_limit: StageLimit = None,
) -> None:
    """Time every collective under the default settings and print nccl-tests' table."""
    from preflight import app as application  # noqa: PLC0415
    from preflight.model.collective import Collective  # noqa: PLC0415
    from preflight.render.bench import render_bench  # noqa: PLC0415
    from preflight.render.json_document import render_json  # noqa: PLC0415

    check_seconds("--deadline", deadline)
    check_seconds("--stage-limit", stage_limit)
    check_outputs(*([json] if json not in (None, STDOUT) else []))
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        collectives=tuple(Collective), default_only=True,
    )  # fmt: skip
    checked = _run(request, None)
    print_result(json, lambda: render_json(checked.report), lambda: render_bench(checked.report, style()))
    say_where(checked.run_dir)
    raise typer.Exit(checked.report.exit_code)


@app.command()
def probe(
    gpus: Gpus = None,
    json: JsonPath = None,
    sysroot: SysrootOption = None,
    topo: TopoOption = None,
    machine: MachineOption = None,
    strict: Strict = False,
) -> None:
    """Print what this node is made of, and the findings that follow from that alone. Starts nothing, needs no torch."""
    from preflight.judge.verdict import probe_exit_code  # noqa: PLC0415
    from preflight.render.console import render_probe_page  # noqa: PLC0415
    from preflight.render.json_document import render_probe_json  # noqa: PLC0415

    check_outputs(*([json] if json not in (None, STDOUT) else []))
    seen = _survey(gpus, sysroot, topo, machine)
    shown = (seen.node, seen.findings, seen.skipped)
    print_result(
        json,
        lambda: render_probe_json(*shown, seen.gpu_set, seen.expected),
        lambda: render_probe_page(*shown, style(), seen.gpu_set, seen.expected),
    )
    raise typer.Exit(probe_exit_code(seen.findings, seen.skipped, strict=strict))


@app.command()
def capture(
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where it goes; - is stdout.")] = STDOUT,
    sysroot: SysrootOption = None,
) -> None:
    """Write everything that the probes read of this machine as one JSON, for `preflight probe --machine` elsewhere.

    Host names, MAC and IP addresses, GUIDs, serials and UUIDs are replaced, the same ones alike.
    """
    from preflight import survey  # noqa: PLC0415

    check_outputs(output)
    text = survey.capture(_machine(sysroot))
    if output == STDOUT:
        to_stdout(text)
    else:
        write_atomically(output, text)


@app.command()
def checks() -> None:
    """List every check: what it promises, whom it blames, and what it can't see."""
    from preflight.judge.check import all_checks, describe  # noqa: PLC0415
    from preflight.render.checks import render_checks  # noqa: PLC0415

    to_stdout(render_checks([describe(check) for check in all_checks()], style()))


@app.command()
def explain(logs: Logs, json: JsonPath = None, env_out: UnmeasuredEnv = None) -> None:
    """Name what really ended a failed or hung run, from its logs: the first failure, not its consequences.

    Exit codes: 0 nothing failed, 1 a cause was named, 2 usage, 3 not enough evidence.
    """
    from preflight.explain.read import explain_paths  # noqa: PLC0415
    from preflight.render.explain import render_explanation, render_explanation_env  # noqa: PLC0415
    from preflight.render.json_document import render_json  # noqa: PLC0415

    check_outputs(env_out, *([json] if json not in (None, STDOUT) else []))
    explanation = explain_paths(logs)
    if env_out is not None:
        write_atomically(env_out, render_explanation_env(explanation))
    print_result(json, lambda: render_json(explanation), lambda: render_explanation(explanation, style()))
    raise typer.Exit(explanation.exit_code)


@app.callback(invoke_without_command=True)
def _global(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        to_stdout(f"{PROGRAM} {__version__}\n")
        raise typer.Exit(0)


def main() -> NoReturn:
    """Run the command line and exit: never with a traceback, and never with 1 for what is not a verdict."""
    open_missing_streams()
    try:
        raise_on_signals()
        code = app(standalone_mode=False)
        code = code if isinstance(code, int) else 0
    except typer.TyperException as error:
        code = _fail(2, f"{_first_line(error)} (see {PROGRAM} --help)")
    except PreflightError as error:
        code = _fail(error.exit_code, str(error))
    except SystemExit:
        code = 0  # typer's answer to a reader of --help that went away: its 1 would be a verdict
    except Exception as error:  # noqa: BLE001  Python's own exit code for it, 1, would reject a good node
        code = _fail(3, f"a defect in preflight: {type(error).__name__}: {error}")
    # Nothing is left to clean up, and a closed stdout must not have the last word through the interpreter's exit.
    os._exit(code)


def _run(request: application.Request, sysroot: str | None) -> application.Checked:
    from preflight import app as application  # noqa: PLC0415
    from preflight.launch.progress import Progress  # noqa: PLC0415
    from preflight.plan.profiles import DEADLINE_S  # noqa: PLC0415
    from preflight.system.questions import live_machine  # noqa: PLC0415

    progress = Progress(request.deadline_s or DEADLINE_S[request.profile])
    try:
        return application.check(request, _machine(sysroot), live_machine(), os.environ, progress.show, STARTED_AT)
    finally:
        progress.clear()


def _survey(gpus: str | None, sysroot: str | None, topo: str | None, capture_file: str | None) -> Survey:
    """Return the facts of the one machine that was named, by default of this one."""
    from preflight import survey  # noqa: PLC0415

    named = [name for name, given in (("sysroot", sysroot), ("topo", topo), ("machine", capture_file)) if given]
    if len(named) > 1:
        raise UsageError(f"--{' and --'.join(named)}: one machine at a time")
    if topo:
        return survey.survey_topology(read_input(topo), gpus)
    if capture_file:
        return survey.survey_capture(read_input(capture_file), gpus)
    return survey.survey_machine(_machine(sysroot), gpus)


def _machine(sysroot: str | None) -> Machine:
    from preflight.system.questions import live_machine, tree_machine  # noqa: PLC0415

    if sysroot is None:
        return live_machine()
    if not os.path.isdir(sysroot):
        raise UsageError(f"--sysroot {sysroot}: not a directory")
    return tree_machine(Path(sysroot))


def _fail(code: int, message: str) -> int:
    to_stderr(f"{PROGRAM}: {clean(' '.join(message.split()))}\n")
    return code


def _first_line(error: Exception) -> str:
    text = getattr(error, "format_message", lambda: str(error))()
    return str(text).strip().splitlines()[0] if str(text).strip() else type(error).__name__
