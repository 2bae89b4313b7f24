from __future__ import annotations

from preflight.judge.run.world_size_nodes_differ import world_size
from preflight.model.finding import Blame, Severity
from preflight.model.trial import Outcome
from tests.judge.findings import found, only
from tests.node_facts import case, trial


def test_ranks_that_all_see_the_world_asked_for_are_fine() -> None:
    assert found(world_size, case()) == ()


def test_independent_single_rank_launches_do_not_pass_for_a_group() -> None:
    lonely = trial(world_size_reported=((0, 1), (1, 1)))
    finding = only(found(world_size, case(lonely)))
    assert finding.severity is Severity.FAIL
    assert finding.blame is Blame.HARNESS
    assert "ranks 0, 1 had a world size of 1 instead of 2" in finding.problem


def test_a_rank_that_took_no_part_in_a_finished_trial_is_named() -> None:
    assert "rank 1 of 2 did not join" in only(found(world_size, case(trial(world_size_reported=((0, 2),))))).problem


def test_a_rank_number_given_twice_is_found() -> None:
    assert "two processes" in only(found(world_size, case(trial(world_size_reported=((0, 2), (0, 2), (1, 2)))))).problem


def test_ranks_that_a_hang_kept_from_answering_are_not_missed_here() -> None:
    assert found(world_size, case(trial(outcome=Outcome.HANG, world_size_reported=()))) == ()


def test_every_candidates_trial_is_looked_at() -> None:
    lonely = trial("GLOO_SOCKET_IFNAME=eth0", world_size_reported=((0, 1), (1, 1)))
    assert only(found(world_size, case(trial(), lonely))).subject == "trial GLOO_SOCKET_IFNAME=eth0"
