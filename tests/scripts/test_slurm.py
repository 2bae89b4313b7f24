"""A real Slurm controller takes the drain reason as it is, whatever the names in the report are."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preflight.model.finding import Blame
from preflight.model.report import Report
from preflight.show.drain_nagios_k8s import render_drain
from tests.conftest import PROJECT
from tests.ports import free_port
from tests.show.judged import BLAMED
from tests.show.outputs import hostile

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("slurm")]

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
NodeName=n7 NodeHostname={host} Port={node_port} CPUs=1
PartitionName=all Nodes=n7 Default=YES
"""
MUNGE = ("--key-file={0}/munge.key", "--socket={0}/munge.socket", "--pid-file={0}/munged.pid", "--foreground",
         "--force", "--log-file={0}/munged.log", "--seed-file={0}/munge.seed", "--num-threads=1")  # fmt: skip
WAIT_S = 30.0


@pytest.fixture
def slurm(tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[dict[str, str]]:
    """Start munged and slurmctld with everything below tmp_path; return the environment for scontrol."""
    found = all(shutil.which(name) for name in ("munged", "slurmctld", "scontrol"))
    need("slurm", found and os.geteuid() == 0, "slurmctld and munged are not installed, or this is not root")
    for name in ("state", "spool"):
        (tmp_path / name).mkdir()
    (tmp_path / "munge.key").write_bytes(os.urandom(128))
    (tmp_path / "munge.key").chmod(0o600)
    config = tmp_path / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    config.write_text(CONFIG.format(folder=tmp_path, host=host, port=free_port(), node_port=free_port()))
    env = os.environ | {"SLURM_CONF": str(config)}
    munge = subprocess.Popen(["munged", *(option.format(tmp_path) for option in MUNGE)], stderr=subprocess.DEVNULL)
    wait_for((tmp_path / "munge.socket").exists)
    controller = subprocess.Popen(["slurmctld", "-D", "-i"], env=env, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: "UP" in run(("scontrol", "ping"), env))
        yield env
    finally:
        for process in (controller, munge):
            process.terminate()
            process.wait(timeout=WAIT_S)


def run(argv: tuple[str, ...], env: dict[str, str]) -> str:
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=WAIT_S)
    return ran.stdout + ran.stderr


def wait_for(ready: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.1)


def told_by(env: dict[str, str]) -> str:
    """Return the reason that Slurm holds, without the user and time that it puts behind it."""
    shown = run(("scontrol", "--oneliner", "show", "node", "n7"), env)
    assert "DRAIN" in shown
    return shown.partition(" Reason=")[2].rpartition(" [")[0]


def test_slurm_holds_the_reason_as_it_was_given(slurm: dict[str, str], tmp_path: Path) -> None:
    report = BLAMED[Blame.GPU]()
    reports: list[Report] = [report, hostile(report), hostile(BLAMED[Blame.FABRIC](), "a=b State=RESUME Reason=x")]
    for each in reports:
        reason = render_drain(each).strip()
        assert run(("scontrol", "update", "NodeName=n7", "State=DRAIN", f"Reason={reason}"), slurm) == ""
        assert told_by(slurm) == reason


def test_the_health_check_drains_the_node_for_the_epilog_in_a_real_slurm(slurm: dict[str, str], tmp_path: Path) -> None:
    reason = render_drain(BLAMED[Blame.GPU]())
    (tmp_path / "bin").mkdir()
    (tmp_path / "reason").write_text(reason)
    fake = tmp_path / "bin" / "preflight"
    fake.write_text(f"#!/bin/sh\ncp {tmp_path}/reason drain.txt\nexit 1\n")
    fake.chmod(0o755)
    places = {"PREFLIGHT_PATH": str(fake.parent), "PREFLIGHT_DIR": str(tmp_path / "out"), "SLURMD_NODENAME": "n7"}
    places["PREFLIGHT_SHARED"] = str(tmp_path / "shared")
    for script in ("slurm_epilog.sh", "slurm_health_check.sh"):
        argv = [PROJECT / "scripts" / script]
        ran = subprocess.run(argv, env=slurm | places, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert told_by(slurm) == reason.strip()
