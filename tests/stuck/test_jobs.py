"""Who is a rank: not what a rank has started, not a shell in an allocation, not what preflight itself runs under."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from preflight.errors import UnreadableFact
from preflight.stuck.collect.jobs import FoundJob, ListedProcess, ProcessTable
from preflight.system.machine import Json, Tree
from tests.command import Command

pytestmark = pytest.mark.heavy(4)

LAUNCHER = 10


def listed(pid: int, rank: int | None, *arguments: str, parent: int = LAUNCHER, group: bool = False) -> ListedProcess:
    """Return a process with a rank's variables, as exec and fork leave them in all that it starts."""
    variables = {} if rank is None else {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "n0",
        "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "a",
    }  # fmt: skip
    threads = frozenset({"python", *(["pt_nccl_watchdg"] if group else [])})
    name = arguments[0].rpartition("/")[2]
    return ListedProcess(pid, parent, 1000, name, "S", pid, arguments, variables, {}, threads)


TORCHRUN = listed(LAUNCHER, None, "torchrun", "train.py", parent=5)
RANK_1 = listed(30, 1, "python", "train.py", group=True)


def found(*processes: ListedProcess) -> dict[object, int]:
    """Return the ranks' processes by number."""
    return {each.rank: each.process.pid for job in ProcessTable((TORCHRUN, *processes)).jobs() for each in job.ranks}


def test_what_a_rank_starts_is_its_helper() -> None:
    rank = listed(20, 0, "python", "train.py", group=True)
    board = listed(21, 0, "tensorboard", "--logdir", "x", parent=20)
    shell = listed(22, 0, "bash", "-c", "watch nvidia-smi", parent=20)
    assert found(rank, board, shell, listed(23, 0, "tail", "-f", "log", parent=22), RANK_1) == {0: 20, 1: 30}


def test_the_program_of_a_script_is_the_rank_and_not_what_the_script_started_before() -> None:
    script = listed(20, 0, "bash", "train.sh")
    beside = listed(21, 0, "tail", "-f", "log", parent=20)
    assert found(script, beside, listed(22, 0, "python", "train.py", parent=20), RANK_1) == {0: 22, 1: 30}
    board = listed(23, 0, "python", "board.py", parent=20)
    program = listed(24, 0, "python", "train.py", parent=20, group=True)
    assert found(script, beside, board, program, RANK_1) == {0: 24, 1: 30}


def test_what_a_dead_rank_left_behind_is_not_taken_for_it() -> None:
    left = listed(21, 0, "tensorboard", parent=1)
    assert found(left, RANK_1) == {1: 30}
    (job,) = ProcessTable((TORCHRUN, left, RANK_1)).jobs()
    assert [(number, each.pid) for number, each in job.orphans] == [(0, 21)]


def test_a_rank_whose_shell_has_ended_is_no_remnant_of_itself() -> None:
    adopted = listed(20, 0, "python", "train.py", parent=1, group=True)
    assert found(adopted, RANK_1) == {0: 20, 1: 30}


def test_a_process_that_is_ending_gets_no_number_but_one_that_cannot_end_does() -> None:
    forked = [listed(20 + i, None, "python", "train.py", group=True) for i in range(3)]
    assert found(*forked) == {0: 20, 1: 21, 2: 22}
    assert found(*forked[:2], replace(forked[2], arguments=(), state="R")) == {0: 20, 1: 21}
    for state, hidden in (("D", ""), ("Z", ""), ("S", "the call is stuck")):
        cannot = replace(forked[2], arguments=(), state=state, hidden=hidden)
        assert found(*forked[:2], cannot) == {0: 20, 1: 21, 2: 22}


@dataclass(frozen=True)
class _EndsWhileRead(Tree):
    """A tree in which the memory of every process is gone after `left` reads of it; without it Linux refuses some."""

    left: list[int] = field(default_factory=list)
    refused: bool = False

    def read(self, kind: str, key: str) -> Json:
        if key.endswith(("/environ", "/cmdline")):
            self.left[0] -= 1
            if self.left[0] < 0 and self.refused and key.endswith("/environ"):
                raise UnreadableFact(f"/{key}: no such process")
            return super().read(kind, key) if self.left[0] >= 0 else ""
        return super().read(kind, key)


