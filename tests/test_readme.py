"""The commands that the pages show with their output give that output. `PREFLIGHT_GOLDEN=write` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from preflight.cli.program import COMMANDS
from tests.command import Command
from tests.conftest import PROJECT

README = PROJECT / "README.md"
PAGES = (README, *sorted((PROJECT / "docs").glob("*.md")))
BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)
COMMAND = re.compile(r"\$ preflight (.+) \| head -(\d+)")
SNIPPET = re.compile(r"```(?:bash|yaml)\n(.*?)```\n", re.DOTALL)
INDENTED = re.compile(r"^    (\S[^#\n]*?) *(?:#.*)?$", re.MULTILINE)  # a command without its comment
LINK = re.compile(r"\]\(([^)#]+)")
HEADING = re.compile(r"^#+ ", re.MULTILINE)
COMMANDS_HEAD = (
    "# Every command and its options\n\nThis is what `preflight COMMAND --help` prints; `make golden` writes it.\n"
)
SEEDS = PROJECT / "tests" / "explain" / "seeds"


def blocks() -> list[tuple[Path, str]]:
    return [(page, block) for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]


def commands(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.startswith("$ ")]


def output_of(line: str, command: Command) -> str:
    found = COMMAND.fullmatch(line)
    assert found, f"not `$ preflight ... | head -N`: {line}"
    ran = command.run(*found[1].split(), cwd=SEEDS, env={"PREFLIGHT_VERBOSE": ""})
    assert ran.code in (0, 1), ran.stderr
    return "".join(ran.stdout.splitlines(keepends=True)[: int(found[2])])


@pytest.mark.parametrize(("page", "block"), blocks())
def test_the_output_that_is_shown_is_the_real_one(page: Path, block: str, command: Command) -> None:
    real = "\n".join(f"{line}\n{output_of(line, command)}" for line in commands(block))
    if os.environ.get("PREFLIGHT_GOLDEN") == "write":
        page.write_text(page.read_text(encoding="utf-8").replace(block, real), encoding="utf-8")
        return
    assert block == real, "`make golden` writes it again: look at the diff"


def help_of(name: str, command: Command) -> str:
    return (
        command.run(name, "--help", env={"COLUMNS": "80"}).stdout.replace("python -m preflight", "preflight").rstrip()
    )


def test_the_page_of_commands_is_what_help_prints(command: Command) -> None:
    shown = [f"\n## preflight {name}\n\n```text\n{help_of(name, command)}\n```\n" for name in COMMANDS]
    page, path = COMMANDS_HEAD + "".join(shown), PROJECT / "docs" / "commands.md"
    if os.environ.get("PREFLIGHT_GOLDEN") == "write":
        path.write_text(page, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page, "`make golden` writes it again"


def test_readme_is_read_in_five_minutes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.encode()) <= 9 * 1024


def test_the_chinese_readme_shows_the_same_commands_and_leads_to_the_same_pages() -> None:
    english, chinese = (path.read_text(encoding="utf-8") for path in (README, PROJECT / "README.zh-CN.md"))
    assert INDENTED.findall(chinese) == INDENTED.findall(english)
    other = {"README.md", "README.zh-CN.md"}
    assert {*LINK.findall(chinese)} - other == {*LINK.findall(english)} - other
    assert len(HEADING.findall(chinese)) == len(HEADING.findall(english))


def test_the_four_reports_are_shown_with_explain_and_timeout() -> None:
    shown = [line for _, block in blocks() for line in commands(block)]
    assert len([line for line in shown if line.startswith("$ preflight explain")]) == 4
    assert len([line for line in shown if "--current 1800" in line]) == 4


def test_the_snippets_for_clusters_are_those_of_the_scripts_that_are_run() -> None:
    scripts = [
        path.read_text() for kind in ("sh", "sbatch", "yaml") for path in (PROJECT / "scripts").glob(f"*.{kind}")
    ]
    snippets = [snippet for page in PAGES for snippet in SNIPPET.findall(page.read_text(encoding="utf-8"))]
    assert len(snippets) == 5
    for snippet in snippets:
        assert any(snippet in script for script in scripts), snippet
