"""The Slurm examples in scripts/ run in a real Slurm of two nodes.

No node here has a GPU, so `--accept` answers unknown. Where a node is to be rejected, a program called `preflight`
stands in: its `check` hands out a saved report that the real checks and the real verdict made of simulated facts.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preflight.model.finding import Blame
from preflight.model.report import Report
from preflight.show.drain_nagios_k8s import render_drain
from preflight.show.json_document import render_json
from tests.command import Command
from tests.conftest import PROJECT
from tests.nodes.slurm_cluster import NODES, Cluster, two_nodes
from tests.show.judged import BLAMED, accepted

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(240)]
SCRIPTS = PROJECT / "scripts"
REPORTS: dict[int, Report] = {0: accepted(), 1: BLAMED[Blame.GPU](), 3: BLAMED[Blame.HARNESS]()}
REASON = render_drain(REPORTS[1]).strip()

# `check` answers as the file says that is named like the node; everything else is the real command.
STAND_IN = """#!{python}
import os, shutil, socket, sys
if sys.argv[1] not in ("check", "probe"):
    os.execv(sys.executable, [sys.executable, "-m", "preflight", *sys.argv[1:]])
code = int(open("{folder}/" + socket.gethostname()).read())
options = dict(zip(sys.argv, sys.argv[1:]))
for option, form in (("--report", "json"), ("--also", "drain")):
    if option in options and os.path.exists(f"{folder}/{{code}}.{{form}}"):
        shutil.copy(f"{folder}/{{code}}.{{form}}", options[option].rpartition("=")[2])
print("preflight probe: gpu-lost GPU 0000:1b:00.0" if code == 1 else "nothing")
sys.exit(code)
"""
TRAIN = """import os, torch.distributed as dist, torch
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
sourced = os.environ["PREFLIGHT_PG_TIMEOUT_S"]
print("trained", os.uname().nodename, dist.get_rank(), int(ones.item()), sourced, flush=True)
dist.destroy_process_group()
"""

Start = Callable[..., Cluster]


@pytest.fixture
def start(command: Command, tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[Start]:
    """Return a function that starts the cluster, with scripts as programs that slurmd runs, by their setting."""
    started = []

    def begin(more: str = "", **scripts: str) -> Cluster:
        for setting, script in scripts.items():
            hook = tmp_path / script
            hook.write_text(_hook(command, tmp_path / "slurm", SCRIPTS / script))
            hook.chmod(0o755)
            more = f"{setting}={hook}\n{more}"
        manager = two_nodes(command, tmp_path / "slurm", need, more)
        cluster = manager.__enter__()
        started.append(manager)
        return cluster

    yield begin
    for manager in started:
        manager.__exit__(None, None, None)


def _hook(command: Command, directory: Path, script: Path) -> str:
    """Return a program with the environment that a site gives its script; slurmd's own is nearly empty."""
    own = {"SLURM_CONF": str(directory / "slurm.conf"), "PREFLIGHT_PATH": str(directory / "bin")}
    own |= {name: command.environ()[name] for name in ("PYTHONPATH", "PREFLIGHT_TEST_MARK", "TMPDIR", "PATH")}
    own["PREFLIGHT_WHOLE_NODE"] = "1"  # this cluster knows of no GPUs
    own["PREFLIGHT_SHARED"] = str(directory / "shared")
    lines = [f"export {name}={shlex.quote(value)}" for name, value in own.items()]
    lines += [f"export PREFLIGHT_DIR={directory}/$(hostname)", f"exec {script}"]
    return "\n".join(["#!/bin/sh", *lines, ""])


def answer(cluster: Cluster, **codes: int) -> None:
    """Have a stand-in answer on these nodes, without a moment in which there is none."""
    folder = cluster.cwd / "answers"
    folder.mkdir(exist_ok=True)
    for code, report in REPORTS.items():
        (folder / f"{code}.json").write_text(render_json(report))
        (folder / f"{code}.drain").write_text(render_drain(report))
    for node in NODES:
        (folder / node).write_text(str(codes.get(node, 0)))
    cluster.install("preflight", STAND_IN.format(python=cluster.command.python, folder=folder))


