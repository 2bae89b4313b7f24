"""The import contracts really fail when they are broken."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent

BREAKS = [
    ("Imports point down only", "preflight/model/facts.py", "import preflight.search.settings.search"),
    ("Imports point down only", "preflight/judge/node/memlock.py", "import preflight.show.text"),
    ("Only trial/rank imports torch", "preflight/trial/launcher.py", "import torch"),
    ("Pure packages do no I/O", "preflight/judge/node/memlock.py", "import os"),
    ("Pure packages do no I/O", "preflight/show/text.py", "import subprocess"),
    ("No circles", "preflight/model/gap.py", "import preflight.model.facts"),
    ("No circles", "preflight/model/gap.py", "def late() -> None: import preflight.model.facts"),
    (
        "No circles",
        "preflight/model/gap.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING: import preflight.model.facts",
    ),
]

# What may be imported inside a function, where it is needed: loading it takes long, or it may be missing.
HEAVY = {"torch", "pygal", "pynvml", "netifaces", "jinja2", "tabulate", "importlib", "zstandard"}
IMPORT_TORCH = {"preflight.trial.rank.agent", "preflight.trial.rank.packed_aggregate"}
# What keeps `preflight probe` quick: a live probe pays neither for captures and topologies nor for what a report holds.
# And `preflight run`, which without --reuse reads no report; and `check`, which loads this while torch is imported.
# And what must be caught where it can't be imported.
START_UP = {
    ("preflight/__init__.py", "preflight"),
    ("preflight/__main__.py", "preflight.cli"),
    ("preflight/__main__.py", "preflight.system.last_resort"),
    ("preflight/system/last_resort.py", "resource"),
    ("preflight/cli/fleet_baseline.py", "preflight.show.fleet_html"),
    ("preflight/cli/probe_capture.py", "preflight.show.drain_nagios_k8s"),
    ("preflight/cli/probe_capture.py", "preflight.show.probe_json"),
    ("preflight/cli/program.py", "preflight.trial.agent_process"),
    ("preflight/cli/run.py", "preflight.cli.earlier_report"),
    ("preflight/trial/agent_process.py", "preflight.facts.counters"),
    ("preflight/check/survey.py", "preflight.search.gpus.link_speeds"),
    ("preflight/check/survey.py", "preflight.facts.capture"),
    ("preflight/check/survey.py", "preflight.facts.topo_facts"),
    ("preflight/check/survey.py", "preflight.system.links"),
}


@pytest.mark.integration
@pytest.mark.parametrize(("contract", "file", "line"), BREAKS, ids=[f"{file}-{line}" for _, file, line in BREAKS])
def test_a_broken_contract_is_found(tmp_path: Path, contract: str, file: str, line: str) -> None:
    shutil.copytree(PROJECT / "preflight", tmp_path / "preflight", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a") as source:
        source.write(f"\n{line}\n")
    linter = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [linter, "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"{contract} BROKEN" in ran.stdout


def imports_in_functions(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what each import inside a function of a file imports, and the comment on its line."""
    source = path.read_text()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            comment = source.splitlines()[node.lineno - 1].partition("#")[2]
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{name}" for name in names]
                names = whole if IMPORT_TORCH.intersection(whole) else [str(node.module)]
            for name in names:
                yield name, re.sub(r"noqa: \S+", "", comment).strip(" -#")


def is_allowed(module: str, reason: str) -> bool:
    return bool(reason) and (module in IMPORT_TORCH or module.partition(".")[0] in HEAVY)


def test_an_import_inside_a_function_keeps_something_heavy_away_and_says_so() -> None:
    wrong = {
        (str(path.relative_to(PROJECT)), module)
        for path in (PROJECT / "preflight").rglob("*.py")
        for module, reason in imports_in_functions(path)
        if not is_allowed(module, reason)
    }
    assert wrong == START_UP


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("import torch  # noqa: PLC0415  seconds", True),
        ("from preflight.trial.rank import agent  # noqa: PLC0415  imports torch", True),
        ("import torch  # noqa: PLC0415", False),
        ("import socket  # noqa: PLC0415  seconds", False),
        ("from preflight.trial.rank import outcome  # noqa: PLC0415  a circle", False),
    ],
)
def test_an_import_inside_a_function_needs_both_a_heavy_module_and_a_reason(
    tmp_path: Path, line: str, allowed: bool
) -> None:
    (tmp_path / "late.py").write_text(f"def late():\n    {line}\n")
    (found,) = imports_in_functions(tmp_path / "late.py")
    assert is_allowed(*found) is allowed


@pytest.mark.integration
def test_no_file_is_longer_than_it_may_be() -> None:
    too_long = {
        str(path.relative_to(PROJECT)): lines
        for folder in ("preflight", "tests", "scripts")
        for path in (PROJECT / folder).rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 500
    }
    assert too_long == {}
