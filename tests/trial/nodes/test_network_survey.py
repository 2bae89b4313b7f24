"""Node 0's questions to all nodes, answered by hand: also late, wrongly, or by nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.model.network_survey import NetworkSurvey, PathEnd
from preflight.trial.nodes.network_survey import survey_network
from preflight.trial.nodes.queries import Queries, Query, Reply
from tests.node_facts import netif, node
from tests.search.nodes.test_joint_plan import solo

NODES = {k: solo(f"n{k}", facts=node(host=f"n{k}", netifs=(netif(addresses=(f"10.0.0.{k + 1}",)),))) for k in range(3)}


def good(rank: int, asked: Query) -> Any:
    question = asked.questions[rank]
    match asked.what:
        case "clock":
            return time.time()
        case "listen":
            return [{"port": 4000, "problem": "", "prefix_bits": 24} for _ in question["addresses"]]
        case _:
            return [{"end": "ok", "detail": "", "rtt_us": 50.0, "gb_s": 1.0} for _ in question["tasks"]]


def learn(answer: Callable[[int, Query], Any]) -> NetworkSurvey:
    steps = survey_network(NODES, "run", "")
    asked = next(steps)
    while True:
        now = time.time()
        answers = {rank: Reply(answer(rank, asked), "", now, now) for rank in asked.questions}
        try:
            asked = steps.send(answers)
        except StopIteration as end:
            found: NetworkSurvey = end.value
            return found


def test_answers_become_a_matrix_a_choice_and_clocks() -> None:
    found = learn(good)
    assert found.chosen == "subnet 10.0.0.0/24"
    assert len(found.results) == 6
    assert [clock.host for clock in found.clocks] == ["n1", "n2"]
    assert all(abs(clock.offset_s) < 5 for clock in found.clocks)


def test_a_clock_that_is_ahead_is_measured() -> None:
    found = learn(lambda rank, asked: time.time() + 60 if asked.what == "clock" and rank == 2 else good(rank, asked))
    assert 55 < found.clocks[1].offset_s < 65


def test_a_node_that_does_not_answer_leaves_its_ways_untried() -> None:
    found = learn(lambda rank, asked: None if rank == 2 and asked.what == "reach" else good(rank, asked))
    assert {r.from_node for r in found.results if r.end is PathEnd.UNTRIED} == {2}
    assert found.chosen == ""


KEYS = st.sampled_from(["end", "port", "detail", "problem", "prefix_bits", "rtt_us"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_a_node_answers_the_questions_come_to_an_end(data: st.DataObject) -> None:
    found = learn(lambda rank, asked: data.draw(JSON) if rank == 2 else good(rank, asked))
    assert {node.node_rank for node in found.nodes} == {0, 1, 2}


def test_a_round_ends_when_all_have_answered_or_when_its_time_is_up() -> None:
    asked: list[tuple[int, int, str]] = []

    def steps() -> Any:
        told = yield Query("clock", {0: {}, 1: {}}, -2.0)
        assert (told[0].value, told[1].failure) == (1.0, "no answer within 0 s")
        told = yield Query("listen", {1: {}}, 60.0)
        assert told[1].value == 2.0
        return "the end"

    rounds: Queries = Queries(steps(), lambda *_: None)

    def ask(rank: int, number: int, each: Query) -> None:
        asked.append((rank, number, each.what))
        if rank == 0:
            rounds.take(0, number, {"value": 1.0})

    rounds.ask = ask
    rounds.turn()
    rounds.turn()
    assert asked == [(0, 1, "clock"), (1, 1, "clock"), (1, 2, "listen")]
    rounds.take(1, 1, {"value": 9.0})  # too late
    rounds.turn()
    assert rounds.result is None
    rounds.take(1, 2, {"value": 2.0})
    rounds.turn()
    assert str(rounds.result) == "the end"
