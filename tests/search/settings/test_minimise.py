"""The law of the search: whatever few settings cure a machine, exactly those are found, in few trials."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.trial import AS_IS, DEFAULT, Candidate, Outcome, RankEnd, Scope, Setting, TrialResult
from preflight.search.settings.candidate_plan import conservative_settings
from preflight.search.settings.candidates import DEFAULT_CANDIDATE
from preflight.search.settings.duel import is_sound
from preflight.search.settings.minimise import CORNER, env_of, find_cure, sign_of
from preflight.search.settings.node_view import view_of
from preflight.search.settings.steps import Known
from preflight.search.settings.suspicion import by_suspicion, suspected_families
from tests.node_facts import LO, gpu_node, netif, trial
from tests.search.searching import search, searched
from tests.simnccl.interpreter import interpret
from tests.simnccl.simnccl import parse
from tests.topology import pcie_node, port, roce_port

RDMA = (port("mlx5_0"), port("mlx5_1"))
MIXED = (port("mlx5_0"), roce_port("mlx5_2"))
TWO_NETS = (LO, netif("eth0"), netif("eth1", gateways=(), index=3))
MACHINES = (
    gpu_node(8, hca_ports=RDMA),
    gpu_node(4, netifs=TWO_NETS, hca_ports=MIXED),
    pcie_node(("PIX", "NODE"), 4, netifs=TWO_NETS),
    pcie_node(("NV4", "SYS"), 4, hca_ports=RDMA),
)


def settings_of(node_index: int) -> tuple[Setting, ...]:
    return conservative_settings(view_of(MACHINES[node_index], ()))[0]


def most_trials(settings: Sequence[Setting], needed: int, suspects: Collection[str] = ()) -> int:
    """Return how many trials a search may take: a split by halves and a try with no more for each that is needed.

    Where some settings are suspected, one more: all others are given up at once, whatever the halves are.
    """
    corners = max(1, sum(each.choice == "netif" for each in settings))
    other_ports = max(0, sum(each.choice == "hca" for each in settings) - 1)
    parted = len({bool({*each.families} & {*suspects}) for each in settings}) - 1
    return 1 + corners + parted + needed * (1 + math.ceil(math.log2(len(settings)))) + other_ports


def condition(setting: Setting) -> str:
    return "&".join(f"{name}={value}" for name, value in setting.env)


FAULTS = st.sampled_from(["hang", "crash:stage=first", "corrupt", "hang:stage=timed,rank=1", "stop:rank=0"])


def spared(fault: str, setting: Setting) -> str:
    return f"{fault}{',' if ':' in fault else ':'}unless={condition(setting)}"


@st.composite
def curable(draw: st.DrawFn) -> tuple[tuple[Setting, ...], tuple[Setting, ...], str]:
    """Draw a machine's settings, one to three of them that don't exclude each other, and faults that these cure."""
    settings = settings_of(draw(st.integers(0, len(MACHINES) - 1)))
    # The second set of ports is tried in the place of no RDMA only: a test of its own below.
    second = [each for each in settings if each.choice == "hca"][1:]
    cures = draw(
        st.lists(st.sampled_from([s for s in settings if s not in second]), min_size=1, max_size=3, unique=True)
    )
    by_choice: dict[str, Setting] = {each.choice or each.name: each for each in cures}
    chosen = tuple(by_choice.values())
    if draw(st.booleans()):  # one rule that all of them together cure
        joined = "&".join(condition(each) for each in chosen)
        return settings, chosen, f"{draw(FAULTS).partition(':')[0]}:unless={joined}"
    return settings, chosen, ";".join(spared(draw(FAULTS), each) for each in chosen)


@given(curable(), st.sets(st.sampled_from(["p2p", "shm", "ib", "nvls", "socket", "cumem", "plugin"])))
def test_exactly_the_settings_that_cure_are_found_in_few_trials_whatever_is_suspected(
    drawn: tuple[tuple[Setting, ...], tuple[Setting, ...], str], suspects: set[str]
) -> None:
    settings, cures, text = drawn
    done = searched(parse(text), settings, Known(suspects=tuple(sorted(suspects))))
    assert done.best == dict(env_of(cures)) == dict(done.control.env)
    assert len(done.results) <= most_trials(settings, len(cures), suspects)


@st.composite
def with_alternatives(draw: st.DrawFn) -> tuple[tuple[Setting, ...], str]:
    """Draw faults each of which one of two settings cures."""
    settings = tuple(each for each in settings_of(draw(st.integers(0, len(MACHINES) - 1))) if not each.choice)
    pairs = draw(
        st.lists(st.lists(st.sampled_from(settings), min_size=2, max_size=2, unique=True), min_size=1, max_size=3)
    )
    # A fault that either of two settings cures: SIMNCCL says it as a fault at every value that neither has.
    return settings, ";".join("/".join(condition(each) for each in pair) for pair in pairs)


@given(with_alternatives())
def test_where_a_fault_has_two_cures_what_remains_is_minimal(drawn: tuple[tuple[Setting, ...], str]) -> None:
    settings, text = drawn
    faults = [
        [dict(part.split("=", 1) for part in either.split("&")) for either in fault.split("/")]
        for fault in text.split(";")
    ]

    def run(candidate: Candidate) -> TrialResult:
        environ = dict(candidate.env)
        cured = all(any(either.items() <= environ.items() for either in fault) for fault in faults)
        return trial(candidate.name, Outcome.OK if cured else Outcome.HANG, env=candidate.env)

    done = search(settings, run)
    assert done.best is not None
    on = [each for each in settings if dict(each.env).items() <= done.best.items()]
    for fewer in combinations(on, len(on) - 1):
        assert not is_sound(run(Candidate("fewer", env_of(fewer), "", Scope.ANYWHERE)))
    assert len(done.results) <= most_trials(settings, len(on))


@given(st.integers(0, len(MACHINES) - 1), FAULTS)
def test_what_nothing_cures_is_given_up_after_the_corner(index: int, fault: str) -> None:
    settings = settings_of(index)
    done = searched(parse(fault), settings)
    interfaces = sum(each.choice == "netif" for each in settings)
    assert done.best is None
    assert len(done.results) == 1 + max(1, interfaces)
    assert done.names[:2] == [DEFAULT, CORNER]


@given(curable(), st.randoms())
def test_the_order_of_facts_and_of_results_does_not_matter(
    drawn: tuple[tuple[Setting, ...], tuple[Setting, ...], str], shuffled: Random
) -> None:
    settings, _, text = drawn
    results = list(searched(parse(text), settings).results)
    ordered = by_suspicion(settings, suspected_families(results[0], (), ()))
    families = suspected_families(results[0], (), ())
    front = sum(not families.intersection(each.families) for each in ordered)
    before = find_cure(ordered, results, front)
    shuffled.shuffle(results)
    assert find_cure(ordered, results, front) == before
    assert before.next is None, "the search has ended"


def test_the_order_of_interfaces_gpus_and_ports_does_not_change_the_plan() -> None:
    node = MACHINES[1]
    turned = replace(
        node, netifs=node.netifs[::-1], gpus=node.gpus[::-1], hca_ports=node.hca_ports[::-1],  # type: ignore[index]
        gpu_paths=node.gpu_paths[::-1], gpu_p2p=node.gpu_p2p[::-1],  # type: ignore[index]
    )  # fmt: skip
    assert conservative_settings(view_of(turned, ()))[0] == settings_of(1)


def named(settings: Sequence[Setting], name: str) -> Setting:
    return next(each for each in settings if each.name == name)


def test_the_second_set_of_ports_takes_the_place_of_no_rdma_where_it_is_enough() -> None:
    settings = settings_of(0)
    other = [each for each in settings if each.choice == "hca"][1]
    off = named(settings, "NCCL_IB_DISABLE")

    def run(candidate: Candidate) -> TrialResult:
        environ = dict(candidate.env)
        cured = any(dict(each.env).items() <= environ.items() for each in (other, off, named(settings, "NCCL_NET")))
        return trial(candidate.name, Outcome.OK if cured else Outcome.INIT_ERROR, env=candidate.env)

    done = search(settings, run)
    assert done.names[-1] == "hca mlx5_1:1 for NCCL_IB_DISABLE"
    assert dict(done.results[-1].env) == dict(other.env)
    assert len(done.results) <= most_trials(settings, 1)


def test_the_interface_that_works_is_found_where_the_most_plausible_one_does_not() -> None:
    settings = settings_of(2)
    done = searched(parse("hang:unless=NCCL_SOCKET_IFNAME==eth1"), settings)
    assert done.names[:3] == [DEFAULT, CORNER, f"{CORNER}, netif eth1"]
    assert done.best == {"NCCL_SOCKET_IFNAME": "=eth1"}
    assert len(done.results) <= most_trials(settings, 1)


@pytest.mark.parametrize("cure", ["NCCL_P2P_DISABLE=1", "NCCL_NVLS_ENABLE=0"])
def test_a_setting_that_does_harm_itself_leads_to_no_wrong_recommendation(cure: str) -> None:
    rules = parse(f"hang:unless={cure};crash:stage=first,when=NCCL_SHM_DISABLE=1")
    done = searched(rules, settings_of(0), Known(suspects=("p2p", "nvls")))
    name, _, value = cure.partition("=")
    assert done.best == {name: value}
    assert done.names[-1] == f"only {name}"
    assert len(done.results) <= 5


def test_harm_that_looks_like_the_fault_itself_ends_without_a_recommendation() -> None:
    done = searched(parse("hang:unless=NCCL_P2P_DISABLE=1;hang:when=NCCL_SHM_DISABLE=1"), settings_of(0))
    assert done.best is None
    assert done.names == [DEFAULT, CORNER]


@given(curable(), st.integers(0, 20))
def test_when_time_runs_out_the_search_stops_with_what_worked_last(
    drawn: tuple[tuple[Setting, ...], tuple[Setting, ...], str], trials: int
) -> None:
    settings, cures, text = drawn
    rules = parse(text)
    count = 0

    def run(candidate: Candidate) -> TrialResult:
        nonlocal count
        count += 1
        if count > trials:
            return trial(candidate.name, Outcome.SKIPPED, env=candidate.env)
        return interpret(rules, candidate)

    done = search(settings, run)
    assert sum(each.outcome is Outcome.SKIPPED for each in done.results) <= 1
    assert done.best is None or done.best.items() >= dict(env_of(cures)).items()


def test_with_broken_pairs_the_settings_of_p2p_are_tried_alone_and_first() -> None:
    done = searched(parse("hang:unless=NCCL_P2P_DISABLE=1"), settings_of(0), Known(broken_pairs=((0, 1),)))
    of_p2p = [each.env for each in settings_of(0) if each.name.startswith("NCCL_P2P_")]
    assert [each.env for each in done.results] == [(), *reversed(of_p2p)]
    assert done.best == {"NCCL_P2P_DISABLE": "1"}


def test_where_no_setting_of_p2p_cures_broken_pairs_the_search_goes_on_with_all() -> None:
    settings = settings_of(0)
    done = searched(parse("hang:unless=NCCL_SHM_DISABLE=1"), settings, Known(broken_pairs=((0, 1),)))
    assert done.best == {"NCCL_SHM_DISABLE": "1"}
    assert CORNER in done.names


INHERITED = tuple(
    Setting(name, ((name, "x"),), (), Scope.ANYWHERE) for name in ("NCCL_A", "NCCL_B", "NCCL_C", "NCCL_D")
)
AS_IS_CANDIDATE = Candidate(AS_IS, (), "", Scope.ANYWHERE)


@given(st.sets(st.sampled_from(INHERITED), min_size=1))
def test_where_only_the_inherited_settings_work_those_that_are_needed_are_found(needed: set[Setting]) -> None:
    wanted = dict(env_of(tuple(needed)))

    def run(candidate: Candidate) -> TrialResult:
        works = candidate.name == AS_IS or wanted.items() <= dict(candidate.env).items()
        return trial(candidate.name, Outcome.OK if works else Outcome.HANG, env=candidate.env)

    done = search(settings_of(0), run, (DEFAULT_CANDIDATE, AS_IS_CANDIDATE), INHERITED)
    assert done.names[:2] == [DEFAULT, AS_IS]
    assert CORNER not in done.names
    working = [each for each in done.results if is_sound(each)]
    assert (dict(working[-1].env) or dict(env_of(INHERITED))) == wanted
    assert len(done.results) <= 2 + len(needed) * 3


def test_where_the_inherited_settings_fail_too_the_corner_is_tried() -> None:
    rules = parse("hang:unless=NCCL_P2P_DISABLE=1")
    done = search(
        settings_of(0), lambda candidate: interpret(rules, candidate), (DEFAULT_CANDIDATE, AS_IS_CANDIDATE), INHERITED
    )
    assert done.names[:3] == [DEFAULT, AS_IS, CORNER]
    assert done.best == {"NCCL_P2P_DISABLE": "1"}


def test_a_default_that_works_needs_no_corner() -> None:
    assert searched((), settings_of(0)).names == [DEFAULT]


def test_other_ports_are_tried_in_the_place_of_no_rdma_and_never_in_that_of_a_gid() -> None:
    gid = Setting("NCCL_IB_GID_INDEX", (("NCCL_IB_GID_INDEX", "3"),), ("ib",), Scope.ONE_NODE)
    settings = (*settings_of(1), gid)
    found = searched(parse("crash:unless=NCCL_IB_GID_INDEX=3"), settings)
    assert found.best == {"NCCL_IB_GID_INDEX": "3"}
    assert not [name for name in found.names if " for " in name]
    swapped = searched(parse("crash:unless=NCCL_IB_DISABLE=1"), settings)
    assert [name for name in swapped.names if " for " in name] == ["hca mlx5_2:1 for NCCL_IB_DISABLE"]


def test_two_failures_are_alike_only_where_the_errors_are() -> None:
    one, again, other = (
        replace(trial("x", Outcome.CRASH), ranks=(RankEnd(0, "error", "first", detail),))
        for detail in ("unhandled error at 0x1f", "unhandled error at 0x2e", "out of memory")
    )
    assert sign_of(one) == sign_of(again) != sign_of(other)
