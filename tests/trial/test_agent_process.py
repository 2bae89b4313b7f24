"""The agent imports torch before it has an order, and leaves nothing if there is none."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from preflight.trial.agent_process import AgentProcess, started_agent

LIMIT_S = 30.0
STARTS_ONE = """\
import os, signal, sys
from preflight.trial.agent_process import started_agent
with started_agent(os.environ) as agent:
    print(agent.process.pid, flush=True)
    signal.pause()
"""


def with_torch(folder: Path, source: str) -> dict[str, str]:
    """Return an environment in which `import torch` runs this source."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(source)
    return {**os.environ, "PYTHONPATH": str(folder), "TMPDIR": str(folder)}


def pid_of(agent: AgentProcess) -> int:
    assert agent.process is not None, agent.problem
    return agent.process.pid


def wait_till_gone(pid: int) -> None:
    until = time.monotonic() + LIMIT_S
    while is_running(pid):
        assert time.monotonic() < until, pid
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_without_an_order_neither_process_nor_file_is_left(tmp_path: Path) -> None:
    environ = with_torch(tmp_path, "import time; time.sleep(60)\n")
    before = sorted(tmp_path.iterdir())
    with started_agent(environ) as agent:
        pid = pid_of(agent)
        assert is_running(pid)
    assert not is_running(pid)
    assert sorted(tmp_path.iterdir()) == before


def test_the_gpus_are_woken_only_if_that_is_wanted_and_nobody_keeps_them_awake_afterwards(tmp_path: Path) -> None:
    environ = with_torch(tmp_path, "import time; time.sleep(60)\n")
    with started_agent(environ) as agent:
        assert agent.xids is None
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(own.read_text().split())
    with started_agent(environ, wakes_gpus=True) as agent:
        assert agent.xids is not None
        begun = set(own.read_text().split()) - before
        assert len(begun) == 2
        agent.xids.wait()
        assert agent.xids.messages, "it says that it listens, or why not"
    assert not any(is_running(int(pid)) for pid in begun)


def test_the_ranks_start_where_no_process_can_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("preflight.trial.agent_process.watch_xids", refuse)
    with started_agent(with_torch(tmp_path, "import time; time.sleep(60)\n"), wakes_gpus=True) as agent:
        assert agent.xids is None and is_running(pid_of(agent))


def test_what_a_torch_that_cant_be_imported_said_is_kept(tmp_path: Path) -> None:
    environ = with_torch(tmp_path, "raise ImportError('libcudart.so.12: cannot open shared object file')\n")
    with started_agent(environ) as agent:
        wait_till_gone(pid_of(agent))
        agent.order("/nowhere", {})  # nobody reads it, which is no error: the launcher sees that the agent is gone
        agent.save_log(str(tmp_path / "agent.log"))
    assert "libcudart.so.12: cannot open shared object file" in (tmp_path / "agent.log").read_text()


def test_it_dies_with_a_launcher_that_is_killed_while_torch_is_imported(tmp_path: Path) -> None:
    environ = with_torch(tmp_path, "import time; time.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE], env=environ, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        assert is_running(pid)
        started.send_signal(signal.SIGKILL)
    wait_till_gone(pid)
