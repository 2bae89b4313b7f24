"""The command line: parse, call app, print, and turn the outcome into an exit code. Only this file prints and exits."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from preflight import __version__
from preflight.errors import OutputError, PreflightError, UsageError
from preflight.model.run import Profile
from preflight.render.text import Style, clean
from preflight.system.files import check_writable, read_input, set_aside, write_atomically
from preflight.system.signals import raise_on_signals

if TYPE_CHECKING:
    from preflight import app as application
    from preflight.launch.launcher import Launched
    from preflight.survey import Survey
    from preflight.system.machine import Machine

PROGRAM = "preflight"
STDOUT = "-"
STARTED_AT = time.monotonic()
LONGEST_DEADLINE_S = 7 * 86400.0

app = typer.Typer(
    name=PROGRAM,
    help="Find out why a multi-GPU job will fail before it does, and which NCCL settings it needs, by trying them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Gpus = Annotated[
    str | None, typer.Option(metavar="LIST", help="GPUs as nvidia-smi numbers them: 6,7,8,9 or 0-3 or UUIDs.")
]
Nproc = Annotated[int | None, typer.Option(metavar="N", help="Ranks, for backends that need no GPU (default 2).")]
Backend = Annotated[str | None, typer.Option(metavar="NAME", help="nccl, gloo, or NAME@MODULE that registers it.")]
ProfileOption = Annotated[Profile, typer.Option(help="How thorough: seconds, minutes, or an hour under load.")]
Deadline = Annotated[float | None, typer.Option(metavar="S", help="End by then with what is known (180, 900, 3600).")]
JsonPath = Annotated[str | None, typer.Option("--json", metavar="PATH", help="Write one JSON document; - is stdout.")]
EnvOut = Annotated[str, typer.Option(metavar="PATH", help="Where the settings to source go.")]
ReportOut = Annotated[str, typer.Option(metavar="PATH", help="Where the full report goes.")]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")]
Accept = Annotated[bool, typer.Option("--accept", help="Answer for the node, not for the job: 0 accept, 1 reject.")]
StageLimit = Annotated[
    float | None, typer.Option(metavar="S", help="Override every stage's limit before it counts as hung.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the run's directory with all logs.")]
TopoOption = Annotated[
    str | None, typer.Option("--topo", metavar="FILE", help="Read a pasted `nvidia-smi topo -m` instead; - is stdin.")
]
MachineOption = Annotated[
    str | None, typer.Option("--machine", metavar="FILE", help="Read what `preflight capture` wrote; - is stdin.")
]
SysrootOption = Annotated[str | None, typer.Option(metavar="DIR", help="Read a recorded /sys and /proc tree instead.")]


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

    _check_seconds("--deadline", deadline)
    _check_seconds("--stage-limit", stage_limit)
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        strict=strict, accept=accept, keep=keep, is_other_machine=sysroot is not None,
    )  # fmt: skip
    _check_outputs(env_out, report, *([json] if json not in (None, STDOUT) else []))
    checked = _run(request, sysroot)
    _write_and_print(checked, json, env_out, report)


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

    _check_seconds("--deadline", deadline)
    _check_seconds("--stage-limit", stage_limit)
    _check_outputs(*([json] if json not in (None, STDOUT) else []))
    request = application.Request(
        gpus=gpus, nproc=nproc, backend=backend, profile=profile, deadline_s=deadline, stage_limit_s=stage_limit,
        collectives=tuple(Collective), default_only=True,
    )  # fmt: skip
    checked = _run(request, None)
    _print_result(json, lambda: render_json(checked.report), lambda: render_bench(checked.report, _style()))
    _say_where(checked.run_dir)
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

    _check_outputs(*([json] if json not in (None, STDOUT) else []))
    seen = _survey(gpus, sysroot, topo, machine)
    shown = (seen.node, seen.findings, seen.skipped)
    _print_result(
        json,
        lambda: render_probe_json(*shown, seen.gpu_set, seen.expected),
        lambda: render_probe_page(*shown, _style(), seen.gpu_set, seen.expected),
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

    _check_outputs(output)
    text = survey.capture(_machine(sysroot))
    if output == STDOUT:
        _print(text)
    else:
        write_atomically(output, text)


@app.command()
def checks() -> None:
    """List every check: what it promises, whom it blames, and what it can't see."""
    from preflight.judge.check import all_checks, describe  # noqa: PLC0415
    from preflight.render.checks import render_checks  # noqa: PLC0415

    _print(render_checks([describe(check) for check in all_checks()], _style()))


