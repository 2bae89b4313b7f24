"""`check --on slurm:` with a real Slurm of two nodes: in a job of its own, and inside a job that is there."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.command import Command
from tests.nodes.slurm_cluster import NODES, Cluster, two_nodes

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(240)]
CHECK = ("preflight", "check", "--nproc", "1")


@pytest.fixture
def cluster(command: Command, tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[Cluster]:
    with two_nodes(command, tmp_path / "slurm", need) as started:
        yield started


def reports(cluster: Cluster) -> Mapping[str, str]:
    folder = cluster.cwd / "preflight-reports"
    return {path.stem: json.loads(path.read_text())["verdict"] for path in sorted(folder.glob("*.json"))}


def must_be_clean(cluster: Cluster) -> None:
    """Wait until no process, file, step or job of the run is left."""
    until = time.monotonic() + 30
    while True:
        processes = list(cluster.command.processes().values())
        jobs = [
            *cluster.run("squeue", "-h").stdout.splitlines(),
            *cluster.run("squeue", "-h", "-s").stdout.splitlines(),
        ]
        left = [*processes, *jobs, *cluster.command.run_dirs, *cluster.command.shm_files()]
        if not left:
            return
        assert time.monotonic() < until, left
        time.sleep(0.2)


def test_outside_a_job_it_gets_one_checks_all_nodes_and_gives_it_back(cluster: Cluster) -> None:
    ran = cluster.run(*CHECK, "--on", "slurm:2", "--slurm-args", "-p all --comment='two words'")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "ALL ALIKE" in ran.stdout
    assert reports(cluster) == dict.fromkeys(NODES, "ready")
    assert "Granted job allocation" in ran.stderr
    must_be_clean(cluster)


def test_inside_a_job_its_nodes_are_checked_and_the_job_stays(cluster: Cluster) -> None:
    script = f"{' '.join(CHECK)} --on slurm:node1 --json -; echo code $?; squeue --noheader --format=%T"
    ran = cluster.run("salloc", "-N2", "sh", "-c", script)
    document, _, rest = ran.stdout.partition("code ")
    assert rest.split() == ["0", "RUNNING"], ran.stdout + ran.stderr
    assert json.loads(document)["nodes"] == 1
    assert reports(cluster) == {"node1": "ready"}
    must_be_clean(cluster)


def test_together_the_nodes_of_a_job_make_one_report(cluster: Cluster) -> None:
    ran = cluster.run(*CHECK, "--on", "slurm:2", "--together", "--slurm-args", "-p all")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((cluster.cwd / "preflight-report.json").read_text())
    assert (report["world_size"], [node["host"] for node in report["nodes"]]) == (2, list(NODES))
    must_be_clean(cluster)


def test_what_slurm_refuses_is_unknown_and_never_the_nodes_fault(cluster: Cluster) -> None:
    ran = cluster.run(*CHECK, "--on", "slurm:2", "--slurm-args", "-p nosuch")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "salloc gave no nodes (exit code 1)" in ran.stderr and "nvalid partition" in ran.stderr
    ran = cluster.run("salloc", "-N2", *CHECK, "--on", "slurm:2", "--slurm-args", "--no-such-option")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "no-such-option" in ran.stdout
    must_be_clean(cluster)


def test_one_node_that_hangs_is_silent_and_the_page_comes(cluster: Cluster) -> None:
    # The shell before each node's command stands for a node that hangs when it starts anything.
    cluster.install("sh", '#!/bin/dash\n[ "$SLURMD_NODENAME" = node1 ] && exec sleep 200\nexec /bin/dash "$@"\n')
    ran = cluster.run(*CHECK, "--on", "slurm:2", "--deadline", "20")
    page = " ".join(ran.stdout.split())
    assert ran.returncode == 3, ran.stdout + ran.stderr
    assert "node1: silent: nothing came within 50 s" in page
    assert "1 passed, 0 failed, 0 outliers, 1 unknown" in page
    assert "--exclude=node1" in page
    must_be_clean(cluster)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_an_end_from_outside_leaves_nothing_on_any_node(cluster: Cluster, how: signal.Signals, inside: bool) -> None:
    check = (*CHECK, "--on", "slurm:2", "--profile", "standard")
    # In a job the shell says which process is preflight's.
    argv = ("salloc", "-N2", "sh", "-c", f"{' '.join(check)} & echo $! >pid; wait $!; sleep 5") if inside else check
    with cluster.start(*argv) as process:
        until = time.monotonic() + 60
        while len(cluster.command.run_dirs) < 2:
            assert time.monotonic() < until and process.poll() is None, cluster.command.processes()
            time.sleep(0.05)
        time.sleep(1.0)
        pid = int((cluster.cwd / "pid").read_text()) if inside else process.pid
        os.kill(pid, how)
        since = time.monotonic()
        stdout, stderr = process.communicate(timeout=60)
    if not inside:
        assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(how, -how), stdout + stderr
    if how is not signal.SIGKILL and not (inside and how is signal.SIGINT):  # a shell's `&` ignores SIGINT
        assert f"stopped by {how.name}" in stdout, stdout + stderr
    must_be_clean(cluster)
    assert time.monotonic() - since < 40


def test_a_request_that_still_waits_in_the_queue_is_withdrawn(cluster: Cluster) -> None:
    until_told = "while [ ! -e done ]; do sleep 0.2; done"
    with cluster.start("salloc", "-N2", "--exclusive", "sh", "-c", until_told) as holder:
        cluster.slurm.wait_until(lambda: "RUNNING" in cluster.run("squeue", "-h", "--format=%T").stdout, "not granted")
        for how in (signal.SIGINT, signal.SIGKILL):
            with cluster.start(*CHECK, "--on", "slurm:2") as process:
                cluster.slurm.wait_until(
                    lambda: "PENDING" in cluster.run("squeue", "-h", "--format=%T").stdout, "not queued"
                )
                process.send_signal(how)
                assert process.wait(30) == {signal.SIGINT: 130}.get(how, -how)
            cluster.slurm.wait_until(
                lambda: "PENDING" not in cluster.run("squeue", "-h", "--format=%T").stdout, "still queued"
            )
        (cluster.cwd / "done").touch()
        assert holder.wait(60) == 0


def test_stuck_looks_on_a_node_of_a_job_from_outside_of_it(cluster: Cluster) -> None:
    # The ranks outlive a Slurm that is slow to start a step: what ends them is scancel.
    waits = "import socket; s = socket.create_server(('127.0.0.1', 0)); s.settimeout(600); s.accept()"

    def ranks() -> int:
        return sum(line.startswith("python") and waits in line for line in cluster.command.processes().values())

    with cluster.start("salloc", "-N2", "srun", "-N2", cluster.command.python, "-c", waits) as job:
        cluster.slurm.wait_until(lambda: ranks() == 2, "no ranks")
        number = cluster.run("squeue", "-h", "--format=%i").stdout.strip()
        ran = cluster.run("preflight", "stuck", "--on", "slurm:node1", "--job", number, "--watch", "2")
        refused = cluster.run("preflight", "stuck", "--on", "slurm:2")
        still = ranks()
        cluster.run("scancel", number)
        said = job.communicate(timeout=90)
    assert still == 2, said
    # Both nodes are this machine: a `stuck` on the other would be seen as a process of this job, too.
    assert re.search("preflight: node1: [12] rank", ran.stderr), ran.stdout + ran.stderr
    assert ran.returncode in (1, 3) and "accept" in ran.stdout, ran.stdout + ran.stderr
    assert (refused.returncode, "in which job" in refused.stderr) == (2, True)
    must_be_clean(cluster)
