"""Two nodes' path probes on loopback, and the strangers that call them."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from preflight.model.network_survey import PathEnd
from preflight.trial.nodes.path_probe import PathProbe
from preflight.trial.nodes.path_protocol import HELLO_S, MOST_BYTES
from preflight.trial.nodes.probe_process import ProbeProcesses

TOKEN = "ab" * 16
HERE, THERE = "127.0.0.1", "127.0.0.2"


def listening(node_rank: int, address: str, token: str = TOKEN) -> tuple[PathProbe, int]:
    probe = PathProbe()
    (told,) = probe.listen({"token": token, "node_rank": node_rank, "addresses": [address]})
    assert told["problem"] == ""
    return probe, told["port"]


def task(port: int, to_node: int = 1, **overrides: Any) -> dict[str, Any]:
    return {"address": HERE, "to_node": to_node, "to_address": THERE, "to_port": port, **overrides}


def reach(probe: PathProbe, *tasks: dict[str, Any], own: tuple[str, ...] = (HERE,)) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = probe.reach({"tasks": list(tasks), "own": list(own), "rate_s": 1.0})
    return answer


def test_a_way_that_works_is_measured() -> None:
    caller, _ = listening(0, HERE)
    _, port = listening(1, THERE)
    (told,) = reach(caller, task(port))
    assert told["end"] == PathEnd.OK.value, told
    assert told["rtt_us"] > 0
    assert told["gb_s"] > 0


def test_each_end_that_is_no_way_has_its_name() -> None:
    caller, own_port = listening(0, HERE)
    _, stranger_port = listening(1, THERE, token="cd" * 16)
    with socket.create_server((THERE, 0)) as closed:
        refusing = closed.getsockname()[1]
    told = reach(
        caller,
        task(refusing),
        task(stranger_port),
        task(own_port, to_address=HERE),
        task(own_port, to_address="127.0.0.3"),
    )
    assert [each["end"] for each in told[:3]] == [PathEnd.REFUSED.value, PathEnd.FAILED.value, PathEnd.ITSELF.value]


def test_a_program_that_answers_something_else_is_a_stranger_and_one_that_is_silent_costs_its_deadline() -> None:
    caller, _ = listening(0, HERE)
    with socket.create_server((THERE, 0)) as silent:
        since = time.monotonic()
        (told,) = reach(caller, task(silent.getsockname()[1]))
    assert told["end"] == PathEnd.DROPPED.value
    assert time.monotonic() - since < HELLO_S + 2


STRANGERS = {
    "nothing": b"",
    "garbage": os.urandom(4096),
    "a huge length": bytes.fromhex(TOKEN) + struct.pack("!I", 7) + struct.pack("!cI", b"E", 0xFFFF_FFFF),
    "an unknown word": bytes.fromhex(TOKEN) + struct.pack("!I", 7) + struct.pack("!cI", b"X", 1),
    "half a payload": bytes.fromhex(TOKEN) + struct.pack("!I", 7) + struct.pack("!cI", b"E", MOST_BYTES) + b"x",
}


@pytest.mark.parametrize("words", STRANGERS.values(), ids=STRANGERS)
def test_strangers_change_no_result(words: bytes) -> None:
    caller, _ = listening(0, HERE)
    _, port = listening(1, THERE)
    strangers = [socket.create_connection((THERE, port), 1) for _ in range(50)]
    try:
        for stranger in strangers:
            stranger.sendall(words)
        (told,) = reach(caller, task(port))
        assert told["end"] == PathEnd.OK.value
    finally:
        for stranger in strangers:
            stranger.close()


def test_an_address_that_is_not_here_is_a_problem_and_no_end() -> None:
    probe = PathProbe()
    (told,) = probe.listen({"token": TOKEN, "node_rank": 0, "addresses": ["192.0.2.77"]})
    assert told["port"] == 0
    assert "nothing can listen there" in told["problem"]


@pytest.fixture
def helpers() -> Iterator[ProbeProcesses]:
    made = ProbeProcesses(os.environ)
    yield made
    made.close()


def answer(helpers: ProbeProcesses, within_s: float = 20) -> Any:
    until = time.monotonic() + within_s
    while not (found := helpers.answers()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found[0]


def test_a_child_answers_and_what_it_listens_on_ends_with_it(helpers: ProbeProcesses) -> None:
    helpers.ask(7, "listen", {"token": TOKEN, "node_rank": 0, "addresses": [HERE]}, 20)
    number, told = answer(helpers)
    assert number == 7
    port = told["value"][0]["port"]
    socket.create_connection((HERE, port), 1).close()
    helpers.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((HERE, port), 1)


def test_questions_that_nobody_knows_or_that_are_malformed_fail_by_themselves(helpers: ProbeProcesses) -> None:
    helpers.ask(1, "format the disk", {}, 5)
    assert "no such question" in answer(helpers)[1]["failure"]
    helpers.ask(2, "listen", {}, 20)
    assert "KeyError" in answer(helpers)[1]["failure"]


def test_a_child_that_is_late_is_ended_and_the_next_question_gets_another(helpers: ProbeProcesses) -> None:
    helpers.ask(1, "listen", {"token": TOKEN, "node_rank": 0, "addresses": [HERE]}, 0.0)
    assert "no answer in time" in answer(helpers)[1]["failure"]
    helpers.ask(2, "listen", {"token": TOKEN, "node_rank": 0, "addresses": [HERE]}, 20)
    assert answer(helpers)[1]["value"][0]["problem"] == ""
