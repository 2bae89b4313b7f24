"""The interface that every node gets: the fastest set that reaches everybody."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.model.gap import Gap
from preflight.model.network_survey import NetifSet, NodeOffers, PathEnd, PathResult
from preflight.search.nodes.interface_choice import choose, judge_sets, plan_paths, results_of
from tests.search.ways import between, ends, nodes, offer

NONE = Gap("not measured")
ENDS = st.sampled_from(list(PathEnd))


def a_set(name: str, gb_s: float | Gap, **overrides: object) -> NetifSet:
    made = NetifSet(name, ((0, name), (1, name)), "", 10_000, True, 50.0, gb_s)
    return replace(made, **overrides)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.integers(2, 24), st.data())
def test_what_is_chosen_reached_everybody_in_both_directions(count: int, data: st.DataObject) -> None:
    listed = nodes(count, "eth0", "eth1")
    bad = data.draw(
        st.dictionaries(st.tuples(st.integers(0, count), st.sampled_from(["eth0", "eth1"])), ENDS, max_size=3)
    )
    results = ends(lambda r: bad.get((r.from_node, r.netif), PathEnd.OK), listed)
    chosen = choose(judge_sets(listed, {}, results))
    if chosen is None:
        assert {name for (_, name), end in bad.items() if end is not PathEnd.OK} == {"eth0", "eth1"}
        return
    mine = dict(chosen.netifs)
    within = [r for r in results if mine[r.from_node] == r.netif and mine[r.to_node] == r.to_netif]
    assert {r.from_node for r in within} == {r.to_node for r in within} == set(range(count))
    assert all(r.end is PathEnd.OK for r in within)


def test_a_node_that_reports_nothing_proves_nothing() -> None:
    listed = nodes(2, "eth0")
    planned = plan_paths(listed, {}, "x")
    answers = {0: [PathResult(0, "eth0", 1, "eth0", PathEnd.OK, "", 50.0, 1.0)]}
    results = results_of(planned, answers)
    assert [r.end for r in results] == [PathEnd.OK, PathEnd.UNTRIED]
    assert choose(judge_sets(listed, {}, results)) is None


def test_a_set_that_lacks_a_node_is_no_choice() -> None:
    listed = [*nodes(2, "eth0", "ib0"), NodeOffers(2, "n2", (offer("eth0", "10.0.0.3", prefix_bits=16),))]
    assert {name for each in between(listed, lambda _: PathEnd.OK).sets for _, name in each.netifs} == {"eth0"}


def test_the_problem_names_the_first_pair_that_fails_and_how() -> None:
    found = between(nodes(3, "eth0"), lambda r: PathEnd.DROPPED if r.to_node == 2 else PathEnd.OK)
    assert found.chosen == ""
    assert found.sets[0].problem == "n0 eth0 to n2 eth0 gets no answer (and 1 more)"


def test_throughput_decides_then_the_link_then_the_round_trip_then_what_it_is() -> None:
    assert choose([a_set("a", 1.0), a_set("b", 3.0)]) == a_set("b", 3.0)
    fast = a_set("b", 0.95, speed_mbit_s=100_000)
    assert choose([a_set("a", 1.0), fast]) == fast, "a moment's 5% tell nothing; the link does"
    near = a_set("b", 1.0, rtt_us=20.0)
    assert choose([a_set("a", 1.0), near]) == near
    assert choose([a_set("a", 1.0, is_physical=False), a_set("b", 1.0)]) == a_set("b", 1.0)
    assert choose([a_set("a", 1.0, problem="x"), a_set("b", 0.1)]) == a_set("b", 0.1)
    assert choose([]) is None


@given(st.lists(st.tuples(st.floats(0.01, 50), st.floats(1, 1e5), st.booleans()), min_size=1, max_size=6))
def test_nothing_chosen_is_much_slower_than_the_fastest(drawn: list[tuple[float, float, bool]]) -> None:
    sets = [a_set(str(i), g, rtt_us=r, is_physical=p) for i, (g, r, p) in enumerate(drawn)]
    chosen = choose(sets)
    assert chosen is not None
    assert isinstance(chosen.gb_s, float)
    assert chosen.gb_s >= 0.75 * max(g for g, _, _ in drawn)


def test_sets_without_a_measurement_are_still_chosen_by_the_rest() -> None:
    unmeasured = a_set("a", NONE, rtt_us=NONE, speed_mbit_s=NONE)
    assert choose([unmeasured]) == unmeasured
    assert choose([unmeasured, a_set("b", 0.5)]) == a_set("b", 0.5)
    unknown_link = a_set("a", 0.5, speed_mbit_s=NONE)
    assert choose([unknown_link, a_set("b", 0.5, speed_mbit_s=1)]).name == "b"  # type: ignore[union-attr]
