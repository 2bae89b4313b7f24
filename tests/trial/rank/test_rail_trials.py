"""RDMA ports are tried one at a time; ports that hang don't cost a stage limit each."""

from __future__ import annotations

from preflight.model.collective import Collective
from preflight.model.gap import Gap
from preflight.model.trial import Candidate, Outcome, RailTest, TrialResult
from preflight.search.profiles import DUEL_TIMING, measures
from preflight.trial.rank.rail_trials import LARGEST_BYTES, MOST_HANGS, rail_measures, slow_or_failed, try_rails
from tests.reports import trial_result
from tests.topology import port

PORTS = tuple(port(f"mlx5_{number}") for number in range(5))


def outcomes(*planned: Outcome, why_no_more: str = "") -> tuple[list[Outcome], list[str]]:
    """Return what was noted of five ports and the ports that were tried, where the trials end as planned."""
    tried: list[str] = []

    def attempt(candidate: Candidate) -> TrialResult:
        tried.append(candidate.name)
        return trial_result(candidate.name, outcome=planned[(len(tried) - 1) % len(planned)])

    found = try_rails(PORTS, attempt, lambda: why_no_more)
    return [rail.outcome for rail in found if not rail.repetition], tried


def test_after_the_first_ports_have_all_hung_the_others_are_skipped() -> None:
    found, tried = outcomes(Outcome.HANG, Outcome.HANG)
    assert found == [Outcome.HANG] * MOST_HANGS + [Outcome.SKIPPED] * 3
    assert len(tried) == MOST_HANGS


def test_one_port_that_works_has_all_others_tried() -> None:
    planned = (Outcome.HANG, Outcome.OK, Outcome.HANG, Outcome.HANG, Outcome.HANG)
    found, tried = outcomes(*planned)
    assert tuple(found) == planned
    assert tried[: len(PORTS)] == list(dict.fromkeys(tried))


def test_why_no_port_can_be_tried_any_more_is_what_the_skipped_ones_say() -> None:
    found = try_rails(PORTS, lambda candidate: trial_result(candidate.name), lambda: "no time is left")
    assert {(rail.outcome, rail.problem) for rail in found} == {(Outcome.SKIPPED, "no time is left")}


def test_a_port_by_itself_is_not_timed_at_gibibytes() -> None:
    asked = measures(DUEL_TIMING, (8, 1 << 20, 4 << 30), (Collective.ALL_REDUCE,))
    assert [each.nominal_bytes for each in rail_measures(asked)] == [8, 1 << 20, LARGEST_BYTES]


def tried_again(*speeds: float | Outcome) -> list[int]:
    """Return the places of the ports that are tried again, which carried so much or ended so."""
    tests = [
        RailTest("mlx5_0", 1, 400.0, each, "", (), Gap("it failed"))
        if isinstance(each, Outcome)
        else RailTest("mlx5_0", 1, 400.0, Outcome.OK, "", ("NET/IB",), each)
        for each in speeds
    ]
    return slow_or_failed(tests)


def test_a_port_that_failed_or_was_slow_is_tried_again() -> None:
    assert tried_again(40.0, 41.0, 20.0, Outcome.HANG) == [2, 3]
    assert tried_again(40.0, 41.0, 39.0) == []
    assert tried_again(Outcome.HANG, Outcome.HANG, Outcome.SKIPPED) == [], "none works"


def test_the_second_try_is_told_as_such() -> None:
    ends = iter((Outcome.OK, Outcome.CRASH, Outcome.OK, Outcome.OK, Outcome.OK, Outcome.OK))
    found = try_rails(PORTS, lambda candidate: trial_result(candidate.name, outcome=next(ends)), lambda: "")
    assert [(rail.hca, rail.repetition) for rail in found][-1] == ("mlx5_1", 1)
    assert [rail.outcome for rail in found if rail.hca == "mlx5_1"] == [Outcome.CRASH, Outcome.OK]
