"""What the third review found of the command line, and is mended."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from preflight.job.job_gpus import gpus_of_job
from preflight.job.order import Order, supervisor_argv
from preflight.model.stuck import StuckVerdict
from preflight.model.toml import read_toml
from preflight.show.json_document import render_json
from preflight.show.stuck import stuck_page
from preflight.show.text import Detail, Style
from preflight.stuck.collect.jobs import ListedProcess, ProcessTable
from preflight.stuck.judge.answer import answer
from tests.command import Command
from tests.conftest import PROJECT
from tests.reports import report_of
from tests.stuck.evidence import node, process, rank

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x05\x00\x00\x00\x03\x20\x08\x06" + bytes(range(256)) * 8
PAGE = {"PREFLIGHT_VERBOSE": ""}  # what a user gets without -v


def lightning(pid: int, parent: int, **variables: str) -> ListedProcess:
    """Return a rank of Lightning's, which numbers itself where the parent's environment does not say it."""
    names = frozenset({"python", "gloo_tcp_loop", "pt_gloo_runloop"})
    return ListedProcess(pid, parent, 1000, "python", "S", pid, ("python", "light.py"), variables, {}, names)


def test_the_ranks_that_lightning_starts_are_one_job_with_the_process_that_starts_them() -> None:
    shell = ListedProcess(9, 1, 1000, "bash", "S", 9, ("bash",), {}, {}, frozenset({"bash"}))
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "55677", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    table = (shell, lightning(10, 9), lightning(11, 10, **where))
    for pid in (10, 11):
        jobs = ProcessTable(table).jobs(pid)
        assert [[each.process.pid for each in job.ranks] for job in jobs] == [[10, 11]]


def test_run_names_the_processes_that_its_job_left_running(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = f"sleep 60 >/dev/null 2>&1 & echo $! >{seen}; echo begun; exit 3"
    order = Order(["/bin/sh", "-c", script], [], "no.env", 78, True, 600.0, "", False)
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    # A group of its own: another test may have made this very process the one that adopts orphans.
    argv = ["setsid", "-w", "/bin/sh", "-c", '"$@"; exit $?', "sh", *supervisor_argv(order)]
    ran = subprocess.run(argv, close_fds=False, env=environ, capture_output=True, text=True, timeout=60, check=False)
    left = seen.read_text().strip()
    os.kill(int(left), signal.SIGKILL)
    assert left in ran.stderr


@pytest.mark.timeout(200)
def test_several_jobs_are_told_apart_by_what_they_run(command: Command) -> None:
    started = []
    for name in ("first_job", "second_job"):
        (command.cwd / f"{name}.py").write_text("import time; time.sleep(100)\n")
        names = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": name, "MASTER_PORT": "1"}
        argv = (sys.executable, f"{name}.py")
        started.append(subprocess.Popen(argv, cwd=command.cwd, env=os.environ | names))
    try:
        time.sleep(0.5)  # until each has its own command line
        ran = command.run("stuck", env=PAGE)
    finally:
        for each in started:
            each.kill()
            each.wait()
    said = ran.stdout + ran.stderr
    assert all(str(each.pid) in said for each in started)
    assert "first_job.py" in said and "second_job.py" in said
    assert max(map(len, said.splitlines())) <= 120


def test_who_is_told_that_a_longer_timeout_is_useless_is_not_told_to_set_a_shorter_one(command: Command) -> None:
    ran = command.run("timeout", "--params", "1.5B", "--current", "1800", env=PAGE)
    assert "longer timeout does not help" in ran.stdout
    assert "seconds=600" not in ran.stdout
    assert "give the job this timeout" not in " ".join(ran.stdout.split())


def test_a_check_that_a_policy_misspells_is_guessed(command: Command, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('[checks]\nmemlok = "fatal"\n')
    ran = command.run("check", "--policy", str(tmp_path / "site.toml"))
    assert (ran.code, ran.stdout) == (2, "")
    assert "memlock" in ran.stderr


@pytest.mark.integration
@pytest.mark.usefixtures("cpu_path")
def test_without_a_gpu_the_next_step_is_a_gpu_node(command: Command) -> None:
    ran = command.run("check", "--accept", "--nproc", "1", env=PAGE)
    page = " ".join(ran.stdout.split())
    assert "NODE UNKNOWN" in page
    assert "Rerun on a GPU node" in page
    assert "fix the problem above" not in page


def test_render_writes_what_a_files_name_says_or_refuses(command: Command) -> None:
    (command.cwd / "report.json").write_text(render_json(report_of()))
    ran = command.run("render", "report.json", "-o", "page.html")
    assert ran.code == 2 or (command.cwd / "page.html").read_text().startswith("<")


@pytest.mark.parametrize("what", ["a report", "a picture"])
def test_explain_says_what_is_no_log(command: Command, what: str) -> None:
    path = command.cwd / ("report.json" if what == "a report" else "shot.png")
    path.write_bytes(render_json(report_of()).encode() if what == "a report" else PNG)
    ran = command.run("explain", str(path), env=PAGE)
    assert "STILL RUNNING" not in ran.stdout
    assert ran.code == 2
    assert ("render" if what == "a report" else "PNG") in ran.stderr


def test_explain_says_of_empty_input_that_it_is_empty(command: Command) -> None:
    ran = command.run("explain", "-", env=PAGE)
    assert "empty" in (ran.stdout + ran.stderr).lower()


@pytest.mark.parametrize("line", [
    "help", "version", "help check",
    "timeout --framework pytorch --params 7B",
])  # fmt: skip
def test_the_words_that_other_tools_take_are_taken(command: Command, line: str) -> None:
    ran = command.run(*line.split())
    assert ran.code == 0, ran.stderr


@pytest.mark.parametrize(("line", "option"), [("check 0,1", "--gpus 0,1")])
def test_a_value_without_its_option_is_answered_with_the_option(command: Command, line: str, option: str) -> None:
    ran = command.run(*line.split())
    assert ran.code == 2
    assert option in ran.stderr


@pytest.mark.integration
@pytest.mark.usefixtures("cpu_path")
def test_where_a_node_is_missing_the_page_has_the_line_that_starts_it(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = ("--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", f"127.0.0.1:{port}")
    ran = command.run("check", "--nproc", "1", *place, "--deadline", "10", env=PAGE)
    page = " ".join(ran.stdout.split())
    assert ran.code != 0
    assert "--node-rank 1" in page
    assert "repair what kept preflight from looking" not in page


def test_who_has_seen_all_ranks_is_not_told_to_name_the_job() -> None:
    ranks = [rank(i, process(100 + i, None)) for i in range(4)]
    report = answer([node(*ranks)])
    assert report.verdict is StuckVerdict.UNKNOWN and len(report.places) == 4
    assert "name the job" not in stuck_page(report).shown(Detail.SCREEN, Style(width=100))


def test_the_first_help_has_whole_sentences_and_what_is_asked_most_comes_first(command: Command) -> None:
    shown = command.run("--help", env={"COLUMNS": "80"}).stdout
    assert [line for line in shown.splitlines() if line.startswith("  ") and line.endswith("...")] == []
    names = re.findall(r"^  (\w+)", shown.partition("Commands")[2], re.MULTILINE)
    assert max(map(names.index, ("check", "explain", "stuck", "run"))) < names.index("capture")


def test_help_fits_into_a_narrow_terminal(command: Command) -> None:
    shown = command.run("check", "--help", env={"COLUMNS": "40"}).stdout
    assert max(map(len, shown.splitlines())) <= 40


@pytest.mark.integration
@pytest.mark.usefixtures("cpu_path")
def test_run_with_quiet_says_one_line_before_the_job(command: Command) -> None:
    line = ("run", "-q", "--reuse", "1h", "--nproc", "1", "--", "true")
    assert command.run(*line).code == 0
    assert len(command.run(*line).stderr.splitlines()) <= 1


@pytest.mark.integration
@pytest.mark.timeout(200)
def test_run_looks_at_once_where_a_watchdog_says_that_a_collective_timed_out(command: Command) -> None:
    line = "[rank1]:[E ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL("
    code = f"import time; print({line!r}, flush=True); time.sleep(25)"
    names = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1", "PREFLIGHT_VERBOSE": ""}
    order = Order([sys.executable, "-c", code], [], "no.env", 78, True, 0.0, "", False)
    ran = subprocess.run(
        supervisor_argv(order), close_fds=False, env=command.environ(names), capture_output=True, text=True,
        timeout=150, check=False,
    )  # fmt: skip
    assert ran.returncode == 0
    assert "stuck" in ran.stderr.lower()


def test_the_package_and_a_command_have_the_name_that_nobody_else_has() -> None:
    project = read_toml((PROJECT / "pyproject.toml").read_text(), "pyproject.toml")
    assert "preflight-nccl" in project["project"]["scripts"]
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] != ["preflight"]


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve M --tensor-parallel-size 4",
        "vllm serve M -tp 2 --pipeline-parallel-size 2",
        "python -m vllm.entrypoints.openai.api_server --model M --tensor-parallel-size=4",
        "python -m sglang.launch_server --model-path M --tp 4",
    ],
)
def test_a_server_is_checked_on_the_gpus_that_it_takes(line: str) -> None:
    assert gpus_of_job(line.split(), {}, present=8) == "0,1,2,3"


def test_torch_is_an_extra_and_no_requirement() -> None:
    project = read_toml((PROJECT / "pyproject.toml").read_text(), "pyproject.toml")["project"]
    assert not [each for each in project["dependencies"] if each.startswith("torch")]
    assert [each for each in project["optional-dependencies"].get("torch", ()) if each.startswith("torch")] != []
