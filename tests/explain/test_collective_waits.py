"""The comparison of the collectives in which ranks waited."""

from __future__ import annotations

import time
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.explain.collective_waits import CLEARLY, EVERYBODY, Wait, behind, find_overtaken
from tests.explain.logs import explain_bytes, status, watchdog

WAITS = st.builds(
    Wait,
    rank=st.sampled_from("0123"),
    group=st.sampled_from(("0", "1")),
    seq=st.integers(6, 9),
    op=st.sampled_from(("ALLREDUCE", "_ALLGATHER_BASE", "BROADCAST", "")),
    last_enqueued=st.integers(6, 9),
    last_completed=st.integers(5, 9),
)


def _proves(one: Wait, other: Wait) -> bool:
    """Return whether the other rank completed the number in which the one stands."""
    both_stand = all(wait.last_enqueued == wait.seq for wait in (one, other))
    return (
        one.op.lstrip("_").startswith(EVERYBODY)
        and other.op not in ("", one.op)
        and one.rank != other.rank
        and one.group == other.group
        and other.last_completed >= one.seq + (0 if both_stand else CLEARLY)
    )


@given(st.lists(WAITS, max_size=12))
def test_a_pair_is_found_if_and_only_if_there_is_one(waits: list[Wait]) -> None:
    pairs = [pair for pair in permutations(waits, 2) if _proves(*pair)]
    found = find_overtaken(waits)
    assert (found is not None) == bool(pairs)
    assert found is None or found in pairs


def test_ten_thousands_of_ranks_are_compared_in_seconds() -> None:
    waits = [Wait(str(rank), "0", 7, "ALLREDUCE", last_enqueued=7, last_completed=6) for rank in range(60_000)]
    start = time.process_time()
    assert find_overtaken(waits) is None
    late = Wait("60000", "0", 8, "BROADCAST", last_enqueued=8, last_completed=7)
    assert find_overtaken([*waits, late]) == (waits[0], late)
    assert time.process_time() - start < 10


def test_a_rank_that_enqueued_less_is_late_only_if_another_waits_for_what_it_lacks() -> None:
    waiting = Wait("0", "0", 77, "ALLREDUCE", last_enqueued=79, last_completed=76)
    assert behind([waiting, Wait("1", "0", last_enqueued=76, last_completed=76)]) == ("1",)
    # It has enqueued 77 too, and only runs less far ahead.
    assert behind([waiting, Wait("1", "0", 77, "ALLREDUCE", last_enqueued=77, last_completed=76)]) == ()


def test_a_rank_that_is_past_the_collective_of_another_is_not_called_late() -> None:
    """As in a public log: rank 3 enqueued less than rank 0, but completed what rank 0 waits in."""
    log = "\n".join(
        (watchdog(0, 725), status(0, 725, 732, 724), watchdog(3, 727, "BROADCAST"), status(3, 727, 730, 726))
    )
    told = explain_bytes(log.encode())
    assert (
        told.causes[0].cause == "watchdog_timeout_straggler"
        and "does not show which rank was late" in told.causes[0].verdict
    )


@pytest.mark.parametrize(("timeout_ms", "is_short"), [(1, True), (9_999, True), (10_000, False), (600_000, False)])
def test_a_timeout_of_milliseconds_is_the_cause(timeout_ms: int, is_short: bool) -> None:
    told = explain_bytes(watchdog(0, 7, timeout_ms=timeout_ms).encode())
    assert (f"only {timeout_ms:,} ms" in told.causes[0].verdict) is is_short
    assert ("datetime.timedelta" in told.causes[0].remedy) is is_short
    assert not any("paused" in note for note in told.notes)


def test_two_waits_of_one_rank_hide_no_other_rank() -> None:
    again = [Wait("0", "0", 6, "ALLREDUCE", last_enqueued=6, last_completed=6)] * 2
    early = Wait("0", "0", 6, "_ALLGATHER_BASE", last_enqueued=6, last_completed=5)
    other = Wait("1", "0", 6, "ALLREDUCE", last_enqueued=6, last_completed=6)
    assert find_overtaken([*again, early, other]) == (early, other)
