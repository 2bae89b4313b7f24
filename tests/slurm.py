"""A real Slurm with two nodes on this host, for one test. Needs root and Debian's slurm-wlm and munge.

With network namespaces the nodes have addresses, host names and hosts files of their own, like two machines.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.netns import Netns, node_address
from tests.ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")
START_S = 30.0


@dataclass(frozen=True, slots=True)
class Host:
    """Where a slurmd runs."""

    node: str
    hostname: str
    address: str
    prefix: tuple[str, ...] = ()  # what to put before a command for it to run there


def hosts_here() -> tuple[Host, ...]:
    """Return two nodes that share this host's name and loopback address."""
    return tuple(Host(node, socket.gethostname(), "127.0.0.1") for node in ("n1", "n2"))


def hosts_apart(spaces: Sequence[Netns]) -> tuple[Host, ...]:
    """Return a node for each of the namespaces that make_nodes made."""
    return tuple(
        Host(f"node{k}", f"node{k}", node_address(k), space.named(f"node{k}")) for k, space in enumerate(spaces)
    )


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running cluster."""

    directory: Path
    hosts: tuple[Host, ...]

    @property
    def environ(self) -> dict[str, str]:
        """What a Slurm command needs to reach it."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return inherited | {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def run(self, *argv: str, timeout_s: float = 100.0, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands on the first host."""
        return subprocess.run(
            [*self.hosts[0].prefix, *argv], env=self.environ | environ, capture_output=True, text=True,
            timeout=timeout_s, check=False, stdin=subprocess.DEVNULL, cwd=self.directory,
        )  # fmt: skip

    def state_of(self, node: str) -> str:
        """Return a node's state, such as `idle` or `drained`."""
        return self.run("sinfo", "--noheader", "--nodes", node, "--format", "%T").stdout.strip()

    def reason_of(self, node: str) -> str:
        """Return why a node is down or drained; `none` where it is neither."""
        return self.run("sinfo", "--noheader", "--nodes", node, "--format", "%300E").stdout.strip()

    def wait_until(self, is_true: Callable[[], bool], problem: str) -> None:
        """Wait; fail with what the daemons logged."""
        _wait(is_true, problem, self.directory)


def can_run_slurm() -> bool:
    """Tell whether a cluster can be started here."""
    paths = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return os.geteuid() == 0 and all(shutil.which(program, path=paths) for program in PROGRAMS)


@contextlib.contextmanager
def run_slurm(directory: Path, settings: str = "", hosts: tuple[Host, ...] = ()) -> Iterator[Slurm]:
    """Start munged, slurmctld and a slurmd per node, wait until both are idle; stop them all at the end."""
    hosts = hosts or hosts_here()
    (directory / "state").mkdir(parents=True)
    (directory / "munge.key").write_bytes(secrets.token_bytes(128))
    (directory / "munge.key").chmod(0o400)
    # Nothing is confined here; but slurmd looks for a kind of cgroup by itself, and in a namespace there is none.
    (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    slurm = Slurm(directory, hosts)
    with contextlib.ExitStack() as daemons:
        # slurmd's sockets lie in its spool, and the name of a socket has 107 characters: xdist's folders are too deep.
        spool = Path(daemons.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp")))
        for host in hosts:
            (spool / host.node).mkdir()
        (directory / "slurm.conf").write_text(_configuration(directory, spool, settings, hosts))
        socket_path = directory / "munge.socket"
        daemons.enter_context(
            _daemon(
                slurm, "munged", "--foreground", "--force", f"--socket={socket_path}",
                f"--key-file={directory / 'munge.key'}", f"--pid-file={directory / 'munged.pid'}",
                f"--log-file={directory / 'munged.log'}", f"--seed-file={directory / 'munged.seed'}",
            )
        )  # fmt: skip
        _wait(socket_path.exists, "munged has no socket", directory)
        daemons.enter_context(_daemon(slurm, "slurmctld", "-D", prefix=hosts[0].prefix))
        for host in hosts:
            daemons.enter_context(_daemon(slurm, "slurmd", "-D", "-N", host.node, prefix=host.prefix))
        _wait(lambda: all(slurm.state_of(host.node) == "idle" for host in hosts), "the nodes are not idle", directory)
        yield slurm


def _configuration(directory: Path, spool: Path, settings: str, hosts: tuple[Host, ...]) -> str:
    controller, *ports = [free_port() for _ in range(1 + len(hosts))]
    lines = [
        "ClusterName=preflight", f"SlurmctldHost={hosts[0].hostname}({hosts[0].address})",
        f"SlurmctldPort={controller}",
        "SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge", f"AuthInfo=socket={directory}/munge.socket",
        "CryptoType=crypto/munge", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
        "SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "ReturnToService=2", "SwitchType=switch/none",
        f"StateSaveLocation={directory}/state", f"SlurmdSpoolDir={spool}/%n",
        f"SlurmctldPidFile={directory}/slurmctld.pid", f"SlurmdPidFile={directory}/slurmd-%n.pid",
        f"SlurmctldLogFile={directory}/slurmctld.log", f"SlurmdLogFile={directory}/slurmd-%n.log",
        "AccountingStorageType=accounting_storage/none", "JobAcctGatherType=jobacct_gather/none",
        "SlurmdTimeout=300", "InactiveLimit=0", "KillWait=5", "MessageTimeout=30",
        f"FirstJobId={controller}", settings,  # what is left of another test's job is not of this one's
    ]  # fmt: skip
    for host, port in zip(hosts, ports, strict=True):
        place = f"NodeHostname={host.hostname} NodeAddr={host.address} Port={port}"
        lines.append(f"NodeName={host.node} {place} CPUs=1 State=UNKNOWN")
    names = ",".join(host.node for host in hosts)
    lines.append(f"PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _daemon(slurm: Slurm, program: str, *arguments: str, prefix: tuple[str, ...] = ()) -> Iterator[None]:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin") or program
    name = f"{program}-{arguments[-1]}" if program == "slurmd" else program
    with (slurm.directory / f"{name}.out").open("wb") as log:
        process = subprocess.Popen(
            [*prefix, path, *arguments], env=slurm.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
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
