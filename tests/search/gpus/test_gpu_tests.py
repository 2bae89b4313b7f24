"""What is tested on the GPUs, by profile."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.codec import decode, encode
from preflight.model.device_job import NO_DEVICES, DevicePlan, JobKind
from preflight.model.facts import Gap, NodeFacts, NumaNode, known
from preflight.model.gpu import ComputeMode
from preflight.model.profile import GpuTests, Profile
from preflight.search.gpus.gpu_tests import device_plan, host_memory, rounds_of_pairs
from tests.gpus import gpu
from tests.node_facts import gpu_node, system


def planned(count: int, profile: Profile = Profile.QUICK, burn_s: float | None = None) -> DevicePlan:
    node = gpu_node(count)
    return device_plan(profile, known(node.gpus), node, burn_s)


def kinds(plan: DevicePlan) -> list[JobKind]:
    return [job.kind for each in plan.rounds for group in each.groups for job in group.jobs]


def test_without_gpus_nothing_is_planned() -> None:
    assert device_plan(Profile.BURN, (), gpu_node(0), None) is NO_DEVICES


def test_quick_looks_at_the_data_of_every_pair_and_at_each_gpu_and_times_no_pair() -> None:
    asked = kinds(planned(8))
    assert asked.count(JobKind.PAIR_DATA) == 28
    assert asked.count(JobKind.GEMM) == asked.count(JobKind.HOST_COPY) == 8
    assert JobKind.PAIR_SPEED not in asked
    assert len(planned(8).rounds) == 7 + 1


@pytest.mark.parametrize("profile", [Profile.STANDARD, Profile.BURN])
def test_the_others_time_every_pair_one_at_a_time(profile: Profile) -> None:
    timed = [each for each in planned(4, profile).rounds if each.groups[0].jobs[0].kind is JobKind.PAIR_SPEED]
    assert len(timed) == 6
    assert all(len(each.groups) == 1 for each in timed)


@given(st.integers(1, 16), st.sampled_from(Profile))
def test_no_gpu_is_in_two_processes_of_a_round_and_copies_of_data_come_first(count: int, profile: Profile) -> None:
    plan = planned(count, profile)
    for each in (*plan.rounds, *plan.burn_rounds):
        places = [place for group in each.groups for place in group.places]
        assert len(places) == len(set(places))
    asked = kinds(plan)
    assert asked[: count * (count - 1) // 2] == [JobKind.PAIR_DATA] * (count * (count - 1) // 2)


@given(st.integers(2, 16), st.sampled_from(Profile))
def test_each_process_tests_half_of_its_gpus_pairs_and_every_pair_is_always_tested_by_the_same(
    count: int, profile: Profile
) -> None:
    plan = planned(count, profile)
    owners: dict[tuple[int, ...], set[int]] = {}
    for group in (group for each in (*plan.rounds, *plan.burn_rounds) for group in each.groups):
        owners.setdefault(group.places, set()).add(group.owner)
        assert group.owner in group.places
    assert all(len(each) == 1 for each in owners.values())
    shares = Counter(owner for places, each in owners.items() for owner in each if len(places) == 2)
    assert sum(shares.values()) == count * (count - 1) // 2
    assert max(shares.values()) - min(shares[place] for place in range(count)) <= 1


def new_contexts(plan: DevicePlan) -> list[int]:
    """Return for each round how many contexts the process makes that makes most, where processes are kept."""
    held: dict[int, set[int]] = {}
    most = []
    for each in plan.rounds:
        new = {group.owner: set(group.places) - held.get(group.owner, set()) for group in each.groups}
        most.append(max(map(len, new.values())))
        for owner, places in new.items():
            held.setdefault(owner, set()).update(places)
    return most


@given(st.integers(2, 16), st.sampled_from(Profile))
def test_a_process_makes_two_contexts_in_a_round_at_most_and_none_for_speeds(count: int, profile: Profile) -> None:
    most = new_contexts(planned(count, profile))
    assert max(most) == 2
    assert sum(most[len(rounds_of_pairs(count)) + 1 :]) == 0, "what times a pair finds the contexts of its copies"


@pytest.mark.parametrize("profile", [Profile.QUICK, Profile.STANDARD])
def test_with_8_gpus_10_contexts_are_made_one_after_another(profile: Profile) -> None:
    assert sum(new_contexts(planned(8, profile))) == 10


def test_contexts_are_given_up_where_a_gpu_lets_one_process_in_or_has_no_room_for_more_peers() -> None:
    def kept(*modes: ComputeMode | Gap, count: int = 8) -> int:
        each = [*modes, *[ComputeMode.DEFAULT] * count][:count]
        gpus = [gpu(i, compute_mode=mode) for i, mode in enumerate(each)]
        return device_plan(Profile.QUICK, gpus, gpu_node(count)).rounds_per_process

    assert kept() == kept(count=9) == kept(Gap("not told")) == 0
    assert kept(ComputeMode.DEFAULT, ComputeMode.EXCLUSIVE_PROCESS) == kept(ComputeMode.EXCLUSIVE_THREAD) == 1
    assert kept(count=10) == kept(count=16) == 8


def test_only_burn_repeats_and_for_as_long_as_it_was_told() -> None:
    assert planned(2, Profile.STANDARD).burn_rounds == ()
    assert planned(2, Profile.BURN).burn_s == 600
    assert planned(2, Profile.BURN, 120.0).burn_s == 120
    assert len(planned(4, Profile.BURN).burn_rounds) == 1 + 3


def test_a_burn_that_was_asked_to_take_hours_has_a_deadline_behind_it() -> None:
    assert Profile.BURN.effort.until_s(None) == 3600
    assert Profile.BURN.effort.until_s(7200) > 7200
    assert Profile.QUICK.effort.until_s(None) == 180


def test_a_plan_survives_its_way_to_the_ranks() -> None:
    plan = planned(3, Profile.BURN)
    assert decode(DevicePlan, encode(plan)) == plan


NEAR = NumaNode(0, (0, 1, 2, 3), 1 << 37, (10, 21, 32))
MIDDLE = NumaNode(1, (4, 5, 6, 7), 1 << 37, (21, 10, 21))
FAR = NumaNode(2, (8, 9), 1 << 37, (32, 21, 10))


def on(*nodes: NumaNode, allowed: tuple[int, ...] = tuple(range(10))) -> NodeFacts:
    return gpu_node(1, numa_nodes=nodes, system=system(cpu_affinity=allowed))


def test_host_memory_is_the_gpus_own_node_and_the_furthest_one() -> None:
    found = host_memory(gpu(0, numa_node=0), on(NEAR, MIDDLE, FAR))
    assert [(each.numa_node, each.is_near) for each in found] == [(0, True), (2, False)]


def test_only_cpus_that_this_process_may_use_count_and_nodes_without_memory_do_not() -> None:
    found = host_memory(gpu(0, numa_node=0), on(NEAR, MIDDLE, FAR, allowed=(1, 5)))
    assert [(each.numa_node, each.cpus) for each in found] == [(0, (1,)), (1, (5,))]
    empty = replace(FAR, memory_bytes=0)
    assert [each.numa_node for each in host_memory(gpu(0, numa_node=0), on(NEAR, MIDDLE, empty))] == [0, 1]


def test_a_gpu_whose_node_is_not_known_copies_from_wherever_it_runs() -> None:
    assert host_memory(gpu(0, numa_node=Gap("-1")), on(NEAR)) == ()
    assert host_memory(gpu(0), gpu_node(1, numa_nodes=Gap("no /sys"))) == ()


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (set(), set()),
        ({GpuTests.RAILS}, set()),
        ({GpuTests.PAIRS}, {JobKind.PAIR_DATA, JobKind.PAIR_SPEED}),
        ({GpuTests.GPUS}, {JobKind.GEMM, JobKind.HOST_COPY}),
    ],
)
def test_only_what_was_asked_for_is_tested_and_repeated(tests: set[GpuTests], expected: set[JobKind]) -> None:
    node = gpu_node(4)
    plan = device_plan(Profile.BURN, known(node.gpus), node, 60.0, tests)
    assert set(kinds(plan)) == expected
    repeated = {job.kind for each in plan.burn_rounds for group in each.groups for job in group.jobs}
    assert repeated == expected - {JobKind.PAIR_SPEED}
