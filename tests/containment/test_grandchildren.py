"""A backend that forks, leaves its process group and ignores every signal that can be ignored leaves nothing behind."""

from __future__ import annotations

import pytest

from tests.command import Command

pytestmark = [pytest.mark.integration, pytest.mark.timing]

FORKER = """
import os, signal, time
import torch.distributed as dist

def _create(store, rank, size, timeout):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for leaves_group in (False, True):
        for _ in range(8):
            if os.fork() == 0:
                if leaves_group:
                    os.setsid()
                os.fork()
                time.sleep(600)
    if os.fork() == 0:
        while True:  # a relay: each hands over to a successor in a session of its own and goes
            time.sleep(0.05)
            if os.fork():
                os._exit(0)
            os.setsid()
    time.sleep(600)

dist.Backend.register_backend("forker", _create, devices=["cpu"])
"""


@pytest.mark.parametrize("arguments", [("--stage-limit", "2"), ("--deadline", "12")], ids=["limit", "deadline"])
def test_children_of_a_trial_child_end_with_the_run(command: Command, arguments: tuple[str, str]) -> None:
    modules = command.tmp_path / "modules"
    modules.mkdir()
    (modules / "forker.py").write_text(FORKER)
    ran = command.run(
        "check", "--backend", "forker@forker", "--nproc", "2", *arguments, env={"PYTHONPATH": str(modules)}
    )
    assert ran.code in (1, 3), ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    command.wait_until_gone(within_s=1)
