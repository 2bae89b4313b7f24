"""A real SGLang with two schedulers on the CPU (`make test-sglang`): `stuck` and `run` beside it, and what ends it.

Its launcher, processes, ZMQ queues and gloo groups are SGLang's own; only the kernels of its GPU build have stand-ins.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serving.fetch import SGLANG
from tests.serving.server import (
    ENDS_S,
    NAMED_S,
    UNDER_RUN,
    Server,
    answers_and_ends_by_ctrl_c,
    cause,
    each_that_is_stopped_is_named,
    stuck,
)  # fmt: skip

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
WORKERS = ("scheduler_TP0", "scheduler_TP1")
ENDED_BY_CTRL_C = -signal.SIGINT  # as without `run`


class Sglang(Server):
    """An SGLang server of two schedulers; `before` stands in front of its command."""

    titles, program = "sglang::", "-m sglang.launch_server"

    def __init__(self, folder: Path, before: tuple[str, ...] = (), options: tuple[str, ...] = ()) -> None:
        super().__init__(
            folder, SGLANG.model,
            (*before, str(SGLANG.venv / "bin/python"), "-m", "sglang.launch_server", "--model-path", str(SGLANG.model),
             "--device", "cpu", "--tp", "2", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
             "--grammar-backend", "none", "--dtype", "bfloat16", "--context-length", "1024",
             "--max-total-tokens", "4096", *options),
            {"SGLANG_USE_CPU_ENGINE": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0|1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


@pytest.fixture
def server(tmp_path: Path, need: Callable[[str, bool, str], None]) -> Iterator[Sglang]:
    need("sglang", not SGLANG.missing(), SGLANG.missing())
    started = Sglang(tmp_path)
    yield started
    started.end()


def test_an_idle_server_is_not_stuck_and_each_of_its_processes_that_is_stopped_is_named(server: Sglang) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        code, summary = stuck(server)
        assert code == 0, summary
        time.sleep(1)
    names = [(name, name) for name in (*WORKERS, "detokenizer")]
    each_that_is_stopped_is_named(server, (*names, ("", "The program python")))


def test_explain_says_that_a_scheduler_was_killed(server: Sglang) -> None:
    os.kill(server.pid("scheduler_TP1"), signal.SIGKILL)
    server.process.wait(ENDS_S)
    # Either SGLang's watchdog reports the exit code, or the other scheduler has ended the server before that.
    killed, lost = "killed SGLang's scheduler_1", "scheduler_TP0 lost the connection to a process of this job"
    found = cause(server)
    assert killed in found[1] or lost in found[1], found


def test_explain_says_that_a_connection_between_schedulers_was_cut(server: Sglang) -> None:
    server.cut("scheduler_TP1")
    deadline = time.monotonic() + NAMED_S  # SGLang itself goes on for a minute more: it waits for dumps of CUDA
    while (found := cause(server))[0] != "remote_peer_died":
        assert time.monotonic() < deadline, found
    assert re.search(r"scheduler_TP[01] lost the connection to a process of this job", found[1]), found


def test_under_run_a_request_is_answered_and_ctrl_c_ends_all(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("sglang", not SGLANG.missing(), SGLANG.missing())
    answers_and_ends_by_ctrl_c(Sglang(tmp_path, UNDER_RUN), ("", "detokenizer", *WORKERS), ENDED_BY_CTRL_C)
