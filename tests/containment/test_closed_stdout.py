"""A reader that goes away (`| head -1`) or never was there changes neither files nor verdict."""

from __future__ import annotations

import json

import pytest

from tests.command import Command

pytestmark = pytest.mark.timing

HEAD = ("bash", "-c", '"$@" | head -1; exit ${PIPESTATUS[0]}', "bash")
CLOSED = ("bash", "-c", 'exec "$@" >&-', "bash")
FULL = ("bash", "-c", 'exec "$@" >/dev/full', "bash")


@pytest.mark.parametrize(
    "arguments",
    [("check", "--nproc", "2"), ("probe",), ("probe", "--json", "-"),
     pytest.param(("check", "--nproc", "2", "--json", "-"), marks=pytest.mark.integration),
     pytest.param(("bench", "--nproc", "2", "--profile", "quick"), marks=pytest.mark.integration)],
    ids=" ".join,
)  # fmt: skip
def test_a_reader_that_goes_away_loses_nothing_but_its_text(command: Command, arguments: tuple[str, ...]) -> None:
    ran = command.run(*arguments, prefix=HEAD)
    assert ran.code == 0
    assert ran.stderr == ""
    assert ran.stdout.count("\n") == 1
    if arguments[0] == "check":
        assert ran.report["verdict"] == "ready"
        assert (command.cwd / "preflight.env").read_text().startswith("# Written by preflight")
    assert command.run_dirs == []


def test_a_closed_stdout_loses_nothing_but_its_text(command: Command) -> None:
    ran = command.run("check", "--nproc", "2", prefix=CLOSED)
    assert ran.code == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.report["exit_code"] == 0


@pytest.mark.parametrize("arguments", [("check", "--nproc", "2"), ("probe",)], ids=" ".join)
def test_a_stdout_on_a_full_disk_is_one_line_and_no_verdict(command: Command, arguments: tuple[str, ...]) -> None:
    ran = command.run(*arguments, prefix=FULL)
    assert ran.code == 3
    assert ran.stderr == "preflight: stdout could not be written: No space left on device\n"
    if arguments[0] == "check":
        json.loads((command.cwd / "preflight-report.json").read_text())
