"""The table of the commands says what their files hold, and only the command that runs is loaded."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

from preflight.cli import commands
from preflight.cli.program import COMMANDS

FILES = sorted({f"preflight.cli.{file}" for file, _ in COMMANDS.values()})


@pytest.mark.parametrize("name", COMMANDS)
def test_a_row_names_the_file_of_its_command_and_begins_as_its_help_does(name: str) -> None:
    file, summary = COMMANDS[name]
    function = getattr(importlib.import_module(f"preflight.cli.{file}"), name)
    first_line = (inspect.getdoc(getattr(commands, f"{name.capitalize()}Options", function)) or "").splitlines()[0]
    assert callable(function)
    assert first_line == summary or first_line.startswith(f"{summary} ")


WITH_OPTIONS = [f"{name} --help" for name in COMMANDS if hasattr(commands, f"{name.capitalize()}Options")]


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
