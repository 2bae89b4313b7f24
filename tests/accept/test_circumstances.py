"""Machines under what an operator meets get with --accept what somebody said who had not read the code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from preflight.model.finding import Blame, Severity
from preflight.model.report import NodeVerdict
from preflight.model.toml import read_toml
from preflight.system import nvml
from tests.accept import play as played
from tests.accept.circumstances import BASES, CIRCUMSTANCES, CLOCK, machine_of
from tests.accept.play import play

TABLE = Path(__file__).with_name("circumstances.toml")
CONTENT = read_toml(TABLE.read_text(encoding="utf-8"), str(TABLE))
ROWS = CONTENT["row"]


def quicken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the limits for waking GPUs run on the simulated NVML's clock."""
    waking = replace(nvml.WAKING, call_s=nvml.WAKING.call_s / CLOCK, all_s=nvml.WAKING.all_s / CLOCK)
    for module in ("preflight.system.nvml", "preflight.facts.run"):
        monkeypatch.setattr(f"{module}.WAKING", waking)


@pytest.mark.integration  # two minutes
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['machine']}: {row['when']}")
def test_a_machine_gets_what_the_table_says(
    row: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if row["when"].startswith("waking"):
        quicken(monkeypatch)
    machine, change_files = machine_of(row["machine"], row["when"])
    tree_of = played.tree_of

    def tree(machine, root):  # type: ignore[no-untyped-def]
        made = tree_of(machine, root)
        change_files(root)
        return made

    monkeypatch.setattr(played, "tree_of", tree)
    report = play(machine, tmp_path)
    assert report.node_verdict is NodeVerdict(row["accept"]), report.headline
    if row["accept"] == "reject":
        failed = {finding.blame for finding in report.findings if finding.severity is Severity.FAIL}
        assert failed == {Blame(row["class"])}


def test_a_container_that_lost_its_gpus_is_told_to_start_again(tmp_path: Path) -> None:
    machine, _ = machine_of("DGX H100", "container that lost its GPUs (daemon-reload)")
    fixes = [finding.fix for finding in play(machine, tmp_path).findings if finding.check == "gpu-driver"]
    assert "daemon-reload" in fixes[0]


def test_every_machine_and_circumstance_has_rows() -> None:
    assert len(ROWS) >= 120
    assert {row["machine"] for row in ROWS} == set(BASES)
    assert {row["when"] for row in ROWS} == set(CIRCUMSTANCES)
    assert len({(row["machine"], row["when"]) for row in ROWS}) == len(ROWS)


def test_at_least_thirty_rows_come_from_what_others_published() -> None:
    published = {each["when"] for each in CONTENT["published"]}
    assert published <= set(CIRCUMSTANCES)
    assert sum(row["when"] in published for row in ROWS) >= 30
