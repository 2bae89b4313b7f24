"""The main program: the table of commands, and `main`, which sets the exit code.

Only the modules of this package print and exit.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from preflight import __version__
from preflight.check.option_kinds import ANSWERS_BACK, PRINTED
from preflight.cli.extras import must_have_linux
from preflight.cli.hints import hint
from preflight.cli.output import PROGRAM
from preflight.cli.plain_values import take_plain_values
from preflight.errors import BrokenInstallation, PreflightError, Stopped
from preflight.model.units import counted
from preflight.show.text import clean
from preflight.system.last_resort import limit_behind, retire_outputs
from preflight.system.signals import ignore_signals, raise_dropped, raise_on_signals
from preflight.system.streams import open_missing_streams, to_stderr, to_stdout

VARIABLES = "PREFLIGHT"  # PREFLIGHT_CHECK_DEADLINE=5m is --deadline 5m of `preflight check`
WORDY, EMPTY = "Input should be a valid ", "Value error, "  # pydantic, before what it could not do
# What typer raises for a wrong command line: TyperException, or in versions before 0.27 click's ClickException.
WrongCommandLine: type[Exception] = typer.BadParameter.__bases__[0].__bases__[0]
STARTED_AT = time.monotonic()


# Every command: the file of preflight/cli that holds its function, the first sentence of its help (commands.py), and
# two examples with what they do.
COMMANDS = {
    "explain": ("explain", "Find the root cause of a failed or hung run in its logs.", (
        ("preflight explain slurm-4711.out", "one log"),
        ("preflight explain logs/ nccl_trace_rank_*", "all ranks, and flight recorder dumps"),
    )),
    "stuck": ("stuck", "Show where each rank of a hung job waits, and why.", (
        ("preflight stuck", "the job of this user on this node"),
        ("preflight stuck 4711", "the job of process 4711"),
    )),
    "check": ("check_bench", "Test this node with real collectives, and write NCCL settings.", (
        ("preflight check --gpus 0-3", "before a job on these GPUs"),
        ("preflight check --accept --also drain=why.txt", "accept or reject the node"),
    )),
    "run": ("run", "Check the node, start the job, and diagnose a hang or failure.", (
        ("preflight run -- torchrun ... train.py", "check, then start"),
        ("preflight run --reuse 1h -- python train.py", "reuse a check of the last hour"),
    )),
    "timeout": ("timeout", "Compute a safe timeout for the collectives of a job.", (
        ("preflight timeout --params 7B --strategy fsdp", "for a model of this size"),
        ("preflight timeout --params 7B --current 1800", "whether 1,800 s is enough"),
    )),
    "probe": ("probe_capture", "Show the hardware and limits of this node, and their faults.", (
        ("preflight probe", "this node, without any test"),
        ("preflight probe --gpus 0-3 --json -", "these GPUs, as JSON"),
    )),
    "bench": ("check_bench", "Time every collective under the default settings.", (
        ("preflight bench -v", "a table like nccl-tests"),
        ("preflight bench --gpus 0,1 --sizes 8:1G", "two GPUs, other sizes"),
    )),
    "render": ("reports", "Convert a saved report to another format.", (
        ("preflight render report.json -o page.html", "a page of HTML"),
        ("preflight render report.json -f drain", "the drain reason"),
    )),
    "fleet": ("fleet_baseline", "Compare the reports of many nodes, and list outliers.", (
        ("preflight fleet reports/", "all reports of a folder"),
        ("preflight fleet reports/ --out page", "also write an HTML page and host lists"),
    )),
    "baseline": ("fleet_baseline", "Compute speed thresholds from reports of known-good nodes.", (
        ("preflight baseline good/ -o baseline.json", "write the thresholds"),
        ("preflight check --baseline baseline.json", "compare a node with the thresholds"),
    )),
    "diff": ("diff", "Show what changed on a node since it worked.", (
        ("preflight diff good/preflight-report.json", "compare with this machine"),
        ("preflight diff good.json bad.json", "compare two reports"),
    )),
    "capture": ("probe_capture", "Record this machine in one JSON file, for `probe --machine`.", (
        ("preflight capture -o node.json", "record this machine"),
        ("preflight probe --machine node.json", "show that record on another machine"),
    )),
    "gpu-report": ("gpu_report", "Test real GPUs, and pack the results for an issue.", (
        ("preflight gpu-report", "all GPUs, 10 minutes at most"),
        ("preflight gpu-report --on ssh:node[01-04]", "test these nodes"),
    )),
    "doctor": ("doctor", "Check this installation, and list what is missing.", (
        ("preflight doctor", "check this installation (about 10 lines)"),
        ("preflight doctor --json -", "as JSON"),
    )),
    "checks": ("reports", "List the checks, or explain the named checks.", (
        ("preflight checks", "all checks, one line each"),
        ("preflight checks memlock acs-redirects", "explain these two checks"),
    )),
    "schema": ("reports", "Print the JSON Schema of the report, or of another document.", (
        ("preflight schema", "schema of the report of `check`"),
        ("preflight schema stuck", "schema of the JSON of `stuck`"),
    )),
}  # fmt: skip
START_RANKS = frozenset({"check", "bench"})  # torch is imported for them while their own modules are loaded
# The files of preflight/cli that know --on.
ON_NODES = {"check": "on_nodes", "stuck": "stuck_on_nodes", "gpu-report": "gpu_report_on_nodes"}
OPTIONS_APART = frozenset({"explain", "timeout"})  # in a file of their own, which takes time to load
NEED_LINUX = frozenset({"check", "gpu-report", "run", "probe", "bench", "capture"})
HELP_NAMES, HELP_ALL = ["-h", "--help"], "--help-all"


QUESTIONS = (
    ("My job died", "preflight explain slurm-4711.out"),
    ("My job hangs, now", "preflight stuck"),
    ("A job is about to start", "preflight check --gpus 0-3"),
    ("Check, start and watch a job", "preflight run -- torchrun ... train.py"),
)  # fmt: skip


class Commands(TyperGroup):
    """The program `preflight` itself, without a command.

    The options of the program can be given only on the command line.
    """

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the program, which environment variables can't set."""
        found = super().get_params(ctx)
        for param in found:
            if isinstance(param, TyperOption):
                param.allow_from_autoenv = param.show_envvar = False
        return found

    def parse_args(self, ctx: Any, args: Any) -> Any:
        """Parse the options of the program. Also accept `help`, `help check` and `version`, as other tools do."""
        take_plain_values(self.get_params(ctx))
        match args:
            case ["help", *names]:
                args = [*names[:1], "--help"]
            case ["version"]:
                args = ["--version"]
            case _:
                pass
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the description of preflight, and a list that shows which command answers which question."""
        super().format_help_text(ctx, formatter)
        with formatter.section("Which of these is you (`preflight help COMMAND` shows its options)"):
            formatter.write_dl(QUESTIONS)


app = typer.Typer(
    name=PROGRAM,
    cls=Commands,
    help="Before a multi-GPU job starts, find out why it would fail, and test which NCCL settings it needs.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={
        "help_option_names": HELP_NAMES,
        "max_content_width": 100,
        "auto_envvar_prefix": VARIABLES,
    },
)


def _load(file: str) -> Any:
    """Return the module `file` of preflight/cli.

    Raise BrokenInstallation if this module or one of its imports can't be loaded.
    """
    try:
        return importlib.import_module(f"preflight.cli.{file}")
    except Exception as error:
        what = f"{type(error).__name__}: {error}{limit_behind(error)}"
        raise BrokenInstallation(f"this installation can't be loaded: {what}") from error


def options_record(command: str) -> Any:
    """Return the class with the options of `command`, or None if the command's function declares the options."""
    file = f"{command}_options" if command in OPTIONS_APART else "commands"
    return getattr(_load(file), "".join(map(str.capitalize, [*command.split("-"), "options"])), None)


