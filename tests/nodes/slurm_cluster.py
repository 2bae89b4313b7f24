"""Two nodes of a real Slurm on which `preflight` is this tree's."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.command import Command
from tests.netns import can_make_netns, make_nodes
from tests.slurm import Slurm, can_run_slurm, hosts_apart, run_slurm

NODES = ("node0", "node1")


class Cluster:
    """Runs commands on the first node."""

    def __init__(self, slurm: Slurm, command: Command) -> None:
        self.slurm = slurm
        self.command = command
        self.cwd = slurm.directory
        self.bin = slurm.directory / "bin"
        self.bin.mkdir()
        self.install("preflight", f'#!/bin/sh\nexec {command.python} -m preflight "$@"\n')

    def install(self, name: str, text: str) -> None:
        """Put a program in front of the nodes' PATH."""
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    @property
    def environ(self) -> dict[str, str]:
        environ = {name: value for name, value in self.command.environ().items() if not name.startswith("SLURM")}
        return environ | {"PATH": f"{self.bin}:{environ['PATH']}"}

    def run(self, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.slurm.run(*argv, timeout_s=150, **(self.environ | environ))

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.slurm.hosts[0].prefix, *argv], env=self.slurm.environ | self.environ, cwd=self.cwd, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def wait_for_task(self, node: str, within_s: float = 60) -> int:
        """Return the process of the node's `preflight check`, once the ranks of both nodes are in a trial together."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            together = list(self.command.tmp_path.glob("tmp/preflight-*/joint/control/step.0"))
            found = [
                pid for pid, line in self.command.processes().items()
                if f"--report {node}.json" in line and "-m preflight check" in line
            ]  # fmt: skip
            if len(together) == 2 and found:
                time.sleep(0.5)
                return min(found)
            time.sleep(0.05)
        raise AssertionError(f"no trial on {node} within {within_s:.0f} s: {self.command.processes()}")

    def report(self, node: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.cwd / f"{node}.json").read_text())
        return document


@contextlib.contextmanager
def two_nodes(
    command: Command, directory: Path, need: Callable[[str, bool, str], None], settings: str = ""
) -> Iterator[Cluster]:
    """Start the cluster; skip, or fail where CI requires it, for want of root, Slurm or namespaces."""
    need("slurm", can_run_slurm(), "needs root and Debian's slurm-wlm and munge")
    need("netns", can_make_netns(), "network namespaces need root and iproute2")
    with make_nodes(2) as nodes, run_slurm(directory, settings, hosts_apart(nodes)) as slurm:
        yield Cluster(slurm, command)
        command.kill_all()
