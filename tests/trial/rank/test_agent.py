"""torchrun's agent: who died first, and a rendezvous with nobody."""

from __future__ import annotations

import signal

from hypothesis import given
from hypothesis import strategies as st

from preflight.trial.rank.agent import first_to_die

FAILURES = st.dictionaries(st.integers(0, 63), st.tuples(st.integers(-64, 255), st.integers(0, 2**31)), min_size=1)


def test_the_first_failure_by_time_is_the_root_cause() -> None:
    assert first_to_die({0: (1, 1002), 1: (-9, 1001), 2: (1, 1003)}) == (1, -9)


def test_a_rank_that_torchrun_ended_is_not_the_cause_though_its_clock_says_so() -> None:
    assert first_to_die({0: (-signal.SIGTERM, 1000), 1: (1, 1001)}) == (1, 1)


def test_where_all_were_ended_by_sigterm_the_first_of_them_is_named() -> None:
    assert first_to_die({0: (-15, 1002), 1: (-15, 1001)}) == (1, -15)


@given(FAILURES)
def test_somebody_who_failed_is_named_with_his_own_exit_code(failures: dict[int, tuple[int, int]]) -> None:
    rank, exitcode = first_to_die(failures)
    assert failures[rank][0] == exitcode
    if any(code != -signal.SIGTERM for code, _ in failures.values()):
        assert exitcode != -signal.SIGTERM


@given(FAILURES, st.randoms(use_true_random=False))
def test_the_order_of_the_failures_matters_only_between_equals(
    failures: dict[int, tuple[int, int]], rng: object
) -> None:
    items = list(failures.items())
    rng.shuffle(items)  # type: ignore[attr-defined]
    one, other = first_to_die(failures), first_to_die(dict(items))
    assert failures[one[0]][1] == failures[other[0]][1]
