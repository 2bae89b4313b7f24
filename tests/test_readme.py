"""The commands that the pages show with their output give that output. `PREFLIGHT_GOLDEN=write` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path
from textwrap import fill

import pytest

from preflight.cli.program import COMMANDS
from preflight.explain.cause import Cause, Claim, all_causes
from preflight.explain.event import Authority, Event, Moment
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.nccl_start import StartStep
from preflight.model.explanation import Confidence
from scripts.record_svg import TARGET, recorded
from tests.command import Command
from tests.conftest import PROJECT

README = PROJECT / "README.md"
PAGES = (README, *sorted((PROJECT / "docs").rglob("*.md")))
REFERENCE = PROJECT / "docs" / "reference"
FIRST_SCREEN = PROJECT / "tests" / "golden" / "first-screens" / "cured.txt"
BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)
COMMAND = re.compile(r"\$ preflight (.+) \| head -(\d+)")
SNIPPET = re.compile(r"```(?:bash|yaml)\n(.*?)```\n", re.DOTALL)
INDENTED = re.compile(r"^    (\S[^#\n]*?) *(?:#.*)?$", re.MULTILINE)  # a command without its comment
LINK = re.compile(r"\]\(([^)#]+)")
HEADING = re.compile(r"^#+ ", re.MULTILINE)
SECTIONS = "\n## "  # of a generated page; what stands above the first is written by hand
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
    shown = command.run(name, "--help-all", env={"COLUMNS": "80"}).stdout
    return shown.replace("python -m preflight", "preflight").rstrip()


def keep_page(name: str, sections: dict[str, str]) -> None:
    """Hold the sections of a page of docs/reference/ against what preflight knows; `make golden` writes them."""
    path = REFERENCE / name
    text = path.read_text(encoding="utf-8")
    head = text.partition(SECTIONS)[0]
    page = head + "".join(f"{SECTIONS}{title}\n\n```text\n{body}\n```\n" for title, body in sections.items())
    if os.environ.get("PREFLIGHT_GOLDEN") == "write":
        path.write_text(page, encoding="utf-8")
        return
    assert text == page, "`make golden` writes it again"


def test_the_page_of_commands_is_what_help_prints(command: Command) -> None:
    keep_page("commands.md", {f"preflight {name}": help_of(name, command) for name in COMMANDS})


def test_the_page_of_checks_is_what_checks_prints(command: Command) -> None:
    shown = command.run("checks", env={"COLUMNS": "80"}).stdout.strip().split("\n\n")[1:]
    keep_page("checks.md", {each.split(None, 1)[0]: each for each in shown})


def steps_of(cause: Cause) -> list[str]:
    """Return the steps that a cause has for any of its signs in a log that says nothing else."""
    found: list[str] = []
    for sign in cause.signs or (None,):
        for start in StartStep:
            name = sign.name if sign else ""
            event = Event(name, cause.id, Authority.OWN_ERROR, 0, 1, 0, "", "", Moment(), "")
            claim = Claim(Authority.OWN_ERROR, (event,), Confidence.HIGH, "", "", (str(int(start)),))
            found += [step for step in cause.remedy(LogEvidence(), claim).steps if step not in found]
    return found


def test_the_page_of_causes_is_what_explain_knows() -> None:
    pages = {}
    for cause in all_causes():
        steps = [fill(each, 80, initial_indent="- ", subsequent_indent="  ") for each in steps_of(cause)]
        confirms = fill(f"to confirm: {cause.confirm_with}", 80, subsequent_indent="  ")
        pages[cause.id] = "\n".join([fill(cause.promise, 80), *steps, confirms])
    keep_page("causes.md", pages)


def test_the_annotated_page_is_a_first_screen_as_it_is_kept() -> None:
    path = PROJECT / "docs" / "check.md"
    text, screen = path.read_text(encoding="utf-8"), FIRST_SCREEN.read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(READY WITH SETTINGS.*?)```\n", text, re.DOTALL)
    if os.environ.get("PREFLIGHT_GOLDEN") == "write":
        path.write_text(text.replace(shown, screen), encoding="utf-8")
        return
    assert shown == screen, "`make golden` writes it again"


def test_readme_shows_a_first_screen_as_it_is_kept() -> None:
    screen = (FIRST_SCREEN.parent / "blame_gpu.txt").read_text(encoding="utf-8")
    for page in (README, PROJECT / "README.zh-CN.md"):
        assert re.findall(r"```text\n(NODE .*?)```\n", page.read_text(encoding="utf-8"), re.DOTALL) == [screen], page


def test_the_picture_of_the_readme_is_what_the_command_prints() -> None:
    drawn = recorded()
    if os.environ.get("PREFLIGHT_GOLDEN") == "write":
        TARGET.write_text(drawn, encoding="utf-8")
        return
    assert TARGET.read_text(encoding="utf-8") == drawn, "`make golden` draws it again"
    assert len(drawn) < 8192


def test_the_page_names_as_many_causes_as_there_are() -> None:
    assert f"[{len(all_causes())} causes]" in (PROJECT / "docs" / "explain.md").read_text(encoding="utf-8")


def test_readme_is_read_in_five_minutes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.encode()) <= 9 * 1024


def test_the_chinese_readme_shows_the_same_commands_and_leads_to_the_same_pages() -> None:
    english, chinese = (path.read_text(encoding="utf-8") for path in (README, PROJECT / "README.zh-CN.md"))
    assert INDENTED.findall(chinese) == INDENTED.findall(english)
    other = {"README.md", "README.zh-CN.md"}
    # Where a page is in Chinese, too, that one is named.
    linked = {link.replace("docs/zh/", "docs/") for link in LINK.findall(chinese)}
    assert linked - other == {*LINK.findall(english)} - other
    assert len(HEADING.findall(chinese)) == len(HEADING.findall(english))


def test_the_four_reports_are_shown_with_explain_and_timeout() -> None:
    shown = [line for page, block in blocks() if page.parent.name != "zh" for line in commands(block)]
    assert len([line for line in shown if line.startswith("$ preflight explain")]) == 4
    assert len([line for line in shown if "--current 1800" in line]) == 4


def test_the_snippets_for_clusters_are_those_of_the_scripts_that_are_run() -> None:
    scripts = [
        path.read_text() for kind in ("sh", "sbatch", "yaml") for path in (PROJECT / "scripts").glob(f"*.{kind}")
    ]
    snippets = [snippet for page in PAGES for snippet in SNIPPET.findall(page.read_text(encoding="utf-8"))]
    assert len(snippets) == 2
    for snippet in snippets:
        assert any(snippet in script for script in scripts), snippet
