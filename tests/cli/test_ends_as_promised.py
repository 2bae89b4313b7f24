"""However a check starts, it ends with the right exit code, one line, and no answer of an earlier run in its place."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from preflight.system.last_resort import outputs_of, retire_outputs
from tests.command import OWN_PATH, Command

pytestmark = pytest.mark.heavy(6)

CPU = ("check", "--backend", "gloo", "--nproc", "1")
OLD = '{"verdict": "ready"}'


def leave_old_outputs(command: Command) -> list[Path]:
    """Put yesterday's answers where this run's go."""
    old = [command.cwd / name for name in ("preflight-report.json", "preflight.env", "drain.txt")]
    for path in old:
        path.write_text(OLD)
    return old


def is_this_runs_or_gone(path: Path) -> bool:
    return not path.exists() or OLD not in path.read_text()


def broken(folder: Path, module: str) -> dict[str, str]:
    """Return an environment in which a module can't be imported."""
    folder.mkdir()
    (folder / f"{module}.py").write_text("raise ImportError('libffi.so.7: cannot open shared object file')")
    return {"PYTHONPATH": f"{folder}:{OWN_PATH}"}


@pytest.mark.parametrize("module", ["typer", "jinja2", "tabulate"])
def test_a_dependency_that_cannot_be_imported_is_3_and_retires_the_old_answers(command: Command, module: str) -> None:
    old = leave_old_outputs(command)
    ran = command.run(
        *CPU, "--also", "drain=drain.txt", "--also", "html=page.html", env=broken(command.tmp_path / "b", module)
    )
    assert ran.code == 3, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert "libffi.so.7" in ran.stdout + ran.stderr
    if module == "jinja2":  # a form that can't be made is a failed write: those leave the settings alone
        old.remove(command.cwd / "preflight.env")
    assert all(map(is_this_runs_or_gone, old))


def test_files_where_the_user_stands_are_not_imported(command: Command) -> None:
    for name in ("typer.py", "json.py", "torch.py"):
        (command.cwd / name).write_text("import os; os._exit(0)\n")
    ran = command.run(*CPU)
    assert (ran.code, ran.report["verdict"]) == (0, "ready")


@pytest.mark.parametrize("descriptors", [5, 10])
def test_no_descriptors_are_told_in_this_run_s_report(command: Command, descriptors: int) -> None:
    old = leave_old_outputs(command)
    ran = command.run(*CPU, "--also", "drain=drain.txt", prefix=("prlimit", f"--nofile={descriptors}", "--"))
    assert ran.code == 3, ran.stdout + ran.stderr
    assert "Too many open files" in " ".join(ran.report["headline"].split())
    assert all(map(is_this_runs_or_gone, old))
    assert (command.cwd / "drain.txt").read_text().startswith("preflight unknown")


def test_json_that_cannot_be_written_is_told_in_the_report_and_no_settings_are_written(command: Command) -> None:
    ran = command.run(*CPU, "--json", "/dev/full")
    assert ran.code == 3
    assert "/dev/full: could not be written: no space left on device" in ran.stderr
    assert ran.report["exit_code"] == 3
    assert not (command.cwd / "preflight.env").exists()


def test_a_working_directory_that_is_gone_costs_no_verdict(command: Command) -> None:
    outputs = [f"--{name}={command.cwd / name}" for name in ("report", "env-out")]
    gone = ("sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh")
    ran = command.run(*CPU, *outputs, prefix=gone)
    assert ran.code == 0, ran.stdout + ran.stderr
    assert json.loads((command.cwd / "report").read_text())["verdict"] == "ready"


@pytest.mark.parametrize("also", [("--report", "x", "--env-out", "./x"), ("--json", "preflight-report.json")])
def test_two_results_in_one_file_are_refused(command: Command, also: tuple[str, ...]) -> None:
    ran = command.run(*CPU, *also)
    assert (ran.code, ran.stdout) == (2, "")
    assert "another result goes to" in ran.stderr
    assert os.listdir(command.cwd) == []


def test_a_fifo_that_nobody_reads_ends_at_once(command: Command) -> None:
    os.mkfifo(command.cwd / "fifo")
    ran = command.run(*CPU, "--report", "fifo")
    assert (ran.code, ran.stderr) == (2, "preflight: fifo: can't be written: no process reads this FIFO\n")


def test_a_reader_of_a_fifo_gets_the_report_once(command: Command) -> None:
    os.mkfifo(command.cwd / "fifo")
    reader = os.open(command.cwd / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with command.start(*CPU, "--report", "fifo", "--deadline", "60") as process:
        os.set_blocking(reader, True)
        data = b""
        while process.poll() is None or b"\n}\n" not in data[-10:]:
            piece = os.read(reader, 1 << 16)
            data += piece
            if not piece and process.poll() is not None:
                break
        process.communicate()
    os.close(reader)
    assert json.loads(data)["verdict"] == "ready"


@pytest.mark.parametrize(
    ("argv", "files"),
    [
        (("check",), ("preflight-report.json", "preflight.env")),
        (("check", "--report", "a", "--env-out=b", "--also", "drain=c", "--json", "-"), ("a", "b", "c")),
        (("check", "--report"), ("preflight.env",)),
        (("probe",), ()),
        ((), ()),
    ],
)
def test_the_last_resort_knows_what_check_would_have_written(argv: tuple[str, ...], files: tuple[str, ...]) -> None:
    assert outputs_of(argv) == files


def test_the_last_resort_renames_and_goes_on_where_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("preflight.env").write_text(OLD)
    Path("preflight-report.json").mkdir()
    assert retire_outputs(("check", "--json", "\0")) == ("preflight.env.stale",)
