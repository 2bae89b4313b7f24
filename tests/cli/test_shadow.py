"""`--shadow` answers as always in the report and exits with 0; what others act on says that it is a shadow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from preflight.cli.check_bench import shadowed
from preflight.errors import HarnessError, Interrupted, UsageError
from tests.command import Command

pytestmark = pytest.mark.heavy(4)

BROKEN = "raise RuntimeError('this plugin does not fit this torch')\n"


@pytest.mark.parametrize("option", [True, False])
def test_the_report_answers_and_the_exit_code_is_0(command: Command, tmp_path: Path, option: bool) -> None:
    (tmp_path / "odd_backend.py").write_text(BROKEN)
    env = {"PYTHONPATH": str(tmp_path)} | ({} if option else {"PREFLIGHT_SHADOW": "1"})
    ran = command.run(
        "check", "--backend", "odd@odd_backend", "--also", "drain=drain.txt", "--also", "k8s=k8s.yaml",
        *(["--shadow"] if option else []), env=env,
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    assert "--shadow: exit code 0 instead of 3" in ran.stderr
    report = json.loads((command.cwd / "preflight-report.json").read_text())
    assert (report["verdict"], report["exit_code"], report["shadow"]) == ("unknown", 3, True)
    assert "SHADOW preflight unknown" in (command.cwd / "drain.txt").read_text()
    assert '"PreflightReadyShadow"' in (command.cwd / "k8s.yaml").read_text()
    assert not (command.cwd / "preflight.env").exists()


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (1, 0), (2, 2), (3, 0), (130, 130)])
def test_only_an_answer_becomes_0(code: int, shown: int) -> None:
    with pytest.raises(typer.Exit) as end, shadowed(True):
        raise typer.Exit(code)
    assert end.value.exit_code == shown
    with pytest.raises(typer.Exit) as end, shadowed(False):
        raise typer.Exit(code)
    assert end.value.exit_code == code


def test_an_error_of_preflights_own_becomes_0_and_a_wrong_request_or_a_signal_does_not() -> None:
    for error in (HarnessError("x"), RuntimeError("x")):
        with pytest.raises(typer.Exit) as end, shadowed(True):
            raise error
        assert end.value.exit_code == 0
        with pytest.raises(type(error)), shadowed(False):
            raise error
    for kept in (UsageError("x"), Interrupted(2, "SIGINT")):
        with pytest.raises(type(kept)), shadowed(True):
            raise kept
