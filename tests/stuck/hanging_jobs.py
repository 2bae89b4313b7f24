"""Real jobs of four ranks that hang, and `preflight stuck` beside them: started, looked at, let go on, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.system.processes import descendants_of, state
from tests.ports import free_port

PROJECT = Path(__file__).resolve().parents[2]
TRAIN = Path(__file__).parent / "jobs" / "train.py"
RANKS = 4
FIFOS = ("checkpoint.pt", "native", "shard")
START_S, END_S = 150.0, 60.0
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
PLACEHOLDER = "x" * 15  # as in fork_server.py


@dataclass(slots=True)
class Looked:
    """What `preflight stuck` said and how long it took."""

    code: int
    took_s: float
    report: dict[str, Any]
    stderr: str

    def places(self) -> dict[int, dict[str, Any]]:
        """Return where each rank stands."""
        return {place["rank"]: place for place in self.report["places"]}


class ForkServer:
    """A process that forks ranks at once: importing torch for each takes longer than all else together."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        environ = _job_environ() | dict.fromkeys(NAMES, PLACEHOLDER)
        command = ["nice", "-n", "5", *prefix, sys.executable, str(TRAIN.with_name("fork_server.py"))]
        self._process = subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._one_at_a_time = threading.Lock()

    def fork(self, way: str, folder: Path, port: int, ranks: Sequence[int], how: str = "shown") -> list[int]:
        """Return the pids of new ranks."""
        assert self._process.stdin and self._process.stdout
        with self._one_at_a_time:
            self._process.stdin.write(f"{way} {folder} {port} {','.join(map(str, ranks))} {how}\n")
            line = self._process.stdout.readline()
        assert line, "the fork server has died"
        return [int(pid) for pid in line.split()]

    def end(self) -> None:
        """End it; its ranks were ended by their jobs."""
        self._process.kill()
        self._process.communicate()


def _job_environ() -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("NCCL_", "GLOO_", "TORCH", "SLURM_", "PYTHON"))}
    return kept | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}


@dataclass(slots=True)
class HangingJob:
    """A job in a directory of its own."""

    way: str
    folder: Path
    server: ForkServer | None = None
    prefix: tuple[str, ...] = ()  # of ranks that are started without a fork server
    port: int = 0
    pids: list[int] = field(default_factory=list)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _opened: list[int] = field(default_factory=list)

    def start(self, ranks: Sequence[int] = range(RANKS), how: str = "shown") -> None:
        """Fork ranks; without a fork server start each as torchrun does."""
        self.port = self.port or free_port()
        if self.server is not None:
            self.pids += self.server.fork(self.way, self.folder, self.port, ranks, how)
            return
        for rank in ranks:
            own = dict(zip(NAMES, (str(rank), str(rank), "4", "4", "127.0.0.1", str(self.port)), strict=True))
            with (self.folder / f"log.{rank}").open("wb") as log:
                command = ["nice", "-n", "5", *self.prefix, sys.executable, str(TRAIN), self.way, str(self.folder)]
                environ = _job_environ() | own
                self._started.append(
                    subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )
                self.pids.append(self._started[-1].pid)

    def wait_until_hung(self) -> None:
        """Wait until the rank says that the next thing hangs; the others are then on their way to wait for it."""
        self.wait_for(self.folder / "hung", START_S)

    def wait_for(self, path: Path, limit_s: float) -> None:
        """Wait for a file, while somebody of the job lives."""
        end_at = time.monotonic() + limit_s
        while not path.exists():
            assert time.monotonic() < end_at, f"{self.way}: no {path.name} after {limit_s} s\n{self.logs()}"
            time.sleep(0.05)

    def go_on(self) -> None:
        """Remove the cause of the hang."""
        (self.folder / "go_on").touch()
        for name in FIFOS:
            self._opened.append(os.open(self.folder / name, os.O_RDWR | os.O_NONBLOCK))
        os.write(self._opened[1], b"x")

    def results(self) -> list[str]:
        """Return the digests of all ranks' weights once all have ended."""
        end_at = time.monotonic() + END_S
        while any(state(pid) not in ("", "Z") for pid in self.pids):
            assert time.monotonic() < end_at, f"{self.way} did not end\n{self.logs()}"
            self.drain()
            time.sleep(0.02)
        paths = [self.folder / f"result.{rank}" for rank in range(RANKS)]
        assert all(path.exists() for path in paths), self.logs()
        return [path.read_text() for path in paths]

    def drain(self) -> None:
        """Read what is saved, and end the shard that a worker reads, which opens and closes the other end."""
        for fd in self._opened[:1]:
            with contextlib.suppress(BlockingIOError):
                os.read(fd, 1 << 16)
        if len(self._opened) == len(FIFOS):
            os.close(self._opened.pop())

    def logs(self) -> str:
        """Return the ends of the ranks' outputs."""
        return "\n".join(f"{path.name}: {path.read_text()[-600:]}" for path in sorted(self.folder.glob("log*")))

    def end(self) -> None:
        """End every process of the job, also what a dead rank has left behind."""
        below = {pid for rank in self.pids for pid in descendants_of(rank)}
        for pid in below | _of_job(self.folder) | set(self.pids):
            if state(pid) not in ("", "Z"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for each in self._started:
            each.wait()
        for fd in self._opened:
            os.close(fd)


def _of_job(folder: Path) -> set[int]:
    """Return the processes whose output goes into the folder: pids alone would miss what lost its parent."""
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{entry}/fd/1").startswith(f"{folder}/"):
                found.add(int(entry))
    return found


@contextlib.contextmanager
def hanging_job(way: str, server: ForkServer | None = None, prefix: Sequence[str] = ()) -> Iterator[HangingJob]:
    """Give a job that is not started yet; end it whatever happens."""
    with tempfile.TemporaryDirectory(prefix=f"stuck-{way}-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        job = HangingJob(way, Path(folder), server, tuple(prefix))
        for name in FIFOS:
            os.mkfifo(job.folder / name)
        (job.folder / "download.lock").touch()
        try:
            yield job
        finally:
            job.end()


def look(*arguments: str, prefix: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Looked:
    """Run `preflight stuck --json -`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    command = [*prefix, sys.executable, "-m", "preflight", "stuck", "--json", "-", *arguments]
    start = time.monotonic()
    ran = subprocess.run(
        command, cwd=PROJECT, env=kept | dict(environ or {}), capture_output=True, text=True, timeout=90, check=False
    )
    took_s = time.monotonic() - start
    assert ran.stdout.startswith("{"), ran.stderr
    return Looked(ran.returncode, took_s, json.loads(ran.stdout), ran.stderr)
