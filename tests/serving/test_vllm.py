"""A real vLLM with two workers on the CPU (`make test-vllm`): `stuck` and `run` beside it, and what ends it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serving.fetch import VLLM
from tests.serving.server import (
    ENDS_S,
    UNDER_RUN,
    Server,
    answers_and_ends_by_ctrl_c,
    cause,
    each_that_is_stopped_is_named,
    stuck,
)  # fmt: skip

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
WORKERS = ("Worker_TP0", "Worker_TP1")
RING_BLOCKS = 10  # of vLLM 0.32.0's MessageQueue


class Vllm(Server):
    """A vLLM server of two workers; `before` stands in front of its command."""

    titles, program = "VLLM::", "bin/vllm serve"

    def __init__(self, folder: Path, before: tuple[str, ...] = ()) -> None:
        super().__init__(
            folder, VLLM.model,
            (*before, "vllm", "serve", str(VLLM.model), "-tp", "2", "--max-model-len", "1024", "--dtype", "bfloat16",
             "--enforce-eager", "--worker-extension-cls", "tests.serving.vllm_worker.Blockable"),
            {"PATH": f"{VLLM.venv / 'bin'}:{os.environ['PATH']}", "VLLM_CPU_OMP_THREADS_BIND": "0|1",
             "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"},
        )  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[Vllm]:
    need("vllm", not VLLM.missing(), VLLM.missing())
    started = Vllm(tmp_path)
    yield started
    started.end()


def test_an_idle_server_is_idle_and_each_of_its_processes_that_is_stopped_is_named(server: Vllm) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        code, summary = stuck(server)
        assert (code, summary.split(":")[0]) == (0, "The server is idle"), summary
        time.sleep(5)
    names = [(worker, worker) for worker in (*WORKERS, "EngineCore")]
    each_that_is_stopped_is_named(server, (*names, ("", "The program")))


def test_a_worker_that_does_not_read_its_full_ring_is_named_and_who_waits_for_the_ring(
    server: Vllm, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        calls = [server.post("/collective_rpc", method="wait_for_lock", args=[str(lock)], timeout=1)]
        calls[0].wait(60)
        # The engine gives up waiting for each answer, so that it writes the next message, until there is no free block.
        calls += [server.post("/collective_rpc", method="do_nothing", timeout=0.1) for _ in range(RING_BLOCKS + 2)]
        deadline = time.monotonic() + 60
        while sum(call.poll() is None for call in calls) > 2:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        code, summary = stuck(server)
        for call in calls:
            call.kill()
            call.communicate()
    assert code == 1 and summary.startswith("EngineCore waits for a free block in the shared-memory ring"), summary
    assert "; Worker_TP1 on " in summary and "is waiting for a file lock: wait_for_lock" in summary, summary
    assert f"held by process {os.getpid()}" in summary and "Worker_TP0" not in summary, summary


def test_explain_says_that_a_worker_was_killed(server: Vllm) -> None:
    os.kill(server.pid("Worker_TP1"), signal.SIGKILL)
    server.process.wait(ENDS_S)
    name, verdict = cause(server)
    assert name == "host_oom_killed" and "The engine lost VllmWorker-1" in verdict, verdict


def test_explain_says_that_a_connection_between_workers_was_cut(server: Vllm) -> None:
    server.cut("Worker_TP1")
    server.request().communicate(timeout=100)
    server.process.wait(ENDS_S)
    name, verdict = cause(server)
    assert name == "remote_peer_died" and re.search(r"Worker_TP[01] lost the connection", verdict), verdict


def test_under_run_a_request_is_answered_and_ctrl_c_ends_all(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("vllm", not VLLM.missing(), VLLM.missing())
    answers_and_ends_by_ctrl_c(Vllm(tmp_path, UNDER_RUN), ("", "EngineCore", *WORKERS), 0)
