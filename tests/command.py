"""The real `preflight` command for tests: started with a mark in its environment, by which all of it is found again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.model.trial import AGAIN, DEFAULT

SIMNCCL = Path(__file__).resolve().parent / "simnccl"
# This tree's preflight, also where another one is installed.
OWN_PATH = os.pathsep.join((str(SIMNCCL.parent.parent), str(SIMNCCL)))
SHM = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    took_s: float
    cwd: Path

    @property
    def report(self) -> dict[str, Any]:
        """The report that it wrote."""
        document: dict[str, Any] = json.loads((self.cwd / "preflight-report.json").read_text())
        return document

    @property
    def document(self) -> dict[str, Any]:
        """What it printed with --json -."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document


def default_trial(report: dict[str, Any]) -> dict[str, Any]:
    """Return the default's trial; all others must be its repetitions, since a busy machine makes a rank look late."""
    trial: dict[str, Any] = report["trials"][0]
    others = [each["candidate"] for each in report["trials"][1:]]
    assert trial["candidate"] == DEFAULT and all(name.startswith(AGAIN) for name in others), others
    return trial


@dataclass
class Command:
    """Runs `preflight` with the given Python."""

    python: str
    tmp_path: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def cwd(self) -> Path:
        """An empty directory of its own."""
        path = self.tmp_path / "cwd"
        path.mkdir(exist_ok=True)
        return path

    @property
    def run_dirs(self) -> list[Path]:
        """The run directories that are there now."""
        return sorted(self._tmp().glob("preflight-*"))

    def environ(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return an environment without anything that tunes communication, and with bytecode: pip installs it."""
        left_out = ("NCCL_", "GLOO_", "TORCH_", "SIMNCCL", "COLUMNS", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        own = {"PREFLIGHT_TEST_MARK": self.mark, "TMPDIR": str(self._tmp()), "PYTHONPATH": OWN_PATH}
        own["PREFLIGHT_VERBOSE"] = "1"  # a test may ask for anything that the page holds
        return inherited | own | dict(env or {})

    def start(self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start the command and return it; `prefix` is what runs it, such as `ip netns exec NAME`."""
        defaults: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        return subprocess.Popen(
            [*options.pop("prefix", ()), self.python, "-m", "preflight", *arguments],
            cwd=options.pop("cwd", self.cwd), env=self.environ(env), **defaults | options,
        )  # fmt: skip

    def run(self, *arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 100, **options: Any) -> Ran:
        """Run the command to its end."""
        start = time.monotonic()
        cwd = options.get("cwd", self.cwd)
        with self.start(*arguments, env=env, **options) as process:
            stdout, stderr = process.communicate(timeout=timeout_s)
        return Ran(process.returncode, stdout or "", stderr or "", time.monotonic() - start, Path(cwd))

    def simulate(self, rules: str, *arguments: str, ranks: int = 4, limit_s: float = 2) -> Ran:
        """Run `preflight check` on the simulated backend with these faults."""
        return self.run(
            "check", "--backend", "simnccl@simnccl", "--nproc", str(ranks), "--stage-limit", str(limit_s), *arguments,
            env={"SIMNCCL": rules},
        )  # fmt: skip

    def processes(self) -> dict[int, str]:
        """Return pid -> name and command line of every living process that carries this command's mark."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if self.mark.encode() in (entry / "environ").read_bytes():
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(entry.name)] = f"{(entry / 'comm').read_text().strip()} {line}"
            except OSError:
                continue
        return found

    def wait_until_gone(self, within_s: float) -> float:
        """Return how long it took until no process was left; fail after `within_s`."""
        start = time.monotonic()
        while left := self.processes():
            assert time.monotonic() - start < within_s, f"still there after {within_s} s: {left}"
            time.sleep(0.02)
        return time.monotonic() - start

    def shm_files(self) -> set[str]:
        """Return the segments in /dev/shm that this command's ranks made; others' files are none of its business."""
        return {name for name in os.listdir(SHM) if self.mark in name}

    def kill_all(self) -> None:
        """End what is left, so that one failing test does not disturb the next."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _tmp(self) -> Path:
        path = self.tmp_path / "tmp"
        path.mkdir(exist_ok=True)
        return path
