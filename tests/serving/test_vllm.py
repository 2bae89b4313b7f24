"""A real vLLM with two workers on the CPU (`make test-vllm`): `stuck` and `run` beside it, and what ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serving.fetch import MODEL, VENV, missing
from tests.stuck.hanging_jobs import PROJECT, free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
STARTS_S, ENDS_S, NAMED_S = 200, 60, 30
WORKERS = ("Worker_TP0", "Worker_TP1")


class Server:
    """A vLLM server of two workers, in a session of its own; `before` stands in front of its command."""

    def __init__(self, folder: Path, before: tuple[str, ...] = ()) -> None:
        self.port = free_port()
        self.log = folder / "server.log"
        options = ("--max-model-len", "1024", "--dtype", "bfloat16", "--enforce-eager", "--host", "127.0.0.1")
        command = [*before, "vllm", "serve", str(MODEL), "-tp", "2", "--port", str(self.port), *options]
        environ = os.environ | {
            "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}", "VLLM_CPU_OMP_THREADS_BIND": "0|1", "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": str(PROJECT),
        }  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environ, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + STARTS_S
        while not self.is_healthy():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.5)

    def is_healthy(self) -> bool:
        """Return whether its health address answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def request(self) -> subprocess.Popen[bytes]:
        """Start a request, whose output is the answer."""
        body = json.dumps({"model": str(MODEL), "prompt": "w1 w2", "max_tokens": 20})
        program = (
            "import sys, urllib.request as u; r = u.Request(sys.argv[1], sys.argv[2].encode(), "
            "{'content-type': 'application/json'}); print(u.urlopen(r, timeout=90).read().decode())"
        )
        address = f"http://127.0.0.1:{self.port}/v1/completions"
        return subprocess.Popen([sys.executable, "-c", program, address, body], stdout=subprocess.PIPE)

    def pid(self, name: str) -> int:
        """Return the process that the engine calls so; "" is the program itself."""
        command = ["ps", "-s", str(self.process.pid), "-o", "pid=,args="]
        listed = subprocess.run(command, check=True, capture_output=True, text=True)
        wanted = f"VLLM::{name}" if name else "bin/vllm serve"
        rows = (line.split(None, 1) for line in listed.stdout.splitlines())
        return next(int(pid) for pid, arguments in rows if wanted in arguments)

    def end(self) -> None:
        """Kill all that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[Server]:
    need("vllm", not missing(), missing())
    started = Server(tmp_path)
    yield started
    started.end()


def preflight(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preflight", *map(str, arguments)]
    return subprocess.run(command, cwd=PROJECT, check=False, capture_output=True, text=True, timeout=120)


def stuck(server: Server) -> tuple[int, str]:
    """Return the exit code and the sentence of `preflight stuck`, which must come in time."""
    start = time.monotonic()
    ran = preflight("stuck", server.pid(""), "--json", "-")
    assert time.monotonic() - start < NAMED_S, ran.stdout
    return ran.returncode, str(json.loads(ran.stdout)["summary"])


def test_an_idle_server_is_idle_and_each_of_its_processes_that_is_stopped_is_named(server: Server) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        code, summary = stuck(server)
        assert (code, summary.split(":")[0]) == (0, "The server is idle"), summary
        time.sleep(5)
    for name, called in (*((worker, worker) for worker in WORKERS), ("EngineCore", "EngineCore"), ("", "The program")):
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


def test_explain_says_that_a_worker_was_killed(server: Server) -> None:
    os.kill(server.pid("Worker_TP1"), signal.SIGKILL)
    server.process.wait(ENDS_S)
    ran = preflight("explain", server.log, "--json", "-")
    answer = json.loads(ran.stdout)
    assert answer["causes"][0]["cause"] == "host_oom_killed", ran.stdout[:2000]
    assert "The engine lost VllmWorker-1" in answer["causes"][0]["verdict"]


def test_explain_says_that_a_connection_between_workers_was_cut(server: Server) -> None:
    pid = server.pid("Worker_TP1")
    command = ["ss", "-tnpH", "state", "established"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ports = [row.split()[2].rpartition(":")[2] for row in listed.splitlines() if f"pid={pid}," in row]
    assert ports
    for port in ports:
        subprocess.run(["ss", "-K", "state", "established", "sport", "=", f":{port}"], check=True, capture_output=True)
    if not server.request().communicate(timeout=100)[0]:
        server.process.wait(ENDS_S)
    answer = json.loads(preflight("explain", server.log, "--json", "-").stdout)
    assert answer["causes"][0]["cause"] == "remote_peer_died", answer


def test_under_run_a_request_is_answered_and_ctrl_c_ends_all(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("vllm", not missing(), missing())
    run = (sys.executable, "-m", "preflight", "run", "--backend", "gloo", "--nproc", "2", "--")
    server = Server(tmp_path, run)
    try:
        out, _ = server.request().communicate(timeout=100)
        assert b'"text"' in out
        pids = [server.pid(name) for name in ("", "EngineCore", *WORKERS)]
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(ENDS_S) == 0
        assert not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()]
        assert "preflight.env" in {path.name for path in tmp_path.iterdir()}
    finally:
        server.end()