def comment_of(cluster: Cluster, node: str) -> str:
    shown = cluster.run("scontrol", "show", "node", node).stdout
    return next((line.strip()[8:] for line in shown.splitlines() if line.strip().startswith("Comment=")), "")


def wait_for_comment(cluster: Cluster, comment: str) -> None:
    cluster.slurm.wait_until(lambda: comment_of(cluster, "node0") == comment, f"never noted: {comment!r}")


def test_the_sbatch_script_checks_all_nodes_and_ends_with_the_fleet(start: Start) -> None:
    cluster = start()
    script = str(SCRIPTS / "slurm_check.sbatch")
    ran = cluster.run("sbatch", "--wait", "--output=job.out", script, "--profile", "quick", OUT=str(cluster.cwd / "o"))
    told = (cluster.cwd / "job.out").read_text()
    assert ran.returncode == 0, told + ran.stderr
    files = {f"{node}.{kind}" for node in NODES for kind in ("env", "json", "txt")}
    assert {path.name for path in (cluster.cwd / "o").iterdir()} == files
    for node in NODES:
        report = json.loads((cluster.cwd / "o" / f"{node}.json").read_text())
        assert (report["world_size"], [each["host"] for each in report["nodes"]]) == (4, list(NODES))
    assert "CPU path: gloo over 4 ranks of 2 nodes" in told
    assert "2 nodes" in told and "a newer report" not in told


def test_the_sbatch_script_hands_on_that_nothing_could_be_tried(start: Start) -> None:
    cluster = start()
    answer(cluster, node0=3, node1=3)
    ran = cluster.run("sbatch", "--wait", "--output=job.out", str(SCRIPTS / "slurm_check.sbatch"))
    assert ran.returncode == 3, (cluster.cwd / "job.out").read_text()


def test_a_job_that_is_checked_first_sources_each_node_s_own_settings(start: Start) -> None:
    cluster = start()
    cluster.install("torchrun", f'#!/bin/sh\nexec {cluster.command.python} -m torch.distributed.run "$@"\n')
    (cluster.cwd / "train.py").write_text(TRAIN)
    script = str(SCRIPTS / "slurm_train.sbatch")
    ran = cluster.run("sbatch", "--wait", "--output=job.out", script, PREFLIGHT_SCRIPTS=str(SCRIPTS))
    told = (cluster.cwd / "job.out").read_text()
    assert ran.returncode == 0, told + ran.stderr
    assert {line for line in told.splitlines() if line.startswith("trained")} == {
        "trained node0 0 2 600", "trained node1 1 2 600",
    }  # fmt: skip


def test_a_job_that_is_not_ready_is_not_started(start: Start) -> None:
    cluster = start()
    answer(cluster, node0=1, node1=1)
    cluster.install("torchrun", "#!/bin/sh\necho trained\n")
    script = str(SCRIPTS / "slurm_train.sbatch")
    ran = cluster.run("sbatch", "--wait", "--output=job.out", script, PREFLIGHT_SCRIPTS=str(SCRIPTS))
    assert ran.returncode == 1
    assert "trained" not in (cluster.cwd / "job.out").read_text()


def test_only_a_report_that_rejects_an_idle_node_drains_it_with_its_reason(start: Start) -> None:
    cluster = start()
    drain = (str(SCRIPTS / "slurm_drain.sh"), *NODES)
    ran = cluster.run(*drain, PREFLIGHT_DIR=str(cluster.cwd / "real"))
    assert ran.stdout.count("unknown, left as it is (exit code 3)") == 2, "on the CPU path --accept can't answer"
    answer(cluster, node0=2, node1=1)
    ran = cluster.run(*drain, PREFLIGHT_DIR=str(cluster.cwd / "played"))
    assert f"node1: drained: {REASON}" in ran.stdout, ran.stdout + ran.stderr
    assert "node0: unknown, left as it is (exit code 2)" in ran.stdout
    assert (cluster.slurm.state_of("node0"), cluster.slurm.state_of("node1")) == ("idle", "drained")
    assert cluster.slurm.reason_of("node1") == REASON
    answer(cluster, node0=0, node1=0)
    ran = cluster.run(*drain, PREFLIGHT_DIR=str(cluster.cwd / "played"), PREFLIGHT_WAIT_S="1")
    assert "node0: accepted" in ran.stdout
    assert "node1: unknown, left as it is (exit code 1)" in ran.stdout, "srun itself failed: that says nothing"


