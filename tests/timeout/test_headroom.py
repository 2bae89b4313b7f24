from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preflight.model.facts import Gap, Limit, NodeFacts
from preflight.model.fit import Headroom
from preflight.timeout.memory import headroom_of
from tests.gpus import gpu
from tests.node_facts import GIB, gpu_node, node, system


def test_the_fullest_of_the_chosen_gpus_decides() -> None:
    gpus = tuple(gpu(i, memory_free_bytes=free * GIB) for i, free in enumerate((70, 20, 10)))
    facts = gpu_node(3, gpus=gpus)
    assert (headroom_of(facts, (), 3).gpu_free_bytes, headroom_of(facts, (), 3).gpu_source) == (
        10 * GIB,
        "free on GPU 2, the fullest",
    )
    assert (headroom_of(facts, (1,), 1).gpu_free_bytes, headroom_of(facts, (1,), 1).gpu_source) == (
        20 * GIB,
        "free on GPU 1",
    )


def test_a_gpu_that_does_not_tell_makes_the_room_unknown() -> None:
    gpus = (gpu(0), gpu(1, memory_free_bytes=Gap("Unknown Error")))
    assert headroom_of(gpu_node(2, gpus=gpus), (), 2).gpu_free_bytes == Gap("Unknown Error")


def test_a_node_without_gpus_has_no_room_on_them() -> None:
    assert isinstance(headroom_of(node(gpus=()), (), 1).gpu_free_bytes, Gap)


def test_the_cgroups_limit_counts_where_it_is_the_smaller_one() -> None:
    free = replace(system(), memory_available_bytes=250 * GIB, cgroup_memory_limit_bytes=Limit.UNLIMITED)
    assert headroom_of(node(system=free), (), 1).host_bytes == 250 * GIB
    limited = headroom_of(node(system=replace(free, cgroup_memory_limit_bytes=8 * GIB)), (), 1)
    assert (limited.host_bytes, limited.host_source) == (8 * GIB, "the cgroup's limit")
    assert headroom_of(node(system=replace(free, cgroup_memory_limit_bytes=999 * GIB)), (), 1).host_bytes == 250 * GIB


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.from_type(NodeFacts), st.lists(st.integers(0, 9), max_size=3).map(tuple))
def test_any_facts_give_a_room(facts: NodeFacts, gpus: tuple[int, ...]) -> None:
    assert isinstance(headroom_of(facts, gpus, 1), Headroom)
