"""`check --machine FILE`: what can't be meant is refused before anything starts, in one line that says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Command

pytestmark = pytest.mark.heavy(6)

MACHINES = Path(__file__).parent.parent / "machines"
L20 = str(MACHINES / "l20x10.json")
SIM = ("--backend", "simnccl@simnccl")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--machine", L20), "can't be tried with a real backend"),
        (("--machine", L20, "--backend", "nccl"), "can't be tried with a real backend"),
        (("--machine", L20, "--backend", "gloo"), "can't be tried with a real backend"),
        (("--machine", L20, *SIM, "--nproc", "4"), "--nproc with --machine"),
        (("--machine", L20, *SIM, "--gpus", "9,10"), "10"),
        (("--machine", L20, *SIM, "--sysroot", "/"), "one machine at a time"),
        (("--machine", "absent.json", *SIM), "absent.json"),
    ],
)
def test_what_cant_be_meant_is_a_usage_error(arguments: tuple[str, ...], words: str, command: Command) -> None:
    ran = command.run("check", *arguments)
    assert ran.code == 2
    assert words in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert "Traceback" not in ran.stderr
    assert command.run_dirs == []


def test_a_file_that_is_no_capture_is_refused(command: Command) -> None:
    (command.cwd / "other.json").write_text('{"a": 1}')
    ran = command.run("check", "--machine", "other.json", *SIM)
    assert ran.code == 2
    assert "capture" in ran.stderr


def test_cuda_visible_devices_chooses_among_the_other_machines_gpus(command: Command) -> None:
    ran = command.run("check", "--machine", L20, *SIM, env={"CUDA_VISIBLE_DEVICES": ""})
    assert ran.code == 2
    assert "CUDA_VISIBLE_DEVICES" in ran.stderr
