from __future__ import annotations

import os
import signal
import time

import pytest

from preflight.errors import UnreadableFact
from preflight.system.isolate import Asker, Slow, isolate_calls, run_isolated
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


@pytest.mark.timing
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


def _calls(open_s: float, hangs: int | None = None) -> Json:
    """Open three devices, and ask each for its name; the time for all is a second, opening apart."""

    def opened(number: int) -> bool:
        time.sleep(600 if number == hangs else open_s)
        return True

    def program(asker: Asker) -> Json:
        for number in range(3):
            asker.again(f"open/{number}", lambda: opened(number))  # noqa: B023  called at once
        outcomes = [asker.outcome(f"open/{number}") for number in range(3)]
        return [outcomes, [asker.ask(f"name/{number}", lambda: "a name") for number in range(3)]]

    return isolate_calls(program, (OSError,), str, 1.0, Slow("open", call_s=2.5, all_s=30.0))


def test_slow_calls_take_no_time_from_the_others() -> None:
    opened, names = _calls(open_s=0.7)  # 2.1 s in all
    assert (opened, names) == ([True] * 3, ["a name"] * 3)


def test_a_slow_call_that_hangs_costs_itself_and_none_of_the_others() -> None:
    opened, names = _calls(open_s=0.3, hangs=1)
    assert [opened[0], opened[2], names] == [True, True, ["a name"] * 3]
    assert opened[1] == {"unreadable": "no answer within 2.5 s: the call hangs"}
