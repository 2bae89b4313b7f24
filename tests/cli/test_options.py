"""`--accept`, `--strict` and `--deadline` do what the contract says."""

from __future__ import annotations

import pytest

from tests.cli.conftest import write_old_env
from tests.cli.trees import CONTAINER, DEVICE, Files
from tests.command import Command
from tests.sysroot import build

HARMLESS_BUT_WRONG = {"NCCL_IB_DISABLE": "true"}  # NCCL reads a number: it switches nothing off


@pytest.mark.integration
@pytest.mark.usefixtures("cpu_path")
def test_accept_answers_unknown_on_the_cpu_path(command: Command) -> None:
    old = write_old_env(command)
    ran = command.run("check", "--accept")
    assert ran.code == 3, ran.stdout + ran.stderr
    assert (ran.report["verdict"], ran.report["node_verdict"], ran.report["exit_code"]) == ("ready", "unknown", 3)
    assert ran.stdout.startswith("CPU path")
    assert "NODE UNKNOWN" in ran.stdout
    assert not old.exists()
    assert old.with_name("preflight.env.stale").exists()
    assert "renamed to preflight.env.stale" in ran.stderr


@pytest.mark.integration
@pytest.mark.usefixtures("cpu_path")
def test_with_strict_a_warning_is_a_failure(command: Command) -> None:
    ran = command.run("check", "--strict", env=HARMLESS_BUT_WRONG)
    assert ran.code == 1, ran.stdout + ran.stderr
    assert (ran.report["verdict"], ran.report["trials"][0]["outcome"]) == ("not_ready", "ok")
    warnings = [finding for finding in ran.report["findings"] if finding["severity"] == "warn"]
    assert [finding["check"] for finding in warnings if "NCCL_IB_DISABLE" in finding["subject"]] == ["inherited-env"]
    assert "--strict" in ran.report["headline"]
    assert not (command.cwd / "preflight.env").exists()


def test_probe_takes_a_warning_for_a_failure_only_with_strict(command: Command) -> None:
    build(command.tmp_path / "empty", {"dev/": "", "sys/bus/pci/devices/": "", "proc/1/cgroup": "0::/"})
    env = {**HARMLESS_BUT_WRONG, "CUDA_VISIBLE_DEVICES": ""}
    plain, strict = command.run("probe", env=env), command.run("probe", "--strict", env=env)
    assert strict.code == 1, strict.stdout
    assert plain.code == (1 if "FAIL" in plain.stdout else 0)


@pytest.mark.parametrize("tree", [DEVICE, DEVICE | CONTAINER], ids=["host", "container"])
def test_strict_changes_nothing_about_what_fails_already(command: Command, tree: Files) -> None:
    build(command.tmp_path / "tree", tree)
    assert command.run("check", "--strict", "--sysroot", str(command.tmp_path / "tree")).code == 1


@pytest.mark.timing
def test_a_deadline_too_short_to_start_the_ranks_is_kept_and_ends_unknown(command: Command) -> None:
    old = write_old_env(command)
    ran = command.run("check", "--backend", "gloo", "--nproc", "8", "--deadline", "2")
    assert ran.code == 3, ran.stdout + ran.stderr
    assert ran.report["durations_s"]["total"] < 2.0
    assert ran.took_s < 3.0  # Python's own start comes before the clock's
    assert "deadline" in ran.stdout
    assert ran.report["verdict"] == "unknown"
    assert not old.exists()
    assert command.processes() == {}
