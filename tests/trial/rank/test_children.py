"""A supervisor's children: real processes that report, fall silent, stop or die, and one real trial of one rank."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.model.codec import decode, encode
from preflight.model.collective import Collective
from preflight.model.run_spec import NO_GPUS, Assignment, Backend, Measure, StageLimits, StorePlace
from preflight.model.trial import RankEnd
from preflight.system import processes
from preflight.trial.rank.children import Child, is_overdue, kill, listen
from tests.conftest import PROJECT

LIMIT_S = 20.0
LIMITS = StageLimits(start_s=30, init_s=10, first_s=11, timed_s=15, stretches=True)
SHORT = StageLimits(0.05, 0.05, 0.05, 0.05, stretches=False)


def assignment(**overrides: object) -> Assignment:
    made = Assignment(
        label="0", rank=0, local_rank=0, world_size=1, backend=Backend("gloo", "", "gloo"), gpus=NO_GPUS,
        store=StorePlace("/nonexistent"), limits=StageLimits(10, 10, 10, 15, stretches=True),
        measures=(Measure(Collective.ALL_REDUCE, 1024, 0.01, 3, 5),),
    )  # fmt: skip
    return replace(made, **overrides)  # type: ignore[arg-type]


@contextlib.contextmanager
def running(script: str) -> Iterator[Child]:
    """Run a shell script as a child that reports on descriptor 9, in a process group of its own."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with subprocess.Popen(
        ["bash", "-c", script.replace(">&9", f">&{writer}")], pass_fds=(writer,), start_new_session=True
    ) as p:
        os.close(writer)
        child = Child(p.pid, reader, assignment=assignment(), started_by="fork")
        yield child
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGKILL)
        if child.fd >= 0:
            os.close(child.fd)


def listen_until_end(child: Child) -> RankEnd:
    until = time.monotonic() + LIMIT_S
    while child.end is None:
        assert time.monotonic() < until
        listen([child], 0.02)
    return child.end


def listen_until(child: Child, stage: str) -> None:
    until = time.monotonic() + LIMIT_S
    while child.stage != stage:
        assert time.monotonic() < until
        listen([child], 0.02)


def stage(name: str) -> str:
    return f"echo '{json.dumps({'stage': name})}' >&9;"


def error(kind: str) -> str:
    return f"echo '{json.dumps({'error': kind, 'detail': 'why'})}' >&9;"


def test_a_child_that_goes_through_its_stages_is_done() -> None:
    with running(stage("init") + stage("done")) as child:
        assert listen_until_end(child) == RankEnd(0, "done", "done", "")
        assert [event["stage"] for event in child.events] == ["init", "done"]


def test_a_child_that_reports_an_error_ended_with_it_at_its_stage() -> None:
    with running(stage("init") + error("timeout") + "exit 1") as child:
        assert listen_until_end(child) == RankEnd(0, "timeout", "init", "why")


def test_a_child_that_dies_by_a_signal_is_told_from_one_that_exits() -> None:
    with running(stage("first") + "kill -SEGV $$") as child:
        assert listen_until_end(child) == RankEnd(0, "signal", "first", "died by SIGSEGV")
    with running("exit 7") as child:
        assert listen_until_end(child).detail == "exited with code 7 without a word"


WATCHDOG = (
    "[rank1]:[E] ProcessGroupNCCL.cpp:2068] [PG ID 0 Rank 1] Process group watchdog thread terminated with exception: "
)
REMOTE = """NCCL error: remote process exited or there was a network error, NCCL version 2.28.9
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
socketProgress: Connection closed by remote peer n1<4>
Exception raised from checkForNCCLErrorsInternal at NCCLUtils.cpp:94"""
SYSTEM = (
    REMOTE.replace("remote process exited or there was a network error", "unhandled system error")
    .replace("ncclRemoteError", "ncclSystemError")
    .replace("Connection closed by remote peer n1<4>", "Connection timed out")
)


