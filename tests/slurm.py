"""A real Slurm with two nodes on this host, for one test. Needs root and Debian's slurm-wlm and munge."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")
START_S = 30.0
NODES = ("n1", "n2")


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running cluster of the nodes n1 and n2."""

    directory: Path

    @property
    def environ(self) -> dict[str, str]:
        """What a Slurm command needs to reach it."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return inherited | {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def run(self, *argv: str, timeout_s: float = 100.0, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands."""
        return subprocess.run(
            argv, env=self.environ | environ, capture_output=True, text=True, timeout=timeout_s, check=False,
            stdin=subprocess.DEVNULL, cwd=self.directory,
        )  # fmt: skip

    def state_of(self, node: str) -> str:
        """Return a node's state, such as `idle` or `drained`."""
        return self.run("sinfo", "--noheader", "--nodes", node, "--format", "%T").stdout.strip()


def can_run_slurm() -> bool:
    """Tell whether a cluster can be started here."""
    paths = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return os.geteuid() == 0 and all(shutil.which(program, path=paths) for program in PROGRAMS)


@contextlib.contextmanager
def run_slurm(directory: Path, settings: str = "") -> Iterator[Slurm]:
    """Start munged, slurmctld and a slurmd per node, wait until both are idle; stop them all at the end."""
    (directory / "state").mkdir(parents=True)
    for node in NODES:
        (directory / f"spool-{node}").mkdir()
    (directory / "munge.key").write_bytes(secrets.token_bytes(128))
    (directory / "munge.key").chmod(0o400)
    (directory / "slurm.conf").write_text(_configuration(directory, settings))
    slurm = Slurm(directory)
    with contextlib.ExitStack() as daemons:
        socket_path = directory / "munge.socket"
        daemons.enter_context(
            _daemon(
                slurm, "munged", "--foreground", "--force", f"--socket={socket_path}",
                f"--key-file={directory / 'munge.key'}", f"--pid-file={directory / 'munged.pid'}",
                f"--log-file={directory / 'munged.log'}", f"--seed-file={directory / 'munged.seed'}",
            )
        )  # fmt: skip
        _wait(socket_path.exists, "munged has no socket", directory)
        daemons.enter_context(_daemon(slurm, "slurmctld", "-D"))
        for node in NODES:
            daemons.enter_context(_daemon(slurm, "slurmd", "-D", "-N", node))
        _wait(lambda: all(slurm.state_of(node) == "idle" for node in NODES), "the nodes are not idle", directory)
        yield slurm


def _configuration(directory: Path, settings: str) -> str:
    host = socket.gethostname()
    controller, *ports = _free_ports(1 + len(NODES))
    lines = [
        "ClusterName=preflight", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={controller}",
        "SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge", f"AuthInfo=socket={directory}/munge.socket",
        "CryptoType=crypto/munge", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
        "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "ReturnToService=2", "SwitchType=switch/none",
        f"StateSaveLocation={directory}/state", f"SlurmdSpoolDir={directory}/spool-%n",
        f"SlurmctldPidFile={directory}/slurmctld.pid", f"SlurmdPidFile={directory}/slurmd-%n.pid",
        f"SlurmctldLogFile={directory}/slurmctld.log", f"SlurmdLogFile={directory}/slurmd-%n.log",
        "AccountingStorageType=accounting_storage/none", "JobAcctGatherType=jobacct_gather/none",
        "SlurmdTimeout=300", "InactiveLimit=0", "KillWait=5", "MessageTimeout=30", settings,
    ]  # fmt: skip
    for node, port in zip(NODES, ports, strict=True):
        lines.append(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN")
    lines.append(f"PartitionName=all Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def _daemon(slurm: Slurm, program: str, *arguments: str) -> Iterator[None]:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin") or program
    name = f"{program}-{arguments[-1]}" if program == "slurmd" else program
    with (slurm.directory / f"{name}.out").open("wb") as log:
        process = subprocess.Popen(
            [path, *arguments], env=slurm.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(is_true: Callable[[], bool], problem: str, directory: Path) -> None:
    until = time.monotonic() + START_S
    while not is_true():
        if time.monotonic() > until:
            logs = {path.name: path.read_text(errors="replace")[-500:] for path in directory.glob("*.log")}
            outs = {path.name: path.read_text(errors="replace")[-300:] for path in directory.glob("*.out")}
            raise AssertionError(f"{problem} after {START_S:.0f} s: {logs} {outs}")
        time.sleep(0.1)
