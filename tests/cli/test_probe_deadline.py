"""`preflight probe --deadline S` ends by then, whatever stalls, with what is known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import Command
from tests.machines.fleet import MACHINES

pytestmark = pytest.mark.heavy(3)

LATE_S = 1.5  # for the interpreter's own start on a busy machine, before which no clock of ours runs


def stalling_machine(root: Path) -> Path:
    """Return a healthy recorded machine with an adapter whose firmware does not answer: a read of its port blocks."""
    root.mkdir()
    MACHINES["l20x10"](root)
    stuck = port_state(root)
    stuck.unlink()
    os.mkfifo(stuck)
    return root


def port_state(root: Path) -> Path:
    (hca,) = (root / "sys/class/infiniband").iterdir()
    return hca / "ports" / "1" / "state"


@pytest.mark.timing
def test_what_stalls_is_a_gap_and_the_rest_is_told_by_the_deadline(command: Command, tmp_path: Path) -> None:
    root = stalling_machine(tmp_path / "machine")
    ran = command.run("probe", "--sysroot", str(root), "--deadline", "6", "--json", "-")
    assert ran.took_s < 6 + LATE_S
    assert ran.code == 3, ran.stderr
    gaps = {gap["fact"]: gap["reason"] for gap in ran.document["gaps"]}
    assert gaps["nodes[0].hca_ports"] == gaps["nodes[0].nics"] == "not read: the deadline came first"
    assert len(ran.document["nodes"][0]["gpus"]) == 10, "what answered is there"
    assert ran.stderr == "preflight: the deadline of 6 s came first; not read: nics, nic_paths, hca_ports\n"


def test_a_deadline_that_is_long_enough_changes_nothing(command: Command) -> None:
    ran, without = command.run("probe", "--deadline", "30"), command.run("probe")
    assert (ran.code, ran.stderr) == (without.code, "")


@pytest.mark.timing
@pytest.mark.integration
def test_what_stalls_longer_than_a_probe_may_is_stuck_and_no_matter_of_the_deadline(
    command: Command, tmp_path: Path
) -> None:
    root = stalling_machine(tmp_path / "machine")
    ran = command.run("probe", "--sysroot", str(root), "--deadline", "60", "--json", "-")
    assert ran.took_s < 5 + LATE_S + 2
    (reason,) = (gap["reason"] for gap in ran.document["gaps"] if gap["fact"] == "nodes[0].hca_ports")
    assert "stuck" in reason
    assert "the deadline" not in ran.stderr


@pytest.mark.timing
@pytest.mark.parametrize("option", ["--topo", "--machine"])
def test_input_that_never_ends_is_one_line_and_exit_code_3(option: str, command: Command) -> None:
    reader, writer = os.pipe()
    try:
        with open(reader, "rb") as stdin:
            ran = command.run("probe", option, "-", "--deadline", "1", stdin=stdin)
    finally:
        os.close(writer)
    assert (ran.code, ran.stdout) == (3, "")
    assert ran.stderr == "preflight: the deadline of 1 s came before any result\n"
    assert ran.took_s < 1 + LATE_S


def test_a_fault_that_was_seen_is_one_though_the_deadline_came(command: Command, tmp_path: Path) -> None:
    root = stalling_machine(tmp_path / "machine")
    (root / "libnvidia-ml.so.1").unlink()  # GPUs on the bus and no driver that answers
    ran = command.run("probe", "--sysroot", str(root), "--deadline", "6")
    assert "the deadline of 6 s came first" in ran.stderr
    assert ran.code == 1
    assert "FAIL" in ran.stdout


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e99"])
def test_a_deadline_that_is_none_is_a_usage_error(seconds: str, command: Command) -> None:
    ran = command.run("probe", "--deadline", seconds)
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("preflight: --deadline") and ran.stderr.count("\n") == 1
