"""`preflight fleet` over files and directories, broken ones among them."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.command import Command
from tests.fleet.test_overview import report


def write(folder: Path, count: int) -> None:
    chance = random.Random(2)
    for i in range(count):
        (folder / f"n{i}.json").write_text(json.dumps(report(f"n{i}", chance)))


def test_a_directory_is_read_and_the_lists_are_written(command: Command, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    (reports / "deep").mkdir(parents=True)
    write(reports / "deep", 8)
    (reports / "broken.json").write_text("{")
    (reports / "notes.txt").write_text("not looked at")
    ran = command.run("fleet", str(reports), "--out", str(tmp_path))
    assert (ran.code, ran.stderr) == (0, "")
    shown = " ".join(ran.stdout.split())
    assert "8 pass, 0 fail" in shown and "no JSON: Expecting property name" in shown
    assert (tmp_path / "passing_nodes.txt").read_text().startswith("# n[0-7]\nn0\n")
    assert (tmp_path / "failing_nodes.txt").read_text() == "# nobody\n"


def test_the_document_holds_what_the_page_shows(command: Command, tmp_path: Path) -> None:
    write(tmp_path, 6)
    document = command.run("fleet", str(tmp_path / "n1.json"), str(tmp_path / "n2.json"), "--json", "-").document
    assert document["nodes"] == 2 and document["passing"] == ["n1", "n2"]


def test_what_is_missing_is_one_line_and_exit_code_2(command: Command) -> None:
    ran = command.run("fleet", "nowhere")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == "preflight: nowhere: there is no such file or directory\n"


def test_an_empty_directory_is_unknown(command: Command, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert command.run("fleet", str(tmp_path / "none")).code == 3