def _function_of(command: str, file: str | None = None) -> Any:
    return getattr(_load(file or COMMANDS[command][0]), command.replace("-", "_"))


def _agent(params: Mapping[str, Any]) -> AbstractContextManager[Any]:
    from preflight.trial.agent_process import started_agent  # noqa: PLC0415  only what starts ranks needs it

    is_other_machine = params.get("sysroot") is not None or params.get("machine") is not None
    return started_agent(os.environ, wakes_gpus=not is_other_machine)


WIDE = 50  # columns for names and texts of options in two columns


class GroupedCommand(TyperCommand):
    """A command whose --help shows the options in groups, with the group "Output" last.

    A signal ends the command in an orderly way.
    """

    def parse_args(self, ctx: Any, args: Any) -> Any:
        """Parse the command's arguments."""
        take_plain_values(self.get_params(ctx))
        ctx.meta[HELP_ALL] = HELP_ALL in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and control how the process reacts to signals."""
        # A signal that arrives while modules are loaded ends the process. After the result is printed, a signal has no
        # effect.
        name = str(self.name)
        if name in NEED_LINUX:
            must_have_linux(f"preflight {name}")
        on = ctx.params.get("on")
        is_record = options_record(name) is not None
        asked = super().invoke(ctx) if is_record else None  # what can't be parsed starts nothing
        with _agent(ctx.params) if name in START_RANKS and on in (None, ANSWERS_BACK) else nullcontext() as agent:
            function = _function_of(name, None if on is None else ON_NODES[name])
            raise_on_signals()
            try:
                code = function(asked, *([agent] if agent else [])) if is_record else super().invoke(ctx)
                raise_dropped()
            finally:
                ignore_signals()
        return code

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the command's name.

        The arguments have the same names as in the help text.
        """
        arguments: list[Any] = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        if not all(param.metavar for param in arguments):
            return list(super().collect_usage_pieces(ctx))
        return ["[OPTIONS]", *(param.metavar if param.required else f"[{param.metavar}]" for param in arguments)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write two examples, and then the description of the command."""
        with formatter.section("Examples"):
            lines = COMMANDS[str(self.name)][2]
            if formatter.width >= WIDE:
                formatter.write_dl(lines, col_max=WIDE)
            else:
                formatter.write_text("; ".join(line for line, _ in lines))
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in groups, with the group "Output" last.

        Rare options are shown only by --help-all.
        """
        groups: dict[str, list[tuple[str, str]]] = {}
        params: list[Any] = self.get_params(ctx)
        rare = [param for param in params if param.param_type_name == "option" and param.hidden and param.help]
        shows_all = bool(ctx.meta.get(HELP_ALL))
        for param in params:
            param.hidden = getattr(param, "hidden", False) and not (shows_all and param in rare)
            record = param.get_help_record(ctx)
            is_option = param.param_type_name == "option"
            if record is not None and not is_option and param.metavar:
                record = param.metavar, param.help  # without its type, which for typer is a Python type
            if HELP_ALL in param.opts:
                more = f" {HELP_ALL} also shows {counted(len(rare), 'rare option')}." if rare and not shows_all else ""
                record = "-h, --help", f"Show this page.{more}"
                param.rich_help_panel = PRINTED
            group = (getattr(param, "rich_help_panel", None) or "Options") if is_option else "Arguments"
            if record is not None:
                groups.setdefault(group, []).append(record)
        for group in sorted(groups, key=lambda name: name == PRINTED):
            with formatter.section(group):
                formatter.write_dl(groups[group], col_max=30 if formatter.width >= WIDE else 10)

    def get_help(self, ctx: Any) -> str:
        """Return the help text, made for the width of the terminal.

        Click's own help text is never narrower than 52 columns.
        """
        ctx.terminal_width = min(shutil.get_terminal_size().columns, ctx.max_content_width) - 2
        return str(super().get_help(ctx))


class LazyCommand(TyperCommand):
    """A command whose module is loaded only when the command runs.

    As a result, `--help` is fast.
    """

    def make_context(self, info_name: str | None, *args: Any, **kwargs: Any) -> Any:
        """Load the real command, parse the arguments with the real command, and return the command's Click context."""
        return real_command(str(self.name)).make_context(info_name, *args, **kwargs)


def real_command(name: str) -> Any:
    """Return the command `name` with all its options."""
    takes = {"help_option_names": [*HELP_NAMES, HELP_ALL]}
    real = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, context_settings=takes
    )
    real.command(name, cls=GroupedCommand)(options_record(name) or _function_of(name))
    command = typer.main.get_command(real)
    command.allow_interspersed_args = name != "run"  # what follows the job's name is the job's
    for param in command.params:
        if isinstance(param, TyperOption):
            param.show_envvar = False  # there is one rule for all, in docs/reference/commands.md
    return command


