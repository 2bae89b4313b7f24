"""`preflight gpu-report` runs through on simulated machines, and packs every part that can run there."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.simcuda.machine import pcie
from tests.simcuda.sandbox import Sandbox

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda_torch"), pytest.mark.timeout(900)]
OF_NVIDIA_SMI = {"nvidia-smi", "topology", "p2p-reads", "nvlink", "nvlink-errors"}
OF_TWO_GPUS = {"stopped-rank", "bench", "bench-no-p2p", "bench-no-shm", "bench-no-nvls"}


MINUTES = pytest.mark.skipif("PREFLIGHT_SIMCUDA_EVERY" not in os.environ, reason="takes seven minutes")


@pytest.mark.parametrize("gpus", [1, 2, pytest.param(8, marks=MINUTES)])
def test_every_part_runs_and_the_archive_names_nobody(tmp_path: Path, gpus: int) -> None:
    canary = {"USER": "mmustermann", "SLURM_JOB_NAME": "secret-llm-70b"}
    ran = Sandbox(pcie(f"pcie{gpus}", gpus, 2, 0), tmp_path).run(
        "gpu-report", "--deadline", "590", env=canary, limit_s=620
    )
    assert (ran.left_processes, ran.left_shm) == ("", ""), ran
    with tarfile.open(tmp_path / "cwd/preflight-gpu.tar.gz") as tar:
        files = {entry.name: tar.extractfile(entry).read().decode() for entry in tar if entry.isfile()}  # type: ignore[union-attr]
    parts = {part["name"]: part for part in json.loads(files["preflight-gpu/summary.json"])["parts"]}
    ended = {name: part["outcome"] for name, part in parts.items()}
    not_run = OF_NVIDIA_SMI | (OF_TWO_GPUS if gpus == 1 else set())
    assert {name for name, outcome in ended.items() if outcome == "not run"} == not_run
    ended.pop("products")  # too large for the memory of a simulated GPU
    assert {outcome for name, outcome in ended.items() if name not in not_run} <= {"passed", "found"}, parts
    codes = [json.loads(line) for line in files["preflight-gpu/nvml/output.txt"].splitlines()]
    unknown = [each for each in codes if each["call"].startswith("nvmlDeviceGetFieldValues(9999)")]
    assert len(unknown) == gpus
    context = json.loads(files["preflight-gpu/context/output.txt"])["steps"]
    assert context[0]["contexts"] == [True] + [False] * (gpus - 1)
    if gpus > 1:
        stuck = json.loads(files["preflight-gpu/stopped-rank/output.txt"])["stuck"]
        assert [each["reason"] for each in stuck["culprits"]] == ["stopped_process"]
    assert not [name for name, text in files.items() if any(value in name + text for value in canary.values())]


def test_two_nodes_by_one_command(tmp_path: Path) -> None:
    """Both are this machine: a program called ssh stands in."""
    sandbox = Sandbox(pcie("pcie1", 1, 2, 0), tmp_path)
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\n[ "$2" = down ] && exit 255\nexec sh -c "$3"\n')
    ssh.chmod(0o755)
    path = {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}
    ran = sandbox.run("gpu-report", "--on", "ssh:up,down", "--deadline", "30", env=path)
    assert (ran.code in (1, 3), ran.left_processes, ran.left_shm) == (True, "", ""), ran
    assert "down: unreachable" in ran.stdout and "up: " in ran.stderr, ran
    assert os.listdir(tmp_path / "cwd" / "preflight-gpu-reports") == ["up.tar.gz"]
    with tarfile.open(tmp_path / "cwd/preflight-gpu-reports/up.tar.gz") as tar:
        assert "preflight-gpu/nvml/output.txt" in tar.getnames()
    assert os.listdir(tmp_path / "tmp") == []
