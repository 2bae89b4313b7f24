"""A real Slurm of two nodes: `srun preflight check` finds its place by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Command, default_trial
from tests.nodes.slurm_cluster import NODES, Cluster, two_nodes

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(240)]
CHECK = "exec preflight check --profile quick --env-out $SLURMD_NODENAME.env --report $SLURMD_NODENAME.json"
STEP = ("srun", "-N2", "--ntasks-per-node=1", "--kill-on-bad-exit=0")


@pytest.fixture
def cluster(command: Command, tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[Cluster]:
    with two_nodes(command, tmp_path / "slurm", need) as started:
        yield started


def test_the_tasks_of_a_step_find_their_places_meet_and_run_together(cluster: Cluster) -> None:
    ran = cluster.run(*STEP, "sh", "-c", CHECK)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for rank, node in enumerate(NODES):
        report = cluster.report(node)
        assert (report["verdict"], report["world_size"]) == ("ready", 4)
        assert [each["host"] for each in report["nodes"]] == list(NODES)
        trial = default_trial(report)
        assert trial["outcome"] == "ok" and trial["transport"] == ["TCP/eth0"]
        assert trial["world_size_seen"] == {str(each): 4 for each in range(4)}
        said = {each["what"]: (each["value"], each["source"]) for each in report["launch"]}
        assert said["nodes"] == ("2", "SLURM_STEP_NUM_NODES")
        assert said["node rank"] == (str(rank), "SLURM_NODEID")
        assert said["meeting point"] == ("node0", "the first host of SLURM_STEP_NODELIST")
        assert "SLURM_JOB_ID" in said["port"][1]
        env = (cluster.cwd / f"{node}.env").read_text()
        assert "PREFLIGHT_PG_TIMEOUT_S" in env and "export NCCL_" not in env


def test_a_task_that_dies_in_a_trial_is_named_by_the_other_and_no_node_is_blamed(cluster: Cluster) -> None:
    rules = "SIMNCCL=hang:rank=3,stage=first exec"
    check = CHECK.replace("exec", rules) + " --backend simnccl@simnccl --nproc 2 --stage-limit 30 --deadline 90"
    step = cluster.start(*STEP, "sh", "-c", check)
    victim = cluster.wait_for_task("node1")
    cluster.run("kill", "-9", str(victim))
    died_at = time.monotonic()
    stdout, stderr = step.communicate(timeout=100)
    assert time.monotonic() - died_at < 30
    report = cluster.report("node0")
    assert (report["exit_code"], report["verdict"]) == (3, "unknown"), stdout + stderr
    assert "node1 (node 1) went away" in " ".join(report["problems"])
    assert not [each for each in report["findings"] if each["severity"] == "fail"]


@pytest.mark.parametrize(
    "how", [("salloc", "-N2"), ("sbatch", "-N2", "--wait", "--output=page", "--wrap")], ids=["salloc", "batch-script"]
)
def test_what_is_no_step_is_one_node_and_the_page_says_so(cluster: Cluster, how: tuple[str, ...]) -> None:
    check = ["preflight", "check", "--profile", "quick"]
    ran = cluster.run(*how, *([" ".join(check)] if how[-1] == "--wrap" else check))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    page = " ".join((ran.stdout if how[0] == "salloc" else (cluster.cwd / "page").read_text()).split())
    assert "2 nodes are allocated, but this is no step of srun: start it with srun --ntasks-per-node=1" in page
    report = json.loads((cluster.cwd / "preflight-report.json").read_text())
    assert (report["world_size"], len(report["nodes"])) == (2, 1)


def test_more_than_one_task_a_node_is_a_usage_error_that_says_what_to_do(cluster: Cluster) -> None:
    ran = cluster.run("srun", "-N2", "-n4", "--overcommit", "preflight", "check")
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert "srun starts 4 tasks on 2 nodes; preflight is started once per node: srun --ntasks-per-node=1" in ran.stderr
