"""Laws of the parts that read logs: whatever the text is, an answer within bounds; and who does what how."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from preflight.explain.event import Authority, Event, Moment
from preflight.explain.last_words import SHOWN, last_words, to_fetch
from preflight.explain.launchers import LIMITS, OTHER_LOGS, VARIABLES, launcher_of, way, with_launcher
from preflight.explain.log_evidence import LogEvidence, SourceState
from preflight.explain.log_order import LIMIT, is_newest_first, oldest_first
from preflight.explain.run_ends import DEATH
from preflight.explain.survival import MANY, Survival, is_after
from preflight.model.launchers import LAUNCHERS
from tests.explain.logs import cause_of_lines, explain_bytes

BY_NAME = {each.name: each for each in LAUNCHERS}
NAMES = list(BY_NAME)
T0 = datetime(2026, 3, 1, 12)
MOMENTS = st.builds(Moment, st.sampled_from(["", "iso", "glog"]), st.floats(0, 1e9))
EVENTS = st.builds(
    Event, st.sampled_from(["end.death", "x.y"]), st.just("x"), st.sampled_from(list(Authority)), st.integers(0, 2),
    st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from(["", "0", "7"]), st.just(""), MOMENTS, st.text(),
    steps=st.integers(0, 40),
)  # fmt: skip


def _stamped(minutes: list[int]) -> list[bytes]:
    return [f"{T0 + timedelta(minutes=at):%Y-%m-%d %H:%M:%S} line {at}".encode() for at in minutes]


@given(st.lists(st.binary(max_size=400), max_size=12))
def test_no_line_is_lost_whichever_way_round_a_log_stands(chunks: list[bytes]) -> None:
    pieces, turned = oldest_first(chunks)
    after = b"".join(pieces)
    if not turned:
        assert after == b"".join(chunks)
    assert sorted(after.rstrip(b"\n").split(b"\n")) == sorted(b"".join(chunks).rstrip(b"\n").split(b"\n"))


@given(st.lists(st.integers(0, 900), min_size=8, max_size=60, unique=True), st.integers(1, 200))
def test_a_log_that_goes_back_in_time_is_turned_and_one_that_goes_forth_is_not(times: list[int], cut: int) -> None:
    forth = _stamped(sorted(times))
    for lines, is_turned in ((forth, False), (forth[::-1], True)):
        text = b"\n".join(lines) + b"\n"
        pieces, turned = oldest_first([text[i : i + cut] for i in range(0, len(text), cut)])
        assert b"".join(pieces) == b"\n".join(forth) + b"\n"
        assert (turned == len(forth)) is is_turned


def test_a_log_that_is_too_long_to_be_turned_is_read_as_it_stands() -> None:
    newest = b"\n".join(reversed(_stamped(list(range(100))))) + b"\n"
    pieces, turned = oldest_first([newest, b"x" * LIMIT])
    assert (turned, b"".join(pieces)) == (0, newest + b"x" * LIMIT)


@given(st.binary(max_size=2000))
def test_noise_has_an_order_in_time_or_none(text: bytes) -> None:
    assert is_newest_first(text) in (True, False)


@given(st.lists(EVENTS, max_size=6), st.lists(EVENTS, max_size=4), st.lists(EVENTS, max_size=4), EVENTS)
def test_what_was_survived_stays_so_when_more_work_follows(
    successes: list[Event], deaths: list[Event], restarts: list[Event], event: Event
) -> None:
    few, more = (dict.fromkeys(range(3), event.steps + extra) for extra in (2, 2 + 2 * MANY))
    assert Survival(more, successes, deaths, restarts).survived(event) >= Survival(
        few, successes, deaths, restarts
    ).survived(event)


@given(EVENTS)
def test_nothing_is_survived_where_nothing_follows(event: Event) -> None:
    alone = Survival({event.source: event.steps}, (), (), ())
    assert not alone.survived(event) and not alone.is_after_success(event)


@given(EVENTS, EVENTS)
def test_of_two_events_at_most_one_is_the_later(one: Event, other: Event) -> None:
    assert not (is_after(one, other) and is_after(other, one))


@given(st.lists(EVENTS, max_size=30), st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3), min_size=3),
       st.sets(st.sampled_from(NAMES)))  # fmt: skip
def test_the_last_words_are_few_and_in_order(events: list[Event], tails: list[list[str]], used: set[str]) -> None:
    evidence = LogEvidence(sources=[SourceState(f"{i}.log", tail=tuple(tail)) for i, tail in enumerate(tails)])
    evidence.launchers = used
    for event in events:
        evidence.keep(event)
    shown = last_words(evidence)
    assert 0 < len(shown) <= SHOWN
    assert [event.order for event in shown] == sorted(event.order for event in shown)
    if any(event.sign == DEATH for event in events):
        assert all(event in events for event in shown)
    assert all(step.strip() for step in to_fetch(evidence))


@given(st.text())
def test_a_line_names_one_launcher_or_none(text: str) -> None:
    assert launcher_of(text) in ("", *NAMES)


@given(st.lists(st.text()), st.sets(st.sampled_from(NAMES)), st.booleans())
def test_a_launcher_adds_steps_and_takes_none(steps: list[str], used: set[str], sets: bool) -> None:
    after = with_launcher(steps, used, sets_variables=sets)
    assert after[: len(steps)] == tuple(steps)
    assert len(after) <= len(steps) + 3
    assume(not used)
    assert after == tuple(steps)


def test_a_way_is_that_of_the_most_precise_launcher() -> None:
    assert way(VARIABLES, {"torchrun", "ray", "kubernetes"}) == (BY_NAME["ray"].sets_variables,)
    assert way(LIMITS, {"torchrun", "kubernetes"}) == (BY_NAME["kubernetes"].sets_limits,)


P2P = "transport/p2p.cc:268 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'"
SHM = "NCCL WARN Error: failed to extend /dev/shm/nccl-x to 9637892 bytes"
PEER = "[rank3]: ncclRemoteError: remote process exited or there was a network error"
STARTED = {
    "ray": "(RayWorkerWrapper pid=411) started",
    "kubernetes": "kubectl logs -l job=x --prefix",
    "slurm": "srun: job 411 queued and waiting for resources",
    "mpirun": "mpirun -np 8 python train.py",
    "deepspeed": "[2026-01-01 10:00:00,114] [INFO] [launch.py:214:main] nnodes=2",
    "docker": "docker run --gpus all image",
    "torchrun": "torchrun --nproc-per-node 8 train.py",
}


@pytest.mark.parametrize("launcher", STARTED)
def test_a_remedy_says_how_the_launcher_in_use_does_it(launcher: str) -> None:
    for line, need in ((P2P, VARIABLES), (SHM, LIMITS), (PEER, OTHER_LOGS)):
        remedy = explain_bytes(f"{STARTED[launcher]}\n{line}\n".encode()).causes[0].remedy
        said = [each.name for each in LAUNCHERS if need.way(each) and need.way(each) in remedy]
        assert said == [launcher] * bool(need.way(BY_NAME[launcher]))


def test_processes_that_exit_of_themselves_after_the_work_was_done_are_an_end() -> None:
    left = "[rank0]:[W225 10:03:12.6 ProcessGroupNCCL.cpp:1374] Warning: WARNING: process group has NOT been destroyed"
    lines = ["Finished training in 0:01:11", f"{left} before we destruct ProcessGroupNCCL."]
    assert cause_of_lines(lines) == "healthy"
    assert cause_of_lines(lines[:1]) == "unfinished"
    assert cause_of_lines([*lines, *["step 1"] * 9]) == "unfinished"
    assert cause_of_lines([*lines, "Aborted (core dumped)"]) != "healthy"


@pytest.mark.parametrize("ignored", ["Exception ignored in: <function _X.__del__ at 0x7f>", "--- Logging error ---"])
def test_an_exception_that_python_ignores_ends_nothing(ignored: str) -> None:
    raised = [
        "Traceback (most recent call last):",
        '  File "/usr/lib/x.py", line 8, in __del__',
        "OSError: [Errno 9] Bad fd",
    ]
    assert cause_of_lines(["Training completed in 0:12:41", ignored, *raised]) == "healthy"
    assert cause_of_lines(["Training completed in 0:12:41", *raised]) == "not_nccl"