@pytest.mark.parametrize("refused", [False, True])  # as before Linux 6.14 and since
def test_a_process_that_ends_while_it_is_read_is_no_further_rank(tmp_path: Path, refused: bool) -> None:
    folder = tmp_path / "proc" / "30"
    (folder / "task" / "30").mkdir(parents=True)
    (folder / "stat").write_text(f"30 (python) R 1 {'0 ' * 17}7 0\n")
    (folder / "status").write_text("Uid:\t0\t0\t0\t0\n")
    (folder / "task" / "30" / "comm").write_text("pt_nccl_watchdg\n")
    (folder / "cmdline").write_text("python\0train.py\0")
    (folder / "environ").write_text("RANK=3\0WORLD_SIZE=4\0")
    for reads, expected in ((0, None), (1, 3), (2, 3)):
        table = ProcessTable.read(_EndsWhileRead(tmp_path, left=[reads], refused=refused), lambda _: True)
        ranks = [rank.rank for job in table.jobs() for rank in job.ranks]
        assert ranks == ([] if expected is None else [expected]), reads


def test_a_number_that_int_refuses_is_no_rank() -> None:
    strange = listed(20, 0, "python", "train.py", group=True)
    strange.variables.update(RANK="²", WORLD_SIZE="²")
    assert [number for number in found(strange, RANK_1) if isinstance(number, int)] == [1]


def test_a_job_is_recognized_by_command_folder_and_age(tmp_path: Path) -> None:
    rank = listed(20, 0, "/opt/venv/bin/python", "train.py", group=True)
    (tmp_path / "proc" / "20").mkdir(parents=True)
    (tmp_path / "proc" / "uptime").write_text("101.0 7.0\n")
    (tmp_path / "proc" / "20" / "cwd").symlink_to("/home/ann/run")
    (job,) = ProcessTable((TORCHRUN, rank, RANK_1)).jobs()
    row = job.row(Tree(tmp_path))
    assert row[:4] == (20, 2, "python train.py", "/home/ann/run")
    assert 100 < row.since_s < 101


def test_what_run_has_next_to_a_job_is_no_rank_of_it() -> None:
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "n0", "MASTER_PORT": "1"}
    run, hears, program = (
        ListedProcess(pid, parent, 1000, name, "S", pid, (name,), variables, {}, frozenset({name}))
        for pid, parent, name in ((20, 1, "preflight-run"), (21, 20, "preflight-hears"), (22, 20, "python"))
    )
    table = ProcessTable((run, hears, program))
    assert [[each.process.pid for each in job.ranks] for job in table.jobs()] == [[22]]
    assert table.jobs(20) == table.jobs(22) == table.jobs()


def test_a_rank_that_starts_the_others_keeps_its_own_helpers() -> None:
    group = frozenset({"python", "gloo_tcp_loop"})
    first, other = (
        ListedProcess(pid, parent, 1000, "python", "S", pid, ("python",), {}, {}, group)
        for pid, parent in ((20, 9), (21, 20))
    )
    workers = (listed(22, 0, "python", parent=20), listed(23, 0, "python", parent=21))
    plain = tuple(replace(each, variables={}) for each in workers)
    (job,) = ProcessTable((first, other, *plain)).jobs()
    assert [[each.pid for each in rank.helpers] for rank in job.ranks] == [[22], [23]]


def test_the_processes_above_an_engine_s_workers_are_its_servers_and_a_shell_is_none() -> None:
    group = frozenset({"gloo_tcp_loop"})
    shell, api, core, first, second = (
        ListedProcess(pid, parent, 1000, arguments[0], "S", pid, arguments, {}, {}, threads)
        for pid, parent, arguments, threads in (
            (5, 1, ("bash",), frozenset[str]()), (6, 5, ("vllm", "serve"), frozenset[str]()),
            (7, 6, ("VLLM::EngineCore",), frozenset[str]()), (8, 7, ("VLLM::Worker_TP0",), group),
            (9, 7, ("VLLM::Worker_TP1",), group),
        )
    )  # fmt: skip
    (job,) = ProcessTable((shell, api, core, second, first)).jobs()
    assert [(each.rank, each.source, each.process.engine_name) for each in job.ranks] == [
        (0, "called Worker_TP0", "Worker_TP0"), (1, "called Worker_TP1", "Worker_TP1"),
    ]  # fmt: skip
    assert [each.pid for each in job.servers] == [7, 6]
    assert ProcessTable((shell, api, core, first, second)).jobs(6) == (job,)


def test_a_server_s_other_processes_with_the_engine_s_titles_are_servers_too() -> None:
    group = frozenset({"gloo_tcp_loop"})
    processes = [
        ListedProcess(pid, parent, 1000, arguments[0], "S", pid, arguments, {}, {}, threads)
        for pid, parent, arguments, threads in (
            (6, 1, ("python", "-m", "sglang.launch_server"), frozenset[str]()),
            (7, 6, ("sglang::scheduler_TP0",), group), (8, 6, ("sglang::scheduler_TP1",), group),
            (9, 6, ("sglang::detokenizer",), frozenset[str]()), (10, 6, ("python", "-c", "tracker"), frozenset[str]()),
        )
    ]  # fmt: skip
    (job,) = ProcessTable(processes).jobs()
    assert [each.process.engine_name for each in job.ranks] == ["scheduler_TP0", "scheduler_TP1"]
    assert [each.pid for each in job.servers] == [6, 9]


