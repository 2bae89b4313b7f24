"""Real jobs of four ranks, hung in every way that is told of: the right rank, place and reason, and then they go on.

Each is looked at twice at once: with all that is allowed, and as an ordinary user to whom ptrace is forbidden.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from preflight.system.installed import installed_versions
from preflight.system.processes import state
from tests.stuck.hanging_jobs import RANKS, ForkServer, HangingJob, Looked, hanging_job, look

# All read the same stories, which are started once.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.xdist_group("stories")]

WITHOUT_PTRACE = (sys.executable, str(Path(__file__).parent / "without_ptrace.py"))
# Not even root may do more than the owner of the processes: no capability is left, none comes back by exec.
ORDINARY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--securebits=+noroot,+noroot_locked")
MOST_S, MOST_MEDIAN_S = 40.0, 15.0


@dataclass(frozen=True, slots=True)
class Way:
    """How a job hangs: who is to be named, why, in what, and at which of its lines; `kind` is that of its like."""

    rank: int
    reason: str
    activity: str
    at: str
    kind: str  # the undisturbed job with the same result; "" where nothing lets it go on


WAYS = {
    "save": Way(2, "rank_elsewhere", "save", "save_checkpoint", "plain"),
    "evaluation": Way(0, "rank_elsewhere", "evaluation", "evaluate", "ddp"),
    "spin": Way(1, "rank_elsewhere", "python", "prepare_batch", "plain"),
    "file_lock": Way(0, "rank_elsewhere", "file_lock", "download", "plain"),
    "gil": Way(3, "rank_elsewhere", "gil", "call_extension", "plain"),
    "thread_lock": Way(1, "rank_elsewhere", "lock", "wait_for_thread", "ddp"),
    "import": Way(2, "rank_elsewhere", "importing", "plugin.py", "plain"),
    "compile": Way(0, "rank_elsewhere", "compiling", "compile_step", ""),
    "other_collective": Way(2, "other_collective", "collective", "call_another", ""),
    "stopped": Way(1, "stopped_process", "stopped", "stop", "ddp"),
    "data_worker": Way(3, "rank_elsewhere", "data_loading", "train", "loader"),
    "dead": Way(3, "dead_rank", "missing", "", ""),
    "sharded_save": Way(0, "other_collective", "collective", "save_sharded", ""),
    "trainer_save": Way(0, "rank_elsewhere", "save", "on_save", "trainer"),
    "start": Way(3, "never_came", "missing", "", "plain"),
}
SEEN_WITHOUT_PTRACE = 8
STARTED = ("file_lock",)  # by exec, each with its own import of torch
AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Story:
    """What was seen of a job, and its results once it went on."""

    pids: tuple[int, ...]
    full: Looked
    restricted: Looked
    results: tuple[str, ...]


@contextlib.contextmanager
def _disturbed(job: HangingJob) -> Iterator[Callable[[], None]]:
    """Start a job and have it hang; give what lets it go on."""
    lock: IO[bytes] = (job.folder / "download.lock").open("wb")
    with lock:
        if job.way == "file_lock":
            fcntl.flock(lock, fcntl.LOCK_EX)
        if job.way == "compile":
            _write_slow_compiler(job.folder)
        job.start((0, 1, 2) if job.way == "start" else range(RANKS), "hidden" if job.way == "trainer_save" else "shown")
        if job.way != "start":
            job.wait_until_hung()
        if job.way == "dead":
            os.kill(job.pids[WAYS["dead"].rank], signal.SIGKILL)

        def go_on() -> None:
            fcntl.flock(lock, fcntl.LOCK_UN)
            if job.way == "stopped":
                os.kill(job.pids[1], signal.SIGCONT)
            if job.way == "start":
                job.start((3,))
            job.go_on()

        yield go_on


def _write_slow_compiler(folder: Path) -> None:
    compiler = folder / "c++"
    compiler.write_text(f'#!/bin/sh\ntouch "{folder}/hung"\nexec sleep 600\n')
    compiler.chmod(0o755)


def _story(way: str, server: ForkServer | None, prefix: tuple[str, ...]) -> Story:
    with hanging_job(way, server, prefix) as job, _disturbed(job) as go_on, ThreadPoolExecutor(1) as beside:
        pid = job.pids[0]
        restricted = beside.submit(look, "--pid", str(pid), prefix=(*prefix, *WITHOUT_PTRACE))
        full = look("--pid", str(pid))
        seen = restricted.result()
        results: tuple[str, ...] = ()
        if WAYS[way].kind:
            go_on()
            results = tuple(job.results())
        return Story(tuple(job.pids), full, seen, results)


def _undisturbed(kind: str, server: ForkServer) -> tuple[str, ...]:
    with hanging_job(kind, server) as job:
        job.start()
        job.go_on()
        return tuple(job.results())


@pytest.fixture(scope="module")
def prefix() -> tuple[str, ...]:
    """Return what takes root's rights away."""
    return ORDINARY if os.geteuid() == 0 and shutil.which("setpriv") else ()


