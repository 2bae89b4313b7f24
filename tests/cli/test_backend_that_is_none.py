"""A backend whose module or name does not exist is a wrong request: exit code 2, and an earlier .env stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import OLD_ENV, write_old_env
from tests.command import OWN_PATH, Command

pytestmark = pytest.mark.heavy(4)


@pytest.mark.parametrize("module", ["nonexistent", "json.nonexistent", "nonexistent.json", "json.decoder.x"])
def test_a_module_that_is_not_there_is_refused_before_anything_starts(command: Command, module: str) -> None:
    path = write_old_env(command)
    ran = command.run("check", "--accept", "--backend", f"foo@{module}")
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"preflight: --backend foo@{module}: there is no module {module}")
    assert path.read_text() == OLD_ENV
    assert not (command.cwd / "preflight-report.json").exists()


def test_a_name_that_the_module_does_not_register_is_refused_and_the_env_stays(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "registers_nothing.py").write_text("SIMULATED = True\n")
    path = write_old_env(command)
    ran = command.run("check", "--backend", "foo@registers_nothing", env={"PYTHONPATH": f"{tmp_path}:{OWN_PATH}"})
    assert (ran.code, ran.stdout) == (2, "")
    assert ran.stderr == "preflight: --backend: the module registers_nothing registers no backend foo\n"
    assert path.read_text() == OLD_ENV
