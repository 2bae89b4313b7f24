"""The commands that README shows with their output give that output. `PREFLIGHT_GOLDEN=write` writes it anew."""

from __future__ import annotations

import os
import re

import pytest

from tests.command import Command
from tests.conftest import PROJECT

README = PROJECT / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)
COMMAND = re.compile(r"\$ preflight (.+) \| head -(\d+)")
SNIPPET = re.compile(r"```(?:bash|yaml)\n(.*?)```\n", re.DOTALL)
SEEDS = PROJECT / "tests" / "explain" / "seeds"


def blocks() -> list[str]:
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def commands(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.startswith("$ ")]


def output_of(line: str, command: Command) -> str:
    found = COMMAND.fullmatch(line)
    assert found, f"not `$ preflight ... | head -N`: {line}"
    ran = command.run(*found[1].split(), cwd=SEEDS)
    assert ran.code in (0, 1), ran.stderr
    return "".join(ran.stdout.splitlines(keepends=True)[: int(found[2])])


@pytest.mark.parametrize("number", range(len(blocks())))
def test_the_output_that_is_shown_is_the_real_one(number: int, command: Command) -> None:
    block = blocks()[number]
    real = "\n".join(f"{line}\n{output_of(line, command)}" for line in commands(block))
    if os.environ.get("PREFLIGHT_GOLDEN") == "write":
        README.write_text(README.read_text(encoding="utf-8").replace(block, real), encoding="utf-8")
        return
    assert block == real, "`make golden` writes it again: look at the diff"


def test_the_four_reports_are_shown_with_explain_and_timeout() -> None:
    shown = [line for block in blocks() for line in commands(block)]
    assert len([line for line in shown if line.startswith("$ preflight explain")]) == 4
    assert len([line for line in shown if "--current 1800" in line]) == 4


def test_the_snippets_for_clusters_are_those_of_the_scripts_that_are_run() -> None:
    scripts = [
        path.read_text() for kind in ("sh", "sbatch", "yaml") for path in (PROJECT / "scripts").glob(f"*.{kind}")
    ]
    snippets = SNIPPET.findall(README.read_text(encoding="utf-8"))
    assert len(snippets) == 4
    for snippet in snippets:
        assert any(snippet in script for script in scripts), snippet
