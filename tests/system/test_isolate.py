from __future__ import annotations

import os
import signal
import time

import pytest

from preflight.errors import UnreadableFact
from preflight.system.isolate import run_isolated
from preflight.system.machine import Json

LIMIT_S = 20.0


def _sleep_forever() -> Json:
    while True:
        time.sleep(60)


def _raise() -> Json:
    raise UnreadableFact("no such file")


def _die() -> Json:
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def _children() -> int:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return len(file.read().split())


def test_each_function_fails_alone_and_the_others_still_answer() -> None:
    answers = run_isolated(
        {"good": lambda: {"n": [1, None]}, "raises": _raise, "dies": _die},
        {"good": LIMIT_S} | {"raises": 20, "dies": 20},
    )
    assert answers["good"].value == {"n": [1, None]}
    assert answers["good"].failure == ""
    assert "no such file" in answers["raises"].failure
    assert "died" in answers["dies"].failure
    assert answers["dies"].value is None


def test_a_function_that_never_returns_ends_at_its_limit_and_leaves_no_process() -> None:
    before = _children()
    start = time.monotonic()
    answers = run_isolated({"stuck": _sleep_forever, "good": lambda: 1}, {"stuck": 0.2, "good": LIMIT_S})
    assert time.monotonic() - start < 5
    assert "stuck" in answers["stuck"].failure
    assert answers["good"].value == 1
    assert _children() == before


def test_an_answer_larger_than_a_pipe_arrives_whole() -> None:
    answer = run_isolated({"large": lambda: "x" * (5 << 20)}, {"large": LIMIT_S})["large"]
    assert answer.value == "x" * (5 << 20)


def test_what_a_library_prints_while_it_is_asked_never_reaches_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    answer = run_isolated({"loud": lambda: os.write(1, b"NVML says hello")}, {"loud": LIMIT_S})["loud"]
    assert answer.value == len("NVML says hello")
    assert "hello" not in capfd.readouterr().out


def test_answers_come_in_the_order_of_the_questions() -> None:
    limits_s = dict.fromkeys("abc", LIMIT_S)
    assert list(run_isolated({"c": lambda: 1, "a": lambda: 2, "b": lambda: 3}, limits_s)) == ["c", "a", "b"]


def test_a_function_runs_in_a_process_of_its_own() -> None:
    assert run_isolated({"pid": os.getpid}, {"pid": LIMIT_S})["pid"].value != os.getpid()


def test_a_value_that_json_cannot_hold_is_a_failure() -> None:
    assert run_isolated({"odd": lambda: {1, 2}}, {"odd": LIMIT_S})["odd"].failure


def test_what_is_done_meanwhile_takes_no_time_from_the_answers() -> None:
    done: list[str] = []
    answer = run_isolated({"good": lambda: 1}, {"good": LIMIT_S}, meanwhile=lambda: done.append("loaded"))["good"]
    assert (answer.value, done) == (1, ["loaded"])
