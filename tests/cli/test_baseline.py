"""`preflight baseline` and `check --baseline`, with real ranks on gloo."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command

HOSTS = 6


def learn(command: Command, tmp_path: Path, report: dict[str, Any], factor: float) -> Path:
    """Write reports of good nodes that are so much faster than this machine, and learn from them."""
    folder, chance = tmp_path / "good", random.Random(2)
    folder.mkdir()
    for i in range(HOSTS):
        for turn in range(2):
            made = copy.deepcopy(report)
            made["nodes"][0]["host"] = f"n{i}"
            for result in made["trials"][0]["results"]:
                result["busbw_gb_s"] *= factor * (1 + chance.gauss(0, 0.01))
            (folder / f"n{i}-{turn}.json").write_text(json.dumps(made))
    (folder / "broken.json").write_text("{")
    golden = tmp_path / "golden.json"
    ran = command.run("baseline", str(folder), "-o", str(golden), env={"PREFLIGHT_VERBOSE": ""})
    assert (ran.code, ran.stderr) == (0, "")
    assert f"{HOSTS} good nodes, {2 * HOSTS} reports" in ran.stdout and "1 report skipped: no JSON" in ran.stdout
    return golden


@pytest.mark.integration
def test_a_node_far_below_good_ones_is_measured_again_and_not_ready_and_one_above_is(
    command: Command, tmp_path: Path
) -> None:
    report = command.run("check").report
    golden = learn(command, tmp_path, report, 100.0)
    ran = command.run("check", "--baseline", str(golden), "--also", f"drain={tmp_path / 'drain.txt'}")
    assert ran.code == 1, ran.stdout
    names = [trial["candidate"] for trial in ran.report["trials"]]
    assert names == ["default", "repetition 1", "repetition 2", "repetition 3"]
    assert "baseline-missed" in {finding["check"] for finding in ran.report["findings"]}
    assert [judge["by"] for judge in ran.report["judged_by"]] == ["baseline"]
    assert all(len(each["measured"]) == 4 for each in ran.report["beside_baseline"])
    assert "baseline-missed" in (tmp_path / "drain.txt").read_text()
    document = json.loads(golden.read_text())
    for reference in document["references"]:
        reference["busbw_gb_s"] /= 10_000
    golden.write_text(json.dumps(document))
    fine = command.run("check", "--baseline", str(golden))
    assert fine.code == 0, fine.stdout
    assert all("baseline" not in trial["reason"] for trial in fine.report["trials"]), "nothing looked slow beside it"


def test_a_file_that_is_no_baseline_and_several_nodes_are_one_line_and_exit_code_2(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "x.json").write_text('{"baseline_schema": 99}')
    ran = command.run("check", "--baseline", str(tmp_path / "x.json"))
    assert (ran.code, ran.stderr.count("\n")) == (2, 1) and "use the preflight that wrote it" in ran.stderr
    few = command.run("baseline", str(tmp_path / "x.json"), "-o", str(tmp_path / "golden.json"))
    assert (few.code, few.stderr.count("\n")) == (2, 1) and "at least 5 good nodes" in few.stderr
    assert not (tmp_path / "golden.json").exists()
