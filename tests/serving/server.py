"""A serving engine with two workers on this machine: its processes, requests to it, and what `stuck` says of it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.ports import free_port
from tests.stuck.hanging_jobs import PROJECT

STARTS_S, ENDS_S, NAMED_S = 200, 60, 30
UNDER_RUN = (sys.executable, "-m", "preflight", "run", "--backend", "gloo", "--nproc", "2", "--")
PIDFD_GETFD = 438  # the same number on all architectures; Python has no name for it


class Server:
    """A server in a session of its own. `titles` begin the names of its processes, `program` is in its own command."""

    titles, program = "", ""

    def __init__(self, folder: Path, model: Path, command: tuple[str, ...], environ: dict[str, str]) -> None:
        self.port, self.model = free_port(), model
        self.log = folder / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(self.port)],
                env=os.environ | {"PYTHONPATH": str(PROJECT), "HF_HUB_OFFLINE": "1"} | environ,
                cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + STARTS_S
        while not self.is_healthy():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.5)

    def is_healthy(self) -> bool:
        """Return whether its health address answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def post(self, path: str, **body: object) -> subprocess.Popen[bytes]:
        """Start a request, whose output is the answer."""
        program = (
            "import sys, urllib.request as u; r = u.Request(sys.argv[1], sys.argv[2].encode(), "
            "{'content-type': 'application/json'}); print(u.urlopen(r, timeout=90).read().decode())"
        )
        address = f"http://127.0.0.1:{self.port}{path}"
        command = [sys.executable, "-c", program, address, json.dumps(body)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def request(self) -> subprocess.Popen[bytes]:
        """Start a request for 20 words."""
        return self.post("/v1/completions", model=str(self.model), prompt="w1 w2", max_tokens=20)

    def pid(self, name: str) -> int:
        """Return the process that the engine calls so; "" is the program itself."""
        command = ["ps", "-ww", "-s", str(self.process.pid), "-o", "pid=,args="]
        listed = subprocess.run(command, check=True, capture_output=True, text=True)
        rows = [line.split(None, 1) for line in listed.stdout.splitlines()]
        if name:
            return next(int(pid) for pid, arguments in rows if arguments.startswith(self.titles + name))
        return next(int(pid) for pid, arguments in rows if self.program in arguments and "preflight" not in arguments)

    def cut(self, name: str) -> None:
        """Cut the TCP connections of a process, as a reset on the way does."""
        pid = self.pid(name)
        get, pidfd, cut = ctypes.CDLL(None, use_errno=True).syscall, os.pidfd_open(pid), 0
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(link).startswith("socket:"):
                with socket.socket(fileno=get(PIDFD_GETFD, pidfd, int(link.name), 0)) as copy:
                    try:
                        copy.getpeername()
                    except OSError:  # it listens
                        continue
                    if copy.family in (socket.AF_INET, socket.AF_INET6):
                        copy.shutdown(socket.SHUT_RDWR)
                        cut += 1
        os.close(pidfd)
        assert cut, f"{name} has no connection"

    def end(self) -> None:
        """Kill all that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()


def preflight(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preflight", *map(str, arguments)]
    return subprocess.run(command, cwd=PROJECT, check=False, capture_output=True, text=True, timeout=120)


def stuck(server: Server) -> tuple[int, str]:
    """Return the exit code and the sentence of `preflight stuck`, which must come in time."""
    start = time.monotonic()
    ran = preflight("stuck", server.pid(""), "--json", "-")
    assert time.monotonic() - start < NAMED_S, ran.stdout
    return ran.returncode, str(json.loads(ran.stdout)["summary"])


def cause(server: Server) -> tuple[str, str]:
    """Return the first cause that `preflight explain` finds in the server's log, and the sentence about it."""
    causes = json.loads(preflight("explain", server.log, "--json", "-").stdout)["causes"]
    return (causes[0]["cause"], causes[0]["verdict"]) if causes else ("", "")


def each_that_is_stopped_is_named(server: Server, processes: Iterable[tuple[str, str]]) -> None:
    """Stop each process (its engine's name, and preflight's) during a request, which is answered once it goes on."""
    for name, called in processes:
        pid = server.pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            request = server.request()
            time.sleep(3)
            code, summary = stuck(server)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert code == 1 and called in summary and f"(pid {pid}) is stopped by a signal" in summary, summary
        out, _ = request.communicate(timeout=100)
        assert b'"text"' in out, f"{name}: the request was not answered once it went on"
    assert stuck(server)[0] == 0


def answers_and_ends_by_ctrl_c(server: Server, names: Sequence[str], code: int) -> None:
    """Have a server under `preflight run` answer a request; Ctrl-C then ends it and its processes of these names."""
    try:
        out, _ = server.request().communicate(timeout=100)
        assert b'"text"' in out
        pids = [server.pid(name) for name in names]
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(ENDS_S) == code
        assert not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]
        assert "preflight.env" in {path.name for path in server.log.parent.iterdir()}
    finally:
        server.end()