@pytest.mark.parametrize(
    ("said", "ended", "detail"),
    [
        (REMOTE, "connection", "NCCL remote process exited or there was a network error: socketProgress: Connection"),
        (SYSTEM, "error", "NCCL unhandled system error: socketProgress: Connection timed out"),
        ("CUDA error: unspecified launch failure\nmore", "error", "RuntimeError: CUDA error: unspecified launch"),
        ("", "signal", "died by SIGABRT"),
    ],
)
def test_a_child_that_torchs_watchdog_ends_ended_as_the_watchdog_says(
    said: str, ended: str, detail: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(f"noise\n{WATCHDOG}{said}\n" if said else "free(): invalid pointer\n")
    with running(stage("first") + "sleep 0.2; kill -ABRT $$") as child:
        child.log_path = str(log)
        end = listen_until_end(child)
        assert (end.ended, end.stage) == (ended, "first") and end.detail.startswith(detail), end


class SlowToDie(Child):
    """A child whose driver needs a while to tear its contexts down."""

    needs_s = 20.0

    def reap(self, until: float = 0.0) -> bool:
        if until - time.monotonic() < self.needs_s:
            return False
        return super().reap(until)


def test_a_process_that_needs_20_s_to_die_of_sigkill_is_no_unkillable_one() -> None:
    with running(stage("first") + "sleep 60") as p:
        child = SlowToDie(p.pid, p.fd, assignment=assignment(), started_by="fork")
        kill([child], False, LIMITS)
        p.fd = -1
        assert child.end and child.end.ended == "killed"


def test_a_line_that_arrives_in_pieces_is_one_event_and_half_a_line_of_a_dead_child_is_none() -> None:
    with running("""printf '{"stage": ' >&9; sleep 0.1; echo '"init"}' >&9; printf '{"sta' >&9; kill -9 $$""") as child:
        assert listen_until_end(child) == RankEnd(0, "signal", "init", "died by SIGKILL")


def test_a_report_larger_than_a_pipe_arrives_whole() -> None:
    with running(f'printf \'{{"samples": "%0300000d"}}\\n\' 7 >&9; {stage("done")}') as child:
        assert listen_until_end(child).ended == "done"
        assert len(child.events[0]["samples"]) == 300_000


def test_what_a_child_leaves_in_its_process_group_goes_with_it_and_does_not_delay_its_end() -> None:
    with running("sleep 60 & echo '{\"helper\": '$!'}' >&9; kill -9 $$") as child:
        assert listen_until_end(child).ended == "signal"
        until = time.monotonic() + LIMIT_S
        while processes.state(child.events[0]["helper"]) not in processes.GONE:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.mark.timing
def test_listening_returns_in_time_while_nothing_happens() -> None:
    with running("sleep 60") as child:
        start = time.monotonic()
        listen([child], 0.05)
        assert time.monotonic() - start < 2
        assert child.end is None


def test_a_silent_child_of_a_hung_trial_is_stuck_and_its_group_dies() -> None:
    with running(stage("first") + "sleep 60 & wait") as child:
        listen_until(child, "first")
        time.sleep(0.06)
        assert is_overdue(child, SHORT)
        kill([child], True, SHORT)
        assert child.end
        assert (child.end.ended, child.end.stage) == ("stuck", "first")
        assert processes.state(child.pid) == ""
        assert child.fd == -1


def test_a_child_that_moved_just_now_or_whose_trial_did_not_hang_is_only_killed() -> None:
    for hung, limits in ((True, LIMITS), (False, SHORT)):
        with running(stage("first") + "sleep 60") as child:
            listen_until(child, "first")
            time.sleep(0.06)
            kill([child], hung, limits)
            assert child.end
            assert child.end.ended == "killed"


def test_a_stopped_child_is_named_as_such_and_dies_all_the_same() -> None:
    with running(stage("first") + "kill -STOP $$") as child:
        listen_until(child, "first")
        until = time.monotonic() + LIMIT_S
        while processes.state(child.pid) != "T":
            assert time.monotonic() < until
            time.sleep(0.01)
        kill([child], True, LIMITS)
        assert child.end
        assert child.end.ended == "stopped"
        assert processes.state(child.pid) == ""


def test_how_a_child_ended_by_itself_outlives_the_killing() -> None:
    with running(error("connection") + "exit 1") as child:
        listen_until_end(child)
        kill([child], True, SHORT)
        assert child.end
        assert child.end.ended == "connection"


SUPERVISOR = """
import json, os, sys, time
from preflight.model.codec import decode, encode
from preflight.model.run_spec import Assignment
from preflight.trial.rank import children
for line in sys.stdin:
    assignment, log_path, by_exec = json.loads(line)
    child = children.start(decode(Assignment, assignment), log_path, by_exec)
    until = time.monotonic() + 30
    while child.end is None and time.monotonic() < until:
        children.listen([child], 0.02)
    print(json.dumps([encode(child.end), [e["stage"] for e in child.events if "stage" in e], child.started_by]))
"""
STAGES = ["spawned", "device", "store", "init", "first", "timed 1/1", "verified", "done"]
Ended = tuple[RankEnd, list[str], str]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Return how real trials of one rank ended: forked, started by exec, and forked without a place for the log."""
    tmp = tmp_path_factory.mktemp("trials")
    asked = {
        "fork": (assignment(store=StorePlace(str(tmp / "1"))), str(tmp / "1.log"), False),
        "no log": (assignment(store=StorePlace(str(tmp / "2"))), str(tmp / "none" / "2.log"), False),
        "exec": (assignment(store=StorePlace(str(tmp / "3"))), str(tmp / "3.log"), True),
    }
    lines = "".join(json.dumps([encode(made), log_path, by_exec]) + "\n" for made, log_path, by_exec in asked.values())
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISOR], cwd=PROJECT, env=environ, input=lines, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = map(json.loads, done.stdout.splitlines())
    return {name: (decode(RankEnd, end), stages, by) for name, (end, stages, by) in zip(asked, answers, strict=True)}


def test_a_real_trial_of_one_rank_is_forked_and_goes_through_every_stage(trials: dict[str, Ended]) -> None:
    end, stages, started_by = trials["fork"]
    assert (end.ended, stages, started_by) == ("done", STAGES, "fork")


def test_where_forking_is_not_sound_the_same_trial_is_started_by_exec(trials: dict[str, Ended]) -> None:
    end, stages, started_by = trials["exec"]
    assert (end.ended, stages, started_by) == ("done", STAGES, "exec")


def test_a_forked_child_that_cannot_open_its_log_ends_and_says_why_and_the_supervisor_goes_on(
    trials: dict[str, Ended],
) -> None:
    end, stages, _ = trials["no log"]
    assert (end.ended, stages) == ("error", [])
    assert "No such file or directory" in end.detail
