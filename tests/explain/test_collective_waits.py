"""The comparison of the collectives in which ranks waited."""

from __future__ import annotations

import time
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from preflight.explain.collective_waits import CLEARLY, EVERYBODY, Wait, find_overtaken

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
