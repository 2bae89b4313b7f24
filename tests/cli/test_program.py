"""The table of the commands says what their files hold, and only the command that runs is loaded."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys

import pytest

from preflight.cli.program import COMMANDS, options_record, real_command
from tests.command import Command

pytestmark = pytest.mark.heavy(6)

FILES = sorted({f"preflight.cli.{file}" for file, *_ in COMMANDS.values()})


@pytest.mark.parametrize("name", COMMANDS)
def test_a_row_names_the_file_of_its_command_and_begins_as_its_help_does(name: str) -> None:
    file, summary, _ = COMMANDS[name]
    function = getattr(importlib.import_module(f"preflight.cli.{file}"), name.replace("-", "_"))
    first_line = (inspect.getdoc(options_record(name) or function) or "").splitlines()[0]
    assert callable(function)
    assert first_line == summary or first_line.startswith(f"{summary} ")


WITH_OPTIONS = [f"{name} --help" for name in COMMANDS if options_record(name)]


@pytest.mark.parametrize(
    ("line", "loaded"),
    [("--help", []), ("schema", ["preflight.cli.reports"]), *((line, []) for line in WITH_OPTIONS)],
)
def test_only_the_command_that_runs_is_loaded_and_none_for_help(line: str, loaded: list[str]) -> None:
    script = (
        "import os, sys\n"
        "from preflight import cli\n"
        f"os._exit = lambda _: sys.stderr.write(' '.join(name for name in {FILES} if name in sys.modules))\n"
        "cli.main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, *line.split()], capture_output=True, text=True, check=True)
    assert ran.stdout
    assert ran.stderr.split() == loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_and_begins_with_two_examples_of_this_command(name: str) -> None:
    shown = help_of(name, "--help")
    assert len(shown) <= 40
    assert max(map(len, shown)) <= 80
    assert shown[2] == "Examples:"
    assert [line.split()[:1] for line in shown[3:5]] == [["preflight"]] * 2
    assert any(f"preflight {name}" in line for line in shown[3:5])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_stands_in_help_all_and_help_says_how_many_it_leaves_out(name: str) -> None:
    all_of_them, short = "\n".join(help_of(name, "--help-all")), "\n".join(help_of(name, "--help"))
    options = [p for p in real_command(name).params if p.param_type_name == "option" and p.help]
    assert [param.opts for param in options if not all(opt in all_of_them for opt in param.opts)] == []
    rare = [param for param in options if param.hidden]
    assert [param.opts for param in rare if f"  {param.opts[0]} " in short] == []
    assert (f"shows {len(rare)} rare option{'s' * (len(rare) > 1)}." in short) == bool(rare)
    assert "rare option" not in all_of_them


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_are_command_lines_that_are_taken(name: str) -> None:
    for line, _ in COMMANDS[name][2]:
        _, command, *arguments = line.split()
        real_command(command).make_context(command, arguments)


def help_of(name: str, option: str) -> list[str]:
    """Return the lines of a command's help at 80 columns."""
    return subprocess.run(
        [sys.executable, "-m", "preflight", name, option], env={**os.environ, "COLUMNS": "80"},
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip


def test_checks_prints_a_line_for_each_and_everything_with_v(command: Command) -> None:
    plain = command.run("checks", env={"PREFLIGHT_VERBOSE": "", "COLUMNS": "80"}).stdout.splitlines()
    names = [each["name"] for each in command.run("checks", "--json", "-").document["checks"]]
    assert [line.split()[0] for line in plain[:-2]] == names
    assert max(map(len, plain)) <= 80
    assert len(command.run("checks", "-v").stdout.splitlines()) > 4 * len(names)
