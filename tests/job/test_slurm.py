"""A real Slurm of two nodes: `srun preflight run -- torchrun ...` with and without a report of before."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Command
from tests.conftest import PROJECT
from tests.nodes.slurm_cluster import Cluster, two_nodes

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(400)]
TRAIN = Path(__file__).with_name("train.py")
STEP = ("srun", "-N2", "--ntasks-per-node=1", "--kill-on-bad-exit=0")
TORCHRUN = (
    f"{sys.executable} -m torch.distributed.run --nnodes 2 --node-rank $SLURM_NODEID --nproc-per-node 1"
    f" --master-addr node0 --master-port 29611 {TRAIN}"
)


@pytest.fixture
def cluster(command: Command, tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[Cluster]:
    with two_nodes(command, tmp_path / "slurm", need) as started:
        yield started


def run_line(way: str, folder: Path, options: str = "") -> str:
    own = "--env-out $SLURMD_NODENAME.env --report $SLURMD_NODENAME.json"
    return f"GLOO_SOCKET_IFNAME=eth0 exec preflight run {options} {own} -- {TORCHRUN} {way} {folder}"


def test_both_nodes_check_together_train_and_use_the_report_again_where_both_have_it(cluster: Cluster) -> None:
    line = run_line("success", cluster.cwd, "--reuse 1h")
    first = cluster.run(*STEP, "sh", "-c", line, PREFLIGHT_VERBOSE="0")
    assert (first.returncode, sorted(first.stdout.split("\n"))) == (0, ["", "done 0", "done 1"]), first.stderr
    assert first.stderr.count("READY") == 2
    again = cluster.run(*STEP, "sh", "-c", line, PREFLIGHT_VERBOSE="0")
    assert (again.returncode, sorted(again.stdout.split("\n"))) == (0, ["", "done 0", "done 1"]), again.stderr
    assert again.stderr.count("READY") == 0, again.stderr
    (cluster.cwd / "node1.json").unlink()
    third = cluster.run(*STEP, "sh", "-c", line, PREFLIGHT_VERBOSE="0")
    assert third.returncode == 0, third.stderr
    assert "node0.json can't be used: node1 (node 1) has none that it can use" in third.stderr
    assert third.stderr.count("READY") == 2


def test_the_script_trains_on_both_nodes(cluster: Cluster) -> None:
    script = (PROJECT / "scripts" / "slurm_run.sbatch").read_text(encoding="utf-8")
    (cluster.cwd / "job.sbatch").write_text(script.replace("train.py", f"{TRAIN} success {cluster.cwd}"))
    cluster.install(
        "torchrun", f'#!/bin/sh\nGLOO_SOCKET_IFNAME=eth0 exec {sys.executable} -m torch.distributed.run "$@"\n'
    )
    ran = cluster.run("sbatch", "--wait", "--output", "job.out", "job.sbatch")
    out = (cluster.cwd / "job.out").read_text()
    assert ran.returncode == 0, out
    assert out.count("done 0") == out.count("done 1") == 1, out


def test_a_node_that_is_not_ready_keeps_both_from_starting(cluster: Cluster) -> None:
    line = run_line("success", cluster.cwd, "--backend simnccl@simnccl --nproc 1")
    ran = cluster.run(*STEP, "sh", "-c", f"SIMNCCL=crash:rank=1,stage=init; export SIMNCCL; {line}")
    assert ran.returncode == 78, ran.stderr
    assert ran.stderr.count("was not started") == 2
    assert "done" not in ran.stdout


def test_scancel_ends_the_ranks_as_without_and_says_so(cluster: Cluster) -> None:
    step = cluster.start(*STEP, "--job-name", "trains", "sh", "-c", run_line("long", cluster.cwd))
    until = time.monotonic() + 100
    while not all((cluster.cwd / f"ready{rank}").exists() for rank in range(2)):
        assert time.monotonic() < until and step.poll() is None
        time.sleep(0.1)
    cluster.run("scancel", "--signal=TERM", "--name", "trains")
    _, stderr = step.communicate(timeout=60)
    assert step.returncode != 0
    assert stderr.count("ended with ") == 2, stderr
    of_torchrun = [line for line in stderr.splitlines() if not line.lstrip().startswith("|")]  # "|": explain quotes it
    assert sum("death signal, shutting down workers" in line for line in of_torchrun) == 2, stderr  # heard once a node
