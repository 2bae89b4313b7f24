"""The search for bad nodes accuses nobody who is good, finds who is bad, and ends within its rounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.isolation import GroupOutcome
from preflight.search.nodes.isolation import Isolated, NodeGroupRound, Shown, most_rounds, next_round

WORSE = list(GroupOutcome).index  # OK, SLOW, DEAD
BAD = st.sampled_from((GroupOutcome.SLOW, GroupOutcome.DEAD))


def search(
    node_count: int, bad: dict[int, GroupOutcome], bad_path: frozenset[int] = frozenset(), from_size: int = 2
) -> tuple[Isolated, int]:
    """Run the planner on a cluster in which a group of at least `from_size` shows its worst member."""
    history: list[Shown] = []
    while True:
        match next_round(node_count, history):
            case Isolated() as end:
                return end, len(history)
            case NodeGroupRound(groups=groups):
                members = [node for group in groups for node in group]
                assert groups and len(members) == len(set(members)) and set(members) <= set(range(node_count))
                observed = {}
                for group in groups:
                    shown = [bad[node] for node in group if node in bad and len(group) >= from_size]
                    broken = bool(bad_path) and bad_path <= set(group)
                    observed[group] = max([*shown, GroupOutcome.DEAD if broken else GroupOutcome.OK], key=WORSE)
                history.append(observed)


def accused(end: Isolated) -> dict[int, GroupOutcome]:
    return dict.fromkeys(end.dead, GroupOutcome.DEAD) | dict.fromkeys(end.slow, GroupOutcome.SLOW)


@given(data=st.data(), node_count=st.integers(2, 70))
def test_nobody_good_is_accused_and_slow_is_not_taken_for_dead(data: st.DataObject, node_count: int) -> None:
    bad = data.draw(st.dictionaries(st.integers(0, node_count - 1), BAD, max_size=node_count))
    end, rounds = search(node_count, bad)
    assert accused(end) == {node: bad[node] for node in (*end.dead, *end.slow)}
    assert rounds <= most_rounds(node_count)


@given(data=st.data(), node_count=st.integers(6, 70))
def test_a_few_bad_nodes_are_all_found(data: st.DataObject, node_count: int) -> None:
    bad = data.draw(st.dictionaries(st.integers(0, node_count - 1), BAD, max_size=min(4, node_count // 4)))
    end, _ = search(node_count, bad)
    assert {*end.dead, *end.slow} == set(bad)
    assert not end.unresolved


@given(st.integers(3, 70), st.randoms(use_true_random=False))
def test_a_bad_path_between_good_nodes_accuses_neither_of_them(node_count: int, chance: random.Random) -> None:
    path = frozenset(chance.sample(range(node_count), 2))
    end, _ = search(node_count, {}, path)
    assert (end.dead, end.slow) == ((), ())
    tried = tuple(sorted(path))
    assert end.paths in ((), (tried,)), "a path that was never tried as a pair can't be named"


@pytest.mark.parametrize("size", [4, 8, 16])
@given(data=st.data())
def test_a_node_that_fails_in_large_groups_only_is_found_by_halving(data: st.DataObject, size: int) -> None:
    bad = data.draw(st.dictionaries(st.integers(0, 63), BAD, min_size=1, max_size=2))
    end, rounds = search(64, bad, from_size=size)
    assert accused(end) == bad
    assert rounds <= most_rounds(64)


def test_of_two_nodes_neither_can_be_cleared() -> None:
    assert search(2, {1: GroupOutcome.DEAD})[0].unresolved == (0, 1)


def test_where_everybody_fails_nobody_is_accused() -> None:
    end, _ = search(8, dict.fromkeys(range(8), GroupOutcome.DEAD))
    assert (end.dead, end.slow, end.unresolved) == ((), (), tuple(range(8)))


def test_a_healthy_group_ends_with_nobody_named() -> None:
    end, _ = search(1024, {})
    assert (end.dead, end.slow, end.paths, end.unresolved) == ((), (), (), ())
    assert "all nodes together" in end.ended_because
