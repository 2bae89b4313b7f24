"""`--help` and `probe` never import torch, and start at once."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.command import Command

IMPORT_TIMES = {"PYTHONPROFILEIMPORTTIME": "1"}
MEASURED = 9


def imported(stderr: str) -> set[str]:
    """Return the modules that Python says it imported, in the process and in those that it forked."""
    lines = [line for line in stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize(
    "line", ["--help", "check --help", "probe", "probe --json -", "checks", "timeout --help", "--version"]
)
def test_torch_is_not_imported(command: Command, line: str) -> None:
    ran = command.run(*line.split(), env=IMPORT_TIMES)
    modules = imported(ran.stderr)
    assert ran.code == 0, ran.stdout
    assert "preflight.cli" in modules, "the imports were not seen"
    assert not [name for name in modules if name.partition(".")[0] in ("torch", "numpy")]


def test_check_imports_torch_in_the_ranks_only(command: Command) -> None:
    """The parent starts torchrun by name; a driver looks at what the parent itself holds when it ends."""
    driver = command.tmp_path / "driver.py"
    driver.write_text(
        "import os, sys\n"
        "from preflight import cli\n"
        "end = os._exit\n"
        "def exit_with_modules(code):\n"
        "    sys.stderr.write(f'code {code}, torch: {\"torch\" in sys.modules}\\n')\n"
        "    end(code)\n"
        "os._exit = exit_with_modules\n"
        "cli.main()\n"
    )
    ran = subprocess.run(
        [command.python, driver, "check", "--backend", "gloo", "--nproc", "1"],
        env=command.environ(), cwd=command.cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stderr.splitlines()[-1] == f"code {ran.returncode}, torch: False", ran.stderr


def median_s(run: Callable[[], object]) -> float:
    """Return the median of several runs, after one that fills the caches."""
    run()
    times = []
    for _ in range(MEASURED):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


ROUNDS = 4


@pytest.mark.integration
@pytest.mark.timing
@pytest.mark.parametrize(("line", "limit_s", "limit_in_starts"), [("--help", 0.3, 20), ("probe", 0.4, 30)])
def test_it_starts_at_once(
    command: Command, capsys: pytest.CaptureFixture[str], line: str, limit_s: float, limit_in_starts: float
) -> None:
    """Other load on the machine only ever adds time, so the best of a few medians of 9 decides, or its ratio."""
    environ = command.environ()
    taken_s = in_starts = float("inf")
    for _ in range(ROUNDS):
        bare_s = median_s(lambda: subprocess.run([sys.executable, "-c", "pass"], env=environ, check=True))
        round_s = median_s(lambda: command.run(line))
        taken_s, in_starts = min(taken_s, round_s), min(in_starts, round_s / bare_s)
        if taken_s < limit_s or in_starts < limit_in_starts:
            break
    with capsys.disabled():
        print(f"\npreflight {line}: {taken_s:.3f} s, {in_starts:.1f} x python -c pass in the same round")  # noqa: T201
    assert taken_s < limit_s or in_starts < limit_in_starts