@app.callback(invoke_without_command=True)
def _global(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        _print(f"{PROGRAM} {__version__}\n")
        raise typer.Exit(0)


def main() -> NoReturn:
    """Run the command line and exit: never with a traceback, and never with 1 for what is not a verdict."""
    try:
        raise_on_signals()
        code = app(standalone_mode=False)
        _flush()
        code = code if isinstance(code, int) else 0
    except typer.TyperException as error:
        code = _fail(2, f"{_first_line(error)} (see {PROGRAM} --help)")
    except PreflightError as error:
        code = _fail(error.exit_code, str(error))
    except Exception as error:  # noqa: BLE001  Python's own exit code for it, 1, would reject a good node
        code = _fail(3, f"a defect in preflight: {type(error).__name__}: {error}")
    # Nothing is left to clean up, and a closed stdout must not have the last word through the interpreter's exit.
    os._exit(code)


def _run(request: application.Request, sysroot: str | None) -> application.Checked:
    from preflight import app as application  # noqa: PLC0415
    from preflight.plan.profiles import DEADLINE_S  # noqa: PLC0415
    from preflight.system.questions import live_machine  # noqa: PLC0415

    progress = _Progress(request.deadline_s or DEADLINE_S[request.profile])
    try:
        return application.check(request, _machine(sysroot), live_machine(), os.environ, progress.show, STARTED_AT)
    finally:
        progress.clear()


class _Progress:
    """The progress line on stderr, only where that is a terminal."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._shown = ""

    def show(self, launched: Launched) -> None:
        if not sys.stderr.isatty():
            return
        from preflight.launch.progress import progress_line  # noqa: PLC0415

        line = progress_line(launched, self._deadline_s, shutil.get_terminal_size().columns)
        if line != self._shown:
            self._shown = line
            _to_stderr(f"\r\033[K{line}")

    def clear(self) -> None:
        if self._shown:
            _to_stderr("\r\033[K")


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


def _write_and_print(checked: application.Checked, json_path: str | None, env_path: str, report_path: str) -> None:
    """Write the files first, so that a closed pipe can't lose them, then print; a failed write is exit code 3."""
    from preflight.render.console import render_check  # noqa: PLC0415
    from preflight.render.env_file import render_env  # noqa: PLC0415
    from preflight.render.json_document import render_json  # noqa: PLC0415

    report = checked.report
    failure: OutputError | None = None
    said: list[str] = []
    try:
        write_atomically(report_path, render_json(report))
        if report.exit_code == 0:
            write_atomically(env_path, render_env(report))
        elif report.exit_code in (1, 3):
            stale = set_aside(env_path)
            said += [f"{env_path} is from an earlier run and was renamed to {stale}"] if stale else []
    except OutputError as error:
        failure = error
    _print_result(json_path, lambda: render_json(report), lambda: render_check(report, _style(), env_path))
    for line in said:
        _to_stderr(f"{PROGRAM}: {line}\n")
    _say_where(checked.run_dir)
    if failure is not None:
        raise failure
    if checked.interrupted is not None:
        raise checked.interrupted
    raise typer.Exit(report.exit_code)


def _print_result(json_path: str | None, as_json: Callable[[], str], as_page: Callable[[], str]) -> None:
    """Print the page; with --json - print the document instead, with --json PATH write it as well."""
    if json_path == STDOUT:
        _print(as_json())
        return
    if json_path is not None:
        write_atomically(json_path, as_json())
    _print(as_page())


def _style() -> Style:
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((80, 24)).columns if is_terminal or "COLUMNS" in os.environ else 80
    colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(width=max(40, min(width, 120)), colour=colour)


def _say_where(run_dir: str) -> None:
    if run_dir:
        _to_stderr(f"{PROGRAM}: the logs of this run are kept in {run_dir}\n")


def _check_outputs(*paths: str | None) -> None:
    for path in paths:
        if path not in (None, STDOUT):
            check_writable(str(path))


def _check_seconds(option: str, value: float | None) -> None:
    if value is not None and not 0 < value <= LONGEST_DEADLINE_S:
        raise UsageError(f"{option} {value:g}: give seconds above 0 and up to {LONGEST_DEADLINE_S:.0f}")


def _print(text: str) -> None:
    """Write to stdout; a reader that went away (`| head -1`) has what it wanted, and the verdict stands."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(text)
        sys.stdout.flush()


def _flush() -> None:
    with contextlib.suppress(BrokenPipeError, OSError):
        sys.stdout.flush()


def _to_stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _fail(code: int, message: str) -> int:
    _to_stderr(f"{PROGRAM}: {clean(' '.join(message.split()))}\n")
    return code


def _first_line(error: Exception) -> str:
    text = getattr(error, "format_message", lambda: str(error))()
    return str(text).strip().splitlines()[0] if str(text).strip() else type(error).__name__
