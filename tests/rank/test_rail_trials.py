"""RDMA ports are tried one at a time; ports that hang don't cost a stage limit each."""

from __future__ import annotations

from preflight.model.collective import Collective
from preflight.model.trial import Candidate, Outcome, TrialResult
from preflight.plan.profiles import DUEL_EFFORT, measures
from preflight.rank.rail_trials import LARGEST_BYTES, MOST_HANGS, rail_measures, try_rails
from tests.reports import trial_result
from tests.topology import port

PORTS = tuple(port(f"mlx5_{number}") for number in range(5))


def outcomes(*planned: Outcome, why_no_more: str = "") -> tuple[list[Outcome], list[str]]:
    """Return what was noted of five ports and the ports that were tried, where the trials end as planned."""
    tried: list[str] = []

    def attempt(candidate: Candidate) -> TrialResult:
        tried.append(candidate.name)
        return trial_result(candidate.name, outcome=planned[len(tried) - 1])

    found = try_rails(PORTS, attempt, lambda: why_no_more)
    return [rail.outcome for rail in found], tried


def test_after_the_first_ports_have_all_hung_the_others_are_skipped() -> None:
    found, tried = outcomes(Outcome.HANG, Outcome.HANG)
    assert found == [Outcome.HANG] * MOST_HANGS + [Outcome.SKIPPED] * 3
    assert len(tried) == MOST_HANGS


def test_one_port_that_works_has_all_others_tried() -> None:
    planned = (Outcome.HANG, Outcome.OK, Outcome.HANG, Outcome.HANG, Outcome.HANG)
    found, tried = outcomes(*planned)
    assert tuple(found) == planned
    assert len(tried) == len(PORTS)


def test_why_no_port_can_be_tried_any_more_is_what_the_skipped_ones_say() -> None:
    found = try_rails(PORTS, lambda candidate: trial_result(candidate.name), lambda: "no time is left")
    assert {(rail.outcome, rail.problem) for rail in found} == {(Outcome.SKIPPED, "no time is left")}


def test_a_port_by_itself_is_not_timed_at_gibibytes() -> None:
    asked = measures(DUEL_EFFORT, (8, 1 << 20, 4 << 30), (Collective.ALL_REDUCE,))
    assert [each.nominal_bytes for each in rail_measures(asked)] == [8, 1 << 20, LARGEST_BYTES]
