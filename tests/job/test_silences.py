"""How long a job is silent in each phase, and that nothing is written of a job that failed, hung or has no phases."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from preflight.job.silences import NAME, Silences
from preflight.model.job_phases import Silence
from preflight.timeout.job_text import parse_run_record
from tests.conftest import PROJECT
from tests.job.test_same_as_without import argv_of

STEP = b"{'loss': 2.1, 'learning_rate': 1e-5}\n"
PATHS = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)}


def record(folder: Path, *heard: tuple[float, bytes], ends_at_s: float) -> dict[str, Silence]:
    silences = Silences(0.0)
    for at_s, news in heard:
        silences.hear([news], at_s)
    silences.keep(str(folder), "node1", ends_at_s)
    path = folder / NAME
    assert os.listdir(folder) == ([NAME] if path.exists() else [])
    return {each.phase: each for each in parse_run_record(path.read_text(), NAME)} if path.exists() else {}


def test_each_phase_has_its_longest_silence_and_all_but_training_their_length(tmp_path: Path) -> None:
    found = record(
        tmp_path,
        (30.0, b"Loading checkpoint shards: 1 of 4\n"),
        (90.0, b"hello\n"),
        (100.0, STEP),
        (110.0, STEP + b"Saving model checkpoint to out\n"),
        (150.0, b"shard written\n"),
        (190.0, b"Saved model to out\n"),
        (215.0, STEP),
        (225.0, b"no phase\n" + STEP),
        ends_at_s=232.0,
    )
    assert found == {
        "start": Silence("start", 60.0, 100.0),
        "training": Silence("training", 10.0, 10.0),
        "saving a checkpoint": Silence("saving a checkpoint", 40.0, 80.0),
    }


def test_a_job_that_counts_no_steps_leaves_no_record(tmp_path: Path) -> None:
    assert record(tmp_path, (30.0, b"Loading model\n"), (500.0, b"done\n"), ends_at_s=501.0) == {}


def test_the_end_of_the_last_silence_is_the_end_of_the_job(tmp_path: Path) -> None:
    assert record(tmp_path, (5.0, STEP), ends_at_s=45.0)["training"].silent_s == 40.0


@pytest.mark.parametrize(("code", "is_written"), [(0, True), (3, False)])
def test_only_of_a_job_that_ended_well_something_is_written(code: int, is_written: bool, tmp_path: Path) -> None:
    script = f'echo "{STEP.decode().strip()}"; sleep 2.5; echo "{STEP.decode().strip()}"; exit {code}'
    (tmp_path / "kept").mkdir()
    ran = subprocess.run(
        argv_of(["/bin/sh", "-c", script], True, Path("kept")), close_fds=False, capture_output=True, text=True,
        check=False, cwd=tmp_path, env=PATHS,
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    assert (tmp_path / NAME).exists() == is_written
    if is_written:
        document = json.loads((tmp_path / NAME).read_text())
        assert document["ended_well"] is True
        assert 1.0 <= document["phases"]["training"]["silent_s"] <= 10.0
