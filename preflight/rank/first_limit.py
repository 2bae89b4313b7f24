"""How long the first collective of a trial may take before it counts as hung: NCCL connects in it."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.run_spec import StageLimits
from preflight.model.trial import DEFAULT, Outcome, TrialResult
from preflight.rank.outcome import RankAnswer

LEAST_S = 15.0
TIMES_WHAT_WORKED = 5
TIMES_AN_ERROR = 1.5  # an error that came late must not be cut off as a hang when it is repeated
KNOWN_BROKEN_S = 12.0  # peer copies of a pair of GPUs hung or went wrong already


class FirstLimit:
    """The limit of one run: the plan's, until a trial beside a default that failed has shown what it takes."""

    def __init__(self, limits: StageLimits, nodes: int) -> None:
        self._limits = limits
        self._may_shorten = limits.stretches and nodes == 1 and limits.first_s >= LEAST_S
        self._took_s = 0.0
        self._error_s = 0.0

    def note(self, result: TrialResult, answers: Sequence[RankAnswer]) -> None:
        """Take in how a trial of the search ended."""
        if result.outcome is Outcome.OK and result.candidate != DEFAULT:
            events = [event for answer in answers for event in answer["events"]]
            self._took_s = max([self._took_s, *(event["first_s"] for event in events if "first_s" in event)])
        elif result.outcome in (Outcome.CRASH, Outcome.INIT_ERROR):
            self._error_s = max(self._error_s, result.duration_s)

    def limit_s(self, *, is_known_broken: bool) -> float:
        """Return the limit of the next trial in seconds."""
        if not self._may_shorten:
            return self._limits.first_s
        if self._took_s:
            return max(LEAST_S, TIMES_WHAT_WORKED * self._took_s, TIMES_AN_ERROR * self._error_s)
        return min(self._limits.first_s, KNOWN_BROKEN_S) if is_known_broken else self._limits.first_s