@pytest.fixture(scope="module")
def server(prefix: tuple[str, ...], need: Callable[[str, bool, str], None]) -> Iterator[ForkServer]:
    """Yield what forks the ranks, as an ordinary user's processes."""
    need("frameworks", bool(installed_versions(("transformers",))), "transformers is not installed")
    made = ForkServer(prefix)
    yield made
    made.end()


@pytest.fixture(scope="module")
def stories(server: ForkServer, prefix: tuple[str, ...]) -> Iterator[dict[str, Future[Story]]]:
    """Run all jobs, some at a time: most of the time they wait. Those of STARTED are no forks."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {w: pool.submit(_story, w, None if w in STARTED else server, prefix) for w in WAYS}
        yield running
        for each in running.values():
            each.cancel()


@pytest.fixture(scope="module")
def undisturbed(server: ForkServer) -> dict[str, tuple[str, ...]]:
    """Return the results of jobs that nothing disturbed, by their kind."""
    return {kind: _undisturbed(kind, server) for kind in sorted({way.kind for way in WAYS.values()} - {""})}


@pytest.mark.parametrize("way", WAYS)
def test_the_right_rank_place_and_reason_are_named(stories: dict[str, Future[Story]], way: str) -> None:
    expected, story = WAYS[way], stories[way].result()
    report = story.full.report
    (culprit,) = report["culprits"]
    place = story.full.places()[expected.rank]
    assert (story.full.code, report["verdict"]) == (1, "stuck"), report["summary"]
    assert culprit["ranks"] == [expected.rank] and culprit["reason"] == expected.reason, report["summary"]
    assert place["activity"] == expected.activity and expected.at in place["at"], place
    assert story.full.took_s < MOST_S


@pytest.mark.parametrize("way", [way for way, expected in WAYS.items() if expected.kind])
def test_the_job_goes_on_to_the_result_of_an_undisturbed_run(
    stories: dict[str, Future[Story]], undisturbed: dict[str, tuple[str, ...]], way: str
) -> None:
    assert stories[way].result().results == undisturbed[WAYS[way].kind]


def test_without_root_and_with_ptrace_forbidden_most_are_named_all_the_same(
    stories: dict[str, Future[Story]], capsys: pytest.CaptureFixture[str]
) -> None:
    named = set()
    for way, expected in WAYS.items():
        seen = stories[way].result().restricted
        ranks = [rank for culprit in seen.report["culprits"] for rank in culprit["ranks"]]
        assert ranks in ([expected.rank], []), f"{way}: a wrong rank is named: {seen.report['summary']}"
        assert any("ptrace" in each for each in seen.report["not_seen"]), way
        assert seen.code == (1 if seen.report["culprits"] else 3)
        named |= {way} if ranks else set()
    with capsys.disabled():
        sys.stdout.write(f"\nwithout ptrace named in {len(named)} of {len(WAYS)}: not {sorted(set(WAYS) - named)}\n")
    assert len(named) >= SEEN_WITHOUT_PTRACE


def test_an_answer_comes_within_15_seconds(
    stories: dict[str, Future[Story]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The median: the machine starts other jobs at the same time."""
    taken_s = [stories[way].result().full.took_s for way in WAYS]
    with capsys.disabled():
        sys.stdout.write(f"\npreflight stuck: median {statistics.median(taken_s):.1f} s, most {max(taken_s):.1f} s\n")
    assert statistics.median(taken_s) < MOST_MEDIAN_S


def test_what_the_kernel_adds_is_told(stories: dict[str, Future[Story]]) -> None:
    lock = stories["file_lock"].result()
    assert f"download.lock, held by process {os.getpid()}" in lock.full.places()[0]["detail"]
    worker = stories["data_worker"].result().full.report["summary"]
    assert re.search(r"its data worker \(pid \d+\) is blocked in train\.py:\d+, read_shard", worker)
    assert "keeps its connections open" in stories["dead"].result().full.report["summary"]
    assert stories["sharded_save"].result().full.places()[0]["within"] == "save"


def test_a_job_that_goes_on_slowly_is_not_stuck(server: ForkServer) -> None:
    with hanging_job("slow", server) as job:
        job.start()
        job.wait_until_hung()
        seen = look("--pid", str(job.pids[0]))
        assert (seen.code, seen.report["verdict"]) == (0, "not_stuck"), seen.report["summary"]
        assert all(state(pid) for pid in job.pids)
        job.go_on()
        assert len(set(job.results())) == 1
