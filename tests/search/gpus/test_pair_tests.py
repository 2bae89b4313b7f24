"""Every pair of GPUs is tested once, in rounds of disjoint pairs."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from preflight.model.facts import Gap
from preflight.model.gpu import P2pStatus
from preflight.model.gpu_test import Ending
from preflight.search.gpus.gpu_tests import driver_says, one_per_pair, rounds_of_pairs
from tests.gpus import gpu_p2p
from tests.hardware import pair
from tests.node_facts import gpu_node

COUNTS = st.integers(0, 40)


@given(COUNTS)
def test_every_pair_meets_exactly_once(count: int) -> None:
    met = [each for pairs in rounds_of_pairs(count) for each in pairs]
    assert sorted(met) == list(combinations(range(count), 2))


@given(COUNTS)
def test_no_gpu_is_in_two_pairs_of_a_round(count: int) -> None:
    for pairs in rounds_of_pairs(count):
        gpus = [gpu for each in pairs for gpu in each]
        assert len(gpus) == len(set(gpus))


@given(st.integers(2, 40))
def test_there_are_as_few_rounds_as_can_be(count: int) -> None:
    rounds = rounds_of_pairs(count)
    assert len(rounds) == (count - 1 if count % 2 == 0 else count)
    assert all(len(pairs) == count // 2 for pairs in rounds)


def test_fewer_than_two_gpus_have_no_pair() -> None:
    assert rounds_of_pairs(0) == rounds_of_pairs(1) == ()


def test_the_drivers_word_is_what_is_not_ok_of_reading_and_writing() -> None:
    both = gpu_p2p(0, 1)
    no_write = gpu_p2p(0, 2, write=P2pStatus.CHIPSET_NOT_SUPPORTED)
    node = gpu_node(4, gpu_p2p=(both, no_write))
    assert driver_says(node, 1, 0) is P2pStatus.OK
    assert driver_says(node, 0, 2) is P2pStatus.CHIPSET_NOT_SUPPORTED
    assert isinstance(driver_says(node, 0, 3), Gap)
    assert driver_says(gpu_node(gpu_p2p=Gap("NVML hung")), 0, 1) == Gap("NVML hung")


def test_data_and_speed_of_a_pair_become_one_record_and_a_fault_outranks_what_could_not_tell() -> None:
    data = pair(end=Ending.WRONG, problem="lost", speeds=(), driver=Gap("not asked"))
    speed = pair(end=Ending.SKIPPED, problem="its copies don't arrive", copies=(), cuda=Gap("not reached"))
    (one,) = one_per_pair((data, speed), gpu_node(2))
    assert (one.end, one.problem, one.cuda, one.driver) == (Ending.WRONG, "lost", True, P2pStatus.OK)
    assert (one.copies, one.speeds) == (data.copies, speed.speeds)


def test_repetitions_under_load_stay_apart() -> None:
    assert [each.repetition for each in one_per_pair((pair(repetition=1), pair()), gpu_node(2))] == [0, 1]
