"""Several nodes for tests: namespaces on one bridge, each with its own host name, directory and `preflight check`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.command import Command
from tests.netns import Netns, node_address

MACHINES = Path(__file__).resolve().parent.parent / "machines"
PORT = 29400
ENDPOINT = f"node0:{PORT}"


@dataclass(frozen=True, slots=True)
class Ended:
    """How one node's command ended."""

    code: int
    page: str
    took_s: float
    cwd: Path

    @property
    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.cwd / "preflight-report.json").read_text())
        return document

    @property
    def env(self) -> str:
        return (self.cwd / "preflight.env").read_text()

    @property
    def told(self) -> str:
        """What preflight itself could not do."""
        return " ".join(self.report["problems"])


@dataclass
class Cluster:
    """Starts `preflight check` on nodes and waits for it."""

    command: Command
    nodes: Sequence[Netns]
    running: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    started_at: float = field(default_factory=time.monotonic)

    def cwd(self, number: int) -> Path:
        path = self.command.tmp_path / f"cwd{number}"
        path.mkdir(exist_ok=True)
        return path

    def start(self, number: int, *arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> None:
        """Start the command on a node; what it prints goes to a file, so that no pipe can fill."""
        cwd = self.cwd(number)
        share = options.pop("share", ("--nproc", "2"))
        place = ["--nnodes", str(len(self.nodes)), "--node-rank", str(number), "--rdzv-endpoint", ENDPOINT]
        if options.pop("without_options", False):
            place = []
        with (cwd / "page").open("w") as page:
            self.running[number] = self.command.start(
                "check", *share, *place, *arguments, env=env, cwd=cwd, stdout=page, stderr=page,
                prefix=self.nodes[number].named(f"node{number}"), **options,
            )  # fmt: skip

    def wait(self, timeout_s: float = 110) -> dict[int, Ended]:
        """Return how every node's command ended."""
        ended = {}
        for number, process in self.running.items():
            code = process.wait(timeout=max(1, timeout_s - (time.monotonic() - self.started_at)))
            took_s = time.monotonic() - self.started_at
            ended[number] = Ended(code, (self.cwd(number) / "page").read_text(), took_s, self.cwd(number))
        return ended

    def run(self, *arguments: str, **options: Any) -> dict[int, Ended]:
        """Run the command on all nodes."""
        for number in range(len(self.nodes)):
            self.start(number, *arguments, **options)
        return self.wait()

    def play(self, machine: str, gpus: str, rules: str, *arguments: str, timeout_s: float = 300) -> dict[int, Ended]:
        """Run the command on nodes that are like a captured machine, on the stand-in for NCCL with these faults."""
        capture = (MACHINES / f"{machine}.json").read_text().replace("eno1", "eth0")
        for number in range(len(self.nodes)):
            own = self.cwd(number) / "machine.json"
            own.write_text(capture.replace("198.18.0.1", node_address(number)).replace("host-1", f"node{number}"))
            share = ("--machine", str(own), "--backend", "simnccl@simnccl", "--gpus", gpus)
            self.start(number, *arguments, share=share, env={"SIMNCCL": rules})
        return self.wait(timeout_s)

    def end(self) -> None:
        """End what a test that failed has left."""
        for process in self.running.values():
            process.kill()
            process.wait()

    def wait_for_listener(self, number: int, within_s: float = 60) -> None:
        """Wait until something listens at the port of the meeting."""
        until = time.monotonic() + within_s
        while f":{PORT} " not in subprocess.check_output([*self.nodes[number].prefix, "ss", "-H", "-ltn"], text=True):
            assert time.monotonic() < until, f"nobody listens on node {number} after {within_s} s"
            time.sleep(0.05)

    def wait_for(self, number: int, words: str, within_s: float = 60) -> None:
        """Wait until a file with these words in its name is in a node's run directory."""
        until = time.monotonic() + within_s
        while not list(self.tmp(number).rglob(words)):
            assert time.monotonic() < until, f"no {words} on node {number} within {within_s} s"
            time.sleep(0.02)

    def tmp(self, number: int) -> Path:
        """The TMPDIR of a node that was started with `env=cluster.own_tmp(number)`."""
        path = self.command.tmp_path / f"tmp{number}"
        path.mkdir(exist_ok=True)
        return path

    def own_tmp(self, number: int) -> dict[str, str]:
        return {"TMPDIR": str(self.tmp(number))}
