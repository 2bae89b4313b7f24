"""Questions that node 0 asks all nodes at the same time, round by round.

A node that does not answer does not delay other nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from preflight.model.network_survey import NetworkSurvey

SLACK_S = 2.0  # beyond a node's own limit, for its answer to come

Json = Any
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Query:
    """One round of questions. Each node in `questions` must answer its own question within `limit_s` seconds."""

    what: str
    questions: Mapping[int, Json]
    limit_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """A node's reply: the answer `value`, or the reason `failure` why there is no answer.

    The reply also has the times of the question and of the answer. The times are seconds since 1970 by this host's
    clock.
    """

    value: Json = None
    failure: str = ""
    asked_at: float = 0.0
    answered_at: float = 0.0


Asking = Generator[Query, dict[int, Reply], T]  # yields questions, is given the replies by node rank
QuerySteps = Asking[NetworkSurvey]
Ask = Callable[[int, int, Query], None]  # a node, the number of the question, the round


def ask(what: str, questions: Mapping[int, Json], limit_s: float) -> Asking[dict[int, Reply]]:
    """Ask each node in `questions` its own question, and return the replies by node rank.

    The function is a generator of one Query. Without questions, the result is {}.
    """
    return (yield Query(what, questions, limit_s)) if questions else {}


@dataclass(slots=True)
class Queries:
    """The rounds of questions in progress. `result` is None until all questions are answered."""

    steps: QuerySteps
    ask: Ask
    result: NetworkSurvey | None = None
    _round: Query | None = None
    _number: int = 0
    _asked_at: dict[int, float] = field(default_factory=dict)
    _replies: dict[int, Reply] = field(default_factory=dict)
    _until: float = 0.0

    def turn(self) -> None:
        """Start the next round if every node has answered or the time of the current round is over."""
        while self.result is None:
            if self._round is None:
                self._send(None)
            elif len(self._replies) == len(self._round.questions) or time.monotonic() > self._until:
                late = Reply(failure=f"no answer within {self._round.limit_s + SLACK_S:.0f} s")
                self._send({rank: self._replies.get(rank, late) for rank in self._round.questions})
            else:
                return

    def _send(self, answers: dict[int, Reply] | None) -> None:
        try:
            self._round = next(self.steps) if answers is None else self.steps.send(answers)
        except StopIteration as end:
            self.result = end.value
            return
        self._number += 1
        self._replies, self._asked_at = {}, {}
        self._until = time.monotonic() + self._round.limit_s + SLACK_S
        for node_rank in self._round.questions:
            self._asked_at[node_rank] = time.time()
            self.ask(node_rank, self._number, self._round)

    @property
    def about(self) -> str:
        return self._round.what if self._round else ""

    def take(self, node_rank: int, number: Json, answer: Json) -> None:
        """Record the answer of node `node_rank` to the round `number`. Ignore an answer to an earlier round."""
        if number != self._number or self._round is None or node_rank not in self._round.questions:
            return
        value, failure = (answer.get("value"), answer.get("failure", "")) if isinstance(answer, dict) else (None, "")
        if value is None and not failure:
            failure = "its answer can't be read"
        reply = Reply(value, str(failure)[:300], self._asked_at[node_rank], time.time())
        self._replies.setdefault(node_rank, reply)
