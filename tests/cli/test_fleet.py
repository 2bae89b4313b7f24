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
    assert "8 passed, 0 failed" in shown and "no JSON: Expecting property name" in shown
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


def test_the_folder_for_the_lists_is_made_and_each_list_has_its_own(command: Command, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    write(reports, 6)
    for name, changes in (("n0", {"verdict": "not_ready"}), ("n1", {"verdict": "unknown", "headline": "unknown: x"})):
        document = json.loads((reports / f"{name}.json").read_text())
        (reports / f"{name}.json").write_text(json.dumps(document | changes))
    ran = command.run("fleet", str(reports), "--out", str(tmp_path / "new" / "deep"))
    assert ran.code == 1
    lists = {path.name: path.read_text() for path in (tmp_path / "new" / "deep").glob("*_nodes.txt")}
    assert lists["failing_nodes.txt"].splitlines()[-1] == "n0" and "# n0: " in lists["failing_nodes.txt"]
    assert lists["unknown_nodes.txt"] == "# n1\n# n1: x\nn1\n"
    assert lists["odd_nodes.txt"] == lists["would_drain_nodes.txt"] == "# nobody\n"
    (tmp_path / "file").write_text("")
    refused = command.run("fleet", str(reports), "--out", str(tmp_path / "file"))
    assert (refused.code, refused.stderr) == (2, f"preflight: --out {tmp_path / 'file'}: not a directory\n")


def test_three_interrupted_reports_are_unknown(command: Command, tmp_path: Path) -> None:
    write(tmp_path, 3)
    for path in tmp_path.glob("*.json"):
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"verdict": "unknown", "exit_code": 130, "headline": "unknown: stopped"}))
    ran = command.run("fleet", str(tmp_path))
    assert ran.code == 3
    assert ran.stdout.startswith("UNKNOWN") and "ALL ALIKE" not in ran.stdout


def test_the_page_is_one_screen_all_of_it_with_v_and_one_line_with_q(command: Command, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    write(tmp_path / "reports", 8)
    screen, all_of_it, line = (
        command.run("fleet", str(tmp_path / "reports"), *options, env={"PREFLIGHT_VERBOSE": ""}).stdout
        for options in ((), ("-v",), ("-q",))
    )
    assert len(screen.splitlines()) <= 24 and "\nNext     none; " in screen
    assert "no outliers in 8 metrics" in all_of_it
    assert line == "ALL ALIKE  8 nodes, all ready, no outliers\n"