def test_a_process_leads_to_its_job_as_launcher_rank_or_helper_and_others_to_none() -> None:
    rank, shell = listed(20, 0, "python", "train.py", group=True), listed(23, 0, "bash", parent=20)
    table = ProcessTable((TORCHRUN, rank, shell, RANK_1))
    assert [len(table.jobs(pid)) for pid in (LAUNCHER, 20, 23, 30, 99)] == [1, 1, 1, 1, 0]


def test_ranks_whose_launcher_is_gone_are_ranks_all_the_same() -> None:
    ranks = [listed(20 + i, i, "python", "train.py", parent=1) for i in range(2)]
    assert {each.rank for job in ProcessTable(ranks).jobs() for each in job.ranks} == {0, 1}


def test_a_shell_in_an_allocation_is_no_job() -> None:
    shell = ListedProcess(
        7, 1, 0, "bash", "S", 7, ("bash",), {"SLURM_PROCID": "0", "SLURM_JOB_ID": "5"}, {}, frozenset()
    )
    assert ProcessTable((shell,)).jobs() == ()


def test_the_id_of_a_slurm_job_is_not_that_of_a_step() -> None:
    of_slurm, of_torchrun = FoundJob("SLURM_JOB_ID 7:1", ()), FoundJob("TORCHELASTIC_RUN_ID none", ())
    assert [of_slurm.goes_by(each) for each in ("7", "7:1", "1", "SLURM_JOB_ID")] == [True, True, False, False]
    assert [of_torchrun.goes_by(each) for each in ("none", "7")] == [True, False]


def test_what_preflight_itself_runs_under_is_no_rank() -> None:
    step = {"SLURM_PROCID": "0", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "3"}
    wrapper = ListedProcess(50, 1, 0, "python", "S", 50, ("python", "-m", "wrap"), step, {}, frozenset())
    own = ListedProcess(51, 50, 0, "preflight", "S", 51, ("preflight", "stuck"), step, {}, frozenset())
    rank = ListedProcess(
        40, 1, 0, "python", "S", 40, ("python", "t.py"), step | {"SLURM_STEP_ID": "0"}, {}, frozenset()
    )
    reader = ListedProcess(52, 51, 0, "preflight", "R", 52, own.arguments, step, {}, frozenset())
    (job,) = ProcessTable((rank, wrapper, own, reader)).without(51).jobs()
    assert [each.process.pid for each in job.ranks] == [40]


@pytest.mark.parametrize("pid", ["-1", "0", "99999999999999999999"])
def test_a_number_that_no_process_has_is_a_mistake_on_the_command_line(command: Command, pid: str) -> None:
    ran = command.run("stuck", "--pid", pid)
    assert (ran.code, ran.stdout) == (2, "") and "a process has a number from 1" in ran.stderr


def test_all_jobs_are_looked_at_and_the_worst_answer_is_the_exit_code(command: Command) -> None:
    started = []
    for name in ("first", "second"):
        (command.cwd / f"{name}.py").write_text(f"import time; open('{name}.up', 'w'); time.sleep(100)\n")
        names = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": name, "MASTER_PORT": "1"}
        started.append(subprocess.Popen([sys.executable, f"{name}.py"], cwd=command.cwd, env=os.environ | names))
    try:
        deadline = time.monotonic() + 60  # until each has its own command line, and sleeps
        while not all((command.cwd / f"{name}.up").exists() for name in ("first", "second")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(2.0)  # who went to sleep during the watch is no rank that stands
        whole = command.run("stuck", "--all", "--watch", "2s", env={"PREFLIGHT_VERBOSE": ""})
        short = command.run("stuck", "--all", "-q", "--watch", "2s", env={"PREFLIGHT_VERBOSE": ""})
        one = command.run("stuck", str(started[1].pid), "--watch", "1s", "-q", env={"PREFLIGHT_VERBOSE": ""})
    finally:
        for each in started:
            each.kill()
            each.wait()
    assert (whole.code, short.code, one.code) == (1, 1, 1)
    for each, name in zip(started, ("first", "second"), strict=True):
        assert f"Job {each.pid}: python {name}.py\n" in whole.stdout.replace("python3", "python")
        assert f"{each.pid}: STUCK  " in short.stdout
    assert one.stdout.startswith("STUCK  ") and "second.py" in one.stdout


@pytest.mark.parametrize("options", [("--all", "--json", "-"), ("--all", "4711"), ("--pid", "1", "4711"), ("0",)])
def test_what_makes_no_sense_together_is_refused(command: Command, options: tuple[str, ...]) -> None:
    ran = command.run("stuck", *options)
    assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr
