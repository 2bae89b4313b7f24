"""`python -m scripts.gpu` runs through on a simulated machine, and says what it could not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.simcuda.checking import SPEEDS, machine_of
from tests.simcuda.sandbox import Sandbox

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(900)]


def test_every_part_runs_and_one_json_holds_all_results(tmp_path: Path) -> None:
    results = tmp_path / "results"
    sandbox = Sandbox(machine_of("pcie2-pix"), tmp_path, module="scripts.gpu")
    ran = sandbox.run(str(results), "--check", f"--stage-limit 60 --policy {SPEEDS}", limit_s=600)
    told = json.loads((results / "gpu-results.json").read_text())
    parts = {part["name"]: part for part in told["parts"]}
    outcomes = {name: part["outcome"] for name, part in parts.items()}
    assert outcomes.pop("nvidia-smi") == "not run", "no such program on a simulated machine"
    assert set(outcomes.values()) == {"passed"}, told
    assert ran.code == 0 and (ran.left_processes, ran.left_shm) == ("", ""), ran
    assert parts["quick"]["document"]["verdict"] in ("ready", "ready_with_env")
    assert parts["memory"]["document"]["holds"]
    assert [len(parts[f"{count} ranks"]["document"]["ranks"]) for count in (2, 4)] == [2, 4]
    assert {way.split("/")[0] for way in parts["4 ranks"]["document"]["ways"]} == {"NET"}
    skipped = parts["tests"]["document"]["skipped"]
    assert len(skipped) == parts["tests"]["document"]["tests"] > 0
    assert all("nvidia-smi" in reason for reason in skipped.values()), skipped
