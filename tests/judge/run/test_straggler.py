from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.judge.run.straggler import straggler
from preflight.model.collective import Collective
from preflight.model.finding import Blame, Severity
from preflight.model.trial import AGAIN, Outcome, TrialResult
from tests.judge.findings import found, only
from tests.node_facts import GIB, MIB, case, gpu_case, result, trial

BOTH = (Collective.ALL_REDUCE, Collective.ALL_GATHER)
EVEN = (1000.0, 1000.0, 1000.0, 1000.0)


def with_times(*own_us: float, sizes: tuple[int, ...] = (4 * MIB, 16 * MIB), candidate: str = "default") -> TrialResult:
    results = tuple(result(collective, size, own_us) for collective in BOTH for size in sizes)
    return trial(candidate, world_size=len(own_us), results=results)


def test_ranks_that_are_alike_are_fine() -> None:
    assert found(straggler, case(with_times(*EVEN))) == ()


def test_a_rank_five_times_slower_fails_with_its_figures() -> None:
    finding = only(found(straggler, case(with_times(1000, 1000, 5000, 1000))))
    assert (finding.severity, finding.blame, finding.subject) == (Severity.FAIL, Blame.HOST, "rank 2")
    assert "5000 vs 1000 µs" in finding.problem


def test_a_rank_half_as_slow_again_is_a_warning() -> None:
    assert only(found(straggler, case(with_times(1000, 1500, 1000, 1000)))).severity is Severity.WARN


def test_of_two_ranks_the_other_one_is_the_measure() -> None:
    assert only(found(straggler, case(with_times(1000, 3000)))).subject == "rank 1"


def test_a_rank_that_is_late_at_some_sizes_only_is_not_accused() -> None:
    results = (result(BOTH[0], 4 * MIB, (1000, 5000)), result(BOTH[1], 4 * MIB, (1000, 1000)))
    assert found(straggler, case(trial(results=results))) == ()


def test_lateness_that_moves_from_rank_to_rank_accuses_nobody() -> None:
    results = (result(BOTH[0], 4 * MIB, (1000, 5000)), result(BOTH[1], 4 * MIB, (5000, 1000)))
    assert found(straggler, case(trial(results=results))) == ()


def test_a_rank_that_is_late_by_less_than_200_us_on_a_cpu_is_not_accused() -> None:
    assert found(straggler, case(with_times(50, 240))) == ()


def test_a_gpu_is_accused_by_what_is_late_for_a_gpu() -> None:
    finding = only(found(straggler, gpu_case(with_times(150, 400, sizes=(32 * MIB, GIB)))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.GPU)


@pytest.mark.parametrize(
    ("repeats", "severity", "is_unconfirmed"),
    [
        ((), Severity.FAIL, True),  # there was no time to look again
        (((1000, 5000),), Severity.FAIL, False),
        (((1000, 1000),), Severity.FAIL, True),
        (((5000, 1000),), Severity.FAIL, True),  # the other one
        (((1000, 1500),), Severity.WARN, False),  # late again, by less
        (((1000, 5000), (1000, 1000)), Severity.FAIL, False),
        (((1000, 5000), (1000, 1000), (1000, 1000)), Severity.FAIL, True),
    ],
)
def test_a_rank_accuses_only_when_it_is_late_again(
    repeats: tuple[tuple[float, ...], ...], severity: Severity, is_unconfirmed: bool
) -> None:
    again = (with_times(*own_us, candidate=f"{AGAIN}{turn}") for turn, own_us in enumerate(repeats, 1))
    finding = only(found(straggler, case(with_times(1000, 5000), *again)))
    assert (finding.severity, finding.is_unconfirmed) == (severity, is_unconfirmed)


def test_a_rank_that_was_half_as_slow_again_once_is_not_worth_a_word() -> None:
    again = with_times(1000, 1000, candidate=f"{AGAIN}1")
    assert found(straggler, case(with_times(1000, 1500), again)) == ()


def test_a_late_rank_is_the_gpu_that_it_had() -> None:
    late = with_times(1000, 5000, sizes=(32 * MIB, GIB))
    assert only(found(straggler, gpu_case(late, gpus=(1, 0)))).parts == ("GPU-00000000",)


def test_sizes_below_64_kib_are_never_judged() -> None:
    assert found(straggler, case(with_times(1000, 5000, sizes=(8, 32 << 10)))) == ()


def test_on_a_cpu_the_two_largest_sizes_are_judged() -> None:
    slow_when_small = [result(c, MIB, (1000, 5000)) for c in BOTH]
    even_when_large = [result(c, s, (1000, 1000)) for c in BOTH for s in (4 * MIB, 16 * MIB)]
    assert found(straggler, case(trial(results=(*slow_when_small, *even_when_large)))) == ()


def test_on_gpus_32_mib_and_the_largest_size_are_judged() -> None:
    rounded = 32 * MIB - 16
    late = [result(c, s, (1000, 5000)) for c in BOTH for s in (rounded, GIB)]
    between = [result(c, 256 * MIB, (1000, 1000)) for c in BOTH]
    assert len(only(found(straggler, gpu_case(trial(results=(*late, *between))))).evidence) == 4


def test_where_the_default_fails_the_best_candidate_is_judged() -> None:
    trials = (
        trial(outcome=Outcome.HANG),
        with_times(1000, 9000, candidate="slow"),
        with_times(500, 500, candidate="ok"),
    )
    assert found(straggler, case(*trials)) == ()


def test_without_a_working_trial_nobody_is_accused() -> None:
    assert found(straggler, case(trial(outcome=Outcome.HANG))) == ()


@given(st.lists(st.floats(1000, 1199), min_size=2, max_size=8))
def test_noise_of_less_than_a_fifth_accuses_nobody(own_us: list[float]) -> None:
    assert found(straggler, case(with_times(*own_us))) == ()


@given(st.integers(0, 7), st.floats(2.1, 50), st.integers(2, 8))
def test_whoever_is_late_everywhere_is_the_one_named(rank: int, factor: float, world_size: int) -> None:
    rank %= world_size
    own_us = [1000.0 * factor if i == rank else 1000.0 for i in range(world_size)]
    assert only(found(straggler, case(with_times(*own_us)))).subject == f"rank {rank}"
