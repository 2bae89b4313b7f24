"""The real command on whole machines: its pages and documents are kept, and a capture gives what the machine gave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.check.survey import capture, survey_capture, survey_machine
from preflight.show.text import width_of
from tests.command import Command
from tests.kept import WRITING, compare
from tests.machines.fleet import MACHINES

pytestmark = pytest.mark.heavy(3)

HERE = Path(__file__).parent.parent
CAPTURES = HERE / "machines"
GOLDEN = HERE / "golden" / "machines"

# What is kept: its source and the GPUs asked for.
KEPT = {
    "h100x8": (("--machine", "h100x8.json"), "2-5"),
    "l20x10": (("--machine", "l20x10.json"), "3,4,5,6"),
    "a100x4": (("--machine", "a100x4.json"), "1,2"),
    "rtx4090x2": (("--machine", "rtx4090x2.json"), "0,1"),
    "ten_gpus": (("--topo", "ten_gpus.txt"), "3,4,5,6"),
}


@pytest.mark.parametrize("name", MACHINES)
def test_the_capture_beside_the_machine_is_what_the_machine_gives(name: str, tmp_path: Path) -> None:
    text = capture(MACHINES[name](tmp_path))
    path = CAPTURES / f"{name}.json"
    if WRITING:
        path.write_text(text)
    kept = json.loads(path.read_text())
    made = json.loads(text)
    assert made["reads"] == kept["reads"]
    assert "example.org" not in text
    assert "alice" not in text
    assert "10.0.1.7" not in text
    assert "9f03" not in text


@pytest.mark.parametrize("name", MACHINES)
def test_a_capture_gives_the_findings_and_paths_of_the_machine(name: str, tmp_path: Path) -> None:
    machine = MACHINES[name](tmp_path)
    live, again = survey_machine(machine), survey_capture(capture(machine))
    assert again.node.gpu_paths == live.node.gpu_paths
    assert again.node.nic_paths == live.node.nic_paths
    assert [finding.check for finding in again.checked.findings] == [finding.check for finding in live.checked.findings]
    assert again.checked.ran == live.checked.ran


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("width", [80, 120])
def test_the_page_is_the_one_that_is_kept(name: str, width: int, command: Command) -> None:
    (option, file), gpus = KEPT[name]
    page = command.run("probe", option, str(CAPTURES / file), "--gpus", gpus, env={"COLUMNS": str(width)}).stdout
    _compare(GOLDEN / f"{name}.{width}.txt", page)
    assert max(width_of(line) for line in page.splitlines()) <= width


@pytest.mark.parametrize("name", KEPT)
def test_the_document_is_the_one_that_is_kept(name: str, command: Command) -> None:
    (option, file), gpus = KEPT[name]
    _compare(
        GOLDEN / f"{name}.json",
        command.run("probe", option, str(CAPTURES / file), "--gpus", gpus, "--json", "-").stdout,
    )


def _compare(path: Path, text: str) -> None:
    assert text, "the command printed nothing"
    compare(path, text)
