"""Groups of nodes: when they are tried, what is slow beside others, and that the rounds name whoever is at fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.collective import Collective
from preflight.model.gap import Gap
from preflight.model.isolation import GroupOutcome, GroupTrial, Isolation, IsolationRound
from preflight.model.trial import Candidate, Outcome, Scope, TrialResult
from preflight.search.nodes.group_rounds import (
    FINISHED,
    Worth,
    isolation_of,
    judge_ranks,
    judged,
    next_groups,
    nobody_works,
    rank_by_rank,
    slow_below_gb_s,
    worth_dividing,
)
from preflight.search.nodes.isolation import Isolated, NodeGroupRound, most_rounds
from tests.node_facts import MIB, result, trial

DEFAULT = Candidate("default", (), "", Scope.ANYWHERE)
NETIF = Candidate("netif of the rendezvous", (), "", Scope.ANYWHERE)
WORTH = Worth("they fail", (DEFAULT,), is_failing=True)
BOTH = (Collective.ALL_REDUCE, Collective.ALL_GATHER)


def group(*nodes: int, speed: float | None = 10.0, outcome: Outcome = Outcome.OK, local_rank: int = -1) -> GroupTrial:
    busbw = speed if speed is not None else Gap("it did not work")
    return GroupTrial(nodes, GroupOutcome.UNTRIED, outcome, "", busbw, local_rank)


def dead(*nodes: int, local_rank: int = -1) -> GroupTrial:
    return group(*nodes, speed=None, outcome=Outcome.HANG, local_rank=local_rank)


def search(nodes: int, bad: dict[int, Outcome], *, is_failing: bool) -> tuple[Isolated, list[IsolationRound]]:
    """Run the rounds on a simulated cluster: a node is bad by failing, or with `OK` by being slow."""
    rounds: list[IsolationRound] = []
    while True:
        match next_groups(nodes, rounds, is_failing=is_failing):
            case Isolated() as end:
                return end, rounds
            case NodeGroupRound(groups=groups, why=why):
                tried = []
                for members in groups:
                    found = [bad[node] for node in members if node in bad]
                    failed = [each for each in found if each is not Outcome.OK]
                    tried.append(dead(*members) if failed else group(*members, speed=2.0 if found else 10.0))
                rounds.append(IsolationRound(why, tuple(tried), 1.0))


def late(rank: int, factor: float = 5.0, ranks: int = 6) -> tuple[float, ...]:
    return tuple(1000.0 * (factor if each == rank else 1.0) for each in range(ranks))


def timed(*own_us: float, outcome: Outcome = Outcome.OK, name: str = "default") -> TrialResult:
    results = tuple(result(collective, size, own_us) for collective in BOTH for size in (4 * MIB, 16 * MIB))
    return trial(name, outcome, len(own_us), results=results if outcome is Outcome.OK else ())


def test_two_nodes_are_never_divided() -> None:
    assert worth_dividing(2, (DEFAULT,), (trial("default", Outcome.HANG),), is_thorough=True) is None


def test_nodes_are_divided_when_no_candidate_works_and_with_each_that_failed() -> None:
    results = (trial("default", Outcome.HANG), trial(NETIF.name, Outcome.CRASH))
    worth = worth_dividing(3, (DEFAULT, NETIF), results, is_thorough=False)
    assert worth is not None
    assert (worth.candidates, worth.is_failing) == ((DEFAULT, NETIF), True)


def test_where_another_candidate_works_nobody_is_suspected() -> None:
    results = (trial("default", Outcome.HANG), timed(*late(0, 1.0), name=NETIF.name))
    assert worth_dividing(3, (DEFAULT, NETIF), results, is_thorough=False) is None


def test_a_default_that_was_not_tried_for_want_of_time_divides_nobody() -> None:
    assert worth_dividing(3, (DEFAULT,), (trial("default", Outcome.SKIPPED),), is_thorough=False) is None


def test_a_rank_that_is_late_everywhere_makes_groups_worth_trying_and_even_ranks_do_not() -> None:
    worth = worth_dividing(3, (DEFAULT,), (timed(*late(4)),), is_thorough=False)
    assert worth is not None
    assert (worth.why, worth.is_failing) == ("rank 4 is late at every size", False)
    assert worth_dividing(3, (DEFAULT,), (timed(*late(4, 1.1)),), is_thorough=False) is None


def test_a_thorough_run_looks_for_a_slow_node_in_any_case() -> None:
    assert worth_dividing(3, (DEFAULT,), (timed(*late(4, 1.0)),), is_thorough=True) is not None


@pytest.mark.parametrize("speeds", [(10.0,), (10.0, 9.0), (10.0, 8.0, 9.0, 7.6), (10.0, 10.1, 9.9, 10.0, 7.6)])
def test_figures_within_a_quarter_of_each_other_are_not_slow(speeds: tuple[float, ...]) -> None:
    assert min(speeds) >= slow_below_gb_s(speeds)


@pytest.mark.parametrize("speeds", [(10.0, 2.0), (2.0, 2.0, 10.0, 10.0), (2.0, 10.0, 9.0)])
def test_a_fifth_of_the_others_speed_is_slow_also_of_two(speeds: tuple[float, ...]) -> None:
    assert 2.0 < slow_below_gb_s(speeds) < 9.0


@given(st.lists(st.floats(0.0, 1e6), max_size=20))
def test_the_best_group_is_never_slow(speeds: list[float]) -> None:
    assert max(speeds, default=0.0) >= slow_below_gb_s(speeds)


@pytest.mark.parametrize("nodes", [3, 4, 5, 8, 33])
@pytest.mark.parametrize("outcome", [Outcome.HANG, Outcome.OK], ids=["dead", "slow"])
def test_one_bad_node_is_named_wherever_it_stands(nodes: int, outcome: Outcome) -> None:
    for bad in range(nodes):
        end, rounds = search(nodes, {bad: outcome}, is_failing=outcome is not Outcome.OK)
        named = (end.dead, end.slow)
        assert named == (((bad,), ()) if outcome is Outcome.HANG else ((), (bad,))), (bad, end)
        assert len(rounds) <= most_rounds(nodes)


def test_a_dead_and_a_slow_node_are_told_apart() -> None:
    end, _ = search(16, {3: Outcome.CRASH, 9: Outcome.OK}, is_failing=True)
    assert (end.dead, end.slow) == ((3,), (9,))


def test_where_all_works_alike_pairs_are_enough() -> None:
    end, rounds = search(16, {}, is_failing=False)
    assert (end.ended_because, len(rounds)) == (FINISHED, 1)
    assert (end.dead, end.slow, end.unresolved) == ((), (), ())


def test_a_round_that_the_deadline_cut_ends_the_search_and_accuses_nobody_by_it() -> None:
    cut = IsolationRound("neighbours", (group(0, 1, speed=None, outcome=Outcome.SKIPPED), group(2, 3)), 1.0)
    end = next_groups(4, [cut], is_failing=True)
    assert isinstance(end, Isolated)
    assert "deadline" in end.ended_because
    assert (end.dead, end.slow) == ((), ())


def test_settings_with_which_no_group_works_are_told_from_a_bad_node() -> None:
    assert nobody_works([IsolationRound("", (dead(0, 1), dead(2, 3)), 1.0)])
    assert not nobody_works([IsolationRound("", (dead(0, 1), group(2, 3)), 1.0)])


def test_ranks_of_a_bad_node_meet_those_of_a_good_one_all_at_once() -> None:
    end, rounds = search(4, {2: Outcome.HANG}, is_failing=True)
    singles = rank_by_rank(end, rounds, (8, 8, 8, 4))
    assert [local for _, _, local in singles] == list(range(8))
    assert {(bad, good) for bad, good, _ in singles} == {(2, 0)}
    assert rank_by_rank(end, rounds, (1, 1, 1, 1)) == (), "one rank is the whole node"


def test_one_rank_that_fails_alone_is_seen_beside_its_siblings() -> None:
    singles = [dead(2, 0, local_rank=0), group(2, 0, local_rank=1, speed=3.0), group(2, 0, local_rank=2, speed=9.0)]
    assert [each.observed for each in judge_ranks(singles, dead=(2,))] == [
        GroupOutcome.DEAD,
        GroupOutcome.OK,
        GroupOutcome.OK,
    ]
    assert judge_ranks(singles)[1].observed is GroupOutcome.SLOW


def test_what_is_not_finished_accuses_nobody() -> None:
    _, rounds = search(4, {2: Outcome.HANG}, is_failing=True)
    record = isolation_of(WORTH, "default", rounds[:1], (), None)
    assert isinstance(record, Isolation)
    assert (record.dead, record.slow, record.ended_because) == ((), (), "the rounds were not finished")
    assert judged(rounds[:1])[0].groups[0].observed is GroupOutcome.OK
