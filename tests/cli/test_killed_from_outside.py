"""A rank that somebody kills, or that fails before the backend is asked anything, is no verdict on the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import Command

KILLED = """
import os, signal
import torch.distributed as dist
SIMULATED = True
dist.Backend.register_backend("odd", lambda *_: None, devices=["cpu"])
if os.environ["LOCAL_RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
"""
BROKEN = "raise RuntimeError('this plugin does not fit this torch')\n"


@pytest.mark.parametrize(("source", "says"), [(KILLED, "SIGKILL came from outside"), (BROKEN, "does not fit")])
def test_it_is_unknown_with_the_reason(command: Command, tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "odd_backend.py").write_text(source)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    ran = command.run("check", "--backend", "odd@odd_backend", "--json", "-", env={"PYTHONPATH": path})
    assert (ran.code, ran.document["verdict"]) == (3, "unknown")
    (finding,) = [each for each in ran.document["findings"] if each["check"] == "trial-failed"]
    assert (finding["class"], finding["severity"]) == ("harness", "fail")
    assert says in finding["problem"]
