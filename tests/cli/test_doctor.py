"""`preflight doctor` says in about ten lines whether the installation is sound."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.check import installation
from preflight.model.gap import Gap
from preflight.model.installation import InstalledPart, Soundness
from preflight.system.kernel_queries import LIVE_QUESTIONS
from preflight.system.machine import Tree
from tests.command import Command
from tests.sysroot import build

NAMES = ["preflight", "Python", "torch", "driver", "stacks", "/dev/shm", "extras", "command"]


def test_it_answers_in_a_dozen_lines_and_as_json(command: Command) -> None:
    ran = command.run("doctor", env={"COLUMNS": "120", "PREFLIGHT_VERBOSE": ""})
    document = command.run("doctor", "--json", "-").document
    assert ran.code == document["exit_code"], ran.stderr
    assert ran.stdout.startswith("SOUND  " if ran.code == 0 else "NOT SOUND  ")
    assert len(ran.stdout.splitlines()) <= 14
    assert [part["name"] for part in document["parts"]] == NAMES
    assert all(part["state"] != "problem" for part in document["parts"]) == (ran.code == 0)


def test_it_says_what_torch_there_is_without_importing_it() -> None:
    line = [sys.executable, "-X", "importtime", "-m", "preflight", "doctor"]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    loaded = {each.rpartition("|")[2].strip() for each in ran.stderr.splitlines() if each.startswith("import time:")}
    assert "torch" in ran.stdout
    assert "preflight.check.installation" in loaded and "torch" not in loaded


def parts_of(root: Path, files: dict[str, str]) -> dict[str, InstalledPart]:
    build(root, files)
    read = installation.read_installation(Tree(root, LIVE_QUESTIONS), is_linux=True)
    assert read.exit_code == 3 * any(part.state is Soundness.PROBLEM for part in read.parts)
    return {part.name: part for part in read.parts}


def test_a_gpu_without_its_driver_or_a_torch_for_it_is_a_problem(tmp_path: Path) -> None:
    parts = parts_of(tmp_path / "gpu", {"dev/nvidia0": "", "dev/nvidiactl": ""})
    assert (
        parts["driver"].state is parts["torch"].state is Soundness.PROBLEM
    )  # the torch of these tests is built for CPUs
    assert all(parts[name].fix for name in ("driver", "torch"))
    with_driver = parts_of(tmp_path / "driver", {"dev/nvidia0": "", "sys/module/nvidia/version": "570.86.10\n"})
    assert with_driver["driver"].state is Soundness.OK and "570.86.10" in with_driver["driver"].found


def test_what_only_does_less_is_a_note_with_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        installation, "read_stacks", lambda pids, *_: {pids[0]: Gap("ptrace is forbidden for this user")}
    )
    monkeypatch.setattr(installation, "module_exists", lambda name: name != "zstandard")
    parts = parts_of(tmp_path, {"dev/": ""})
    for name, text in (("stacks", "ptrace is forbidden"), ("extras", "logs in zstd"), ("driver", "no NVIDIA driver")):
        assert parts[name].state is Soundness.NOTE and text in parts[name].found
    assert "SYS_PTRACE" in parts["stacks"].fix and "preflight-nccl[zstd]" in parts["extras"].fix
    monkeypatch.setattr(installation, "find_py_spy", lambda: None)
    assert "pip install py-spy" in parts_of(tmp_path, {})["stacks"].fix


def test_the_process_that_it_looks_into_is_gone_afterwards(command: Command) -> None:
    json.loads(command.run("doctor", "--json", "-").stdout)
    command.wait_until_gone(2)