for _name, _row in COMMANDS.items():
    app.command(_name, cls=LazyCommand, help=_row[1])(lambda: None)


@app.callback(invoke_without_command=True)
def _global(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        to_stdout(f"{PROGRAM} {__version__}\n")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        to_stdout(context.get_help() + "\n")
        raise typer.Exit(2)  # 0 would be a verdict: ready


def main() -> NoReturn:
    """Run the command line, and exit without a traceback.

    The exit code is 1 only if the command's verdict is negative, never after an error in preflight.
    """
    open_missing_streams()
    code = 3  # if even the handlers below fail
    try:
        answer = app(standalone_mode=False, prog_name=PROGRAM)
        code = answer if isinstance(answer, int) else 0
    except WrongCommandLine as error:
        said, meant = _first_line(error), _hint(error)
        code = _fail(2, f"{said.rstrip('.') if meant else said}{meant} (see {_asked(error)} --help)")
    except (PreflightError, Stopped) as error:
        code = _fail(error.exit_code, str(error))
        if isinstance(error, BrokenInstallation):  # `check` could write nothing
            retire_outputs(sys.argv[1:])
    except SystemExit:
        code = 0  # typer's answer to a reader of --help that went away: its 1 would be a verdict
    except Exception as error:  # noqa: BLE001  Python's own exit code for it, 1, would reject a good node
        limit, what = limit_behind(error), f"{type(error).__name__}: {error}"
        code = _fail(3, f"memory ran out ({what}){limit}" if limit else f"a defect in preflight: {what}")
        retire_outputs(sys.argv[1:])
    finally:
        # Nothing is left to clean up, and a closed stdout must not have the last word through the interpreter's exit.
        os._exit(code)


def _fail(code: int, message: str) -> int:
    to_stderr(f"{PROGRAM}: {clean(' '.join(message.split()))}\n")
    return code


def _asked(error: Exception) -> str:
    """Return the command whose --help page helps after a usage error, such as `preflight check`."""
    return f"{PROGRAM} {_named(error)}".strip()


def _named(error: Exception) -> str:
    """Return the command in which a usage error occurred.

    Return "" if the error occurred before any command was recognized.
    """
    context = getattr(error, "ctx", None)
    if context is None:  # of an option without its value
        return sys.argv[1] if sys.argv[1:] and sys.argv[1] in COMMANDS else ""
    return str(context.info_name) if context.info_name in COMMANDS else ""


def _hint(error: Exception) -> str:
    """Return a hint on what the user probably meant, or "" if there is no likely guess."""

    def options_of(name: str) -> set[str]:
        return {option for param in real_command(name).params for option in param.opts} if name else set()

    examples = {name: lines[0][0] for name, (_, _, lines) in COMMANDS.items()}
    return hint(_first_line(error), _named(error), sys.argv[1:], examples, options_of)


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "format_message", lambda: str(error))()).strip().replace(EMPTY, "")
    head, wordy, kind = text.partition(WORDY)
    if wordy:
        kind = kind.partition(",")[0]
        text = f"{head}give {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return text.splitlines()[0] if text else type(error).__name__