def as_documented() -> str:
    """Return the lines of slurm.conf that the page shows, without what a test puts into their place."""
    page = (PROJECT / "docs" / "clusters.md").read_text(encoding="utf-8")
    lines = page.partition("```ini\n")[2].partition("```")[0].splitlines()
    own = ("Prolog=", "Epilog=", "PartitionName=", "HealthCheckProgram=", "HealthCheckInterval=")
    return "\n".join(["HealthCheckInterval=1", *(line for line in lines if not line.startswith(own))])


def test_the_prolog_drains_with_its_own_reason_and_lets_a_job_start_where_nothing_is_known(start: Start) -> None:
    cluster = start(as_documented(), Prolog="slurm_prolog.sh", HealthCheckProgram="slurm_health_check.sh")
    answer(cluster, node0=3, node1=1)
    ran = cluster.run("srun", "--nodelist=node0", "echo", "the job")
    assert (ran.returncode, ran.stdout) == (0, "the job\n"), ran.stderr
    wait_for_comment(cluster, "preflight inconclusive: exit code 3")
    job = cluster.run("sbatch", "--parsable", "--nodelist=node1", "--wrap", "true").stdout.strip()
    cluster.slurm.wait_until(lambda: cluster.slurm.state_of("node1").startswith("drain"), "node1 is not drained")
    reason = "preflight probe: gpu-lost GPU 0000:1b:00.0"
    cluster.slurm.wait_until(lambda: cluster.slurm.reason_of("node1") == reason, "Slurm was never told the reason")
    assert cluster.slurm.state_of("node0") == "idle"
    shown = cluster.run("scontrol", "show", "job", job).stdout
    assert "JobState=PENDING" in shown and "held" not in shown, (
        "it waits for another node, and nobody has to release it"
    )


def test_the_epilog_tries_a_node_whose_job_failed_and_drains_it_for_the_same_finding_twice(start: Start) -> None:
    cluster = start(as_documented(), Epilog="slurm_epilog.sh", HealthCheckProgram="slurm_health_check.sh")
    answer(cluster, node0=3, node1=0)
    reports = cluster.cwd / "node1" / "reports"
    assert cluster.run("srun", "--nodelist=node1", "true").returncode == 0
    cluster.slurm.wait_until(lambda: any(reports.glob("*.json")), "the epilog did not try the node")
    answer(cluster, node0=3, node1=1)
    assert cluster.run("srun", "--nodelist=node1", "true").returncode == 0
    assert cluster.run("srun", "--nodelist=node0", "false").returncode == 1
    cluster.slurm.wait_until((cluster.cwd / "node0" / "epilog.log").exists, "the epilog did not try node0")
    cluster.slurm.wait_until(
        lambda: [cluster.slurm.state_of(node) for node in NODES] == ["idle", "idle"],
        "tried today; unknown: not drained",
    )
    assert cluster.run("srun", "--nodelist=node1", "false").returncode == 1
    cluster.slurm.wait_until(lambda: cluster.slurm.state_of("node1").startswith("drain"), "node1 is not drained")
    assert cluster.slurm.reason_of("node1") == REASON


def test_the_health_check_notes_what_the_facts_show_and_drains_nobody(start: Start) -> None:
    cluster = start("HealthCheckInterval=1", HealthCheckProgram="slurm_health_check.sh")
    looked = cluster.cwd / "node0" / "probe.new"
    cluster.slurm.wait_until(looked.exists, "slurmd ran no real probe")
    wait_for_comment(cluster, "")
    for code, comment in (
        (1, "preflight probe: gpu-lost GPU 0000:1b:00.0"), (3, "preflight inconclusive: exit code 3"),
        (2, "preflight inconclusive: exit code 2"), (0, ""),
    ):  # fmt: skip
        answer(cluster, node0=code)
        wait_for_comment(cluster, comment)
        assert [cluster.slurm.state_of(node) for node in NODES] == ["idle", "idle"]
