"""The written preflight.env, sourced by every shell with `set -eu`, and what becomes of that of an earlier run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.check.survey import survey_machine
from preflight.search.settings.candidates import gloo_candidates
from preflight.system.kernel_queries import live_machine
from tests.cli.conftest import OLD_ENV, write_old_env
from tests.cli.trees import DEVICE
from tests.command import Command, Ran
from tests.sysroot import build

pytestmark = pytest.mark.heavy(4)

SHELLS = ("sh", "bash", "zsh")
IFNAMES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def source(shell: str, path: Path, nodes: str = "1") -> list[str]:
    """Return what the interface variables are after the shell sourced the file under -e and -u."""
    shown = "; ".join(f'printf "%s\\n" "${{{name}-unset}}"' for name in IFNAMES)
    ran = subprocess.run(
        [shell, "-eu", "-c", f". {path}; {shown}"],
        env={"PATH": "/usr/bin:/bin", "SLURM_NNODES": nodes}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout.splitlines()


@pytest.fixture
def shells(need: Callable[[str, bool, str], None]) -> tuple[str, ...]:
    for shell in SHELLS:
        need("shells", shutil.which(shell) is not None, f"{shell} is not installed")
    return SHELLS


def test_comments_only_are_sourced_by_every_shell(healthy: Ran, shells: tuple[str, ...]) -> None:
    for shell in shells:
        assert source(shell, healthy.cwd / "preflight.env") == ["unset", "unset"]


def test_an_interface_that_cured_the_run_is_set_on_one_node_only(
    command: Command, need: Callable[[str, bool, str], None], shells: tuple[str, ...]
) -> None:
    netifs = survey_machine(live_machine(), None).node.netifs
    candidates = gloo_candidates(netifs, ())[0] if isinstance(netifs, tuple) else ()
    names = [dict(candidate.env).get(IFNAMES[0], "") for candidate in candidates if candidate.env]
    need("netif", bool(names), "no interface here is usable by name")
    ran = command.simulate(f"crash:stage=first,unless={IFNAMES[0]}={names[0]}", ranks=2, limit_s=20)
    assert ran.code == 0, ran.stdout + ran.stderr
    assert ran.report["verdict"] == "ready_with_env"
    assert ran.report["advice"]["env"][IFNAMES[0]] == names[0]
    for shell in shells:
        gloo, nccl = source(shell, command.cwd / "preflight.env")
        assert (gloo, nccl.lstrip("=")) == (names[0], names[0])
        assert source(shell, command.cwd / "preflight.env", nodes="2") == ["unset", "unset"]


def test_a_run_that_is_not_ready_sets_the_env_of_an_earlier_run_aside_and_says_so(command: Command) -> None:
    old = write_old_env(command)
    build(command.tmp_path / "tree", DEVICE)
    ran = command.run("check", "--sysroot", str(command.tmp_path / "tree"))
    assert ran.code == 1
    assert not old.exists()
    assert old.with_name("preflight.env.stale").read_text() == OLD_ENV
    assert ran.stderr.splitlines() == [
        "preflight: preflight.env is from an earlier run and was renamed to preflight.env.stale"
    ]


def test_usage_errors_leave_the_env_of_an_earlier_run_alone(command: Command) -> None:
    old = write_old_env(command)
    assert command.run("check", "--nproc", "0", "--backend", "gloo").code == 2
    assert command.run("check", "--report", "/nonexistent/x").code == 2
    assert old.read_text() == OLD_ENV
    assert [path.name for path in command.cwd.iterdir()] == ["preflight.env"]


def test_a_report_that_cant_be_written_ends_with_3_and_leaves_the_env_alone(command: Command) -> None:
    old = write_old_env(command)
    build(command.tmp_path / "tree", DEVICE)
    no_bytes = ("prlimit", "--fsize=0", "--")
    ran = command.run("check", "--sysroot", str(command.tmp_path / "tree"), prefix=no_bytes)
    assert ran.code == 3, ran.stderr
    assert ran.stderr.splitlines() == ["preflight: preflight-report.json: could not be written: file too large"]
    assert "gpu-driver" in ran.stdout, "what was found is still printed"
    assert [(path.name, path.read_text()) for path in command.cwd.iterdir()] == [(old.name, OLD_ENV)]
