"""Counters are judged by how far they go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from preflight.model.counters import (
    KERNEL_LOG,
    Counter,
    CounterKind,
    Counts,
    OutsideEvent,
    OutsideKind,
    changes,
    events_between,
)
from preflight.model.gap import Gap


def counter(value: int | Gap, name: str = "pcie_replays", source: str = "NVML") -> Counter:
    return Counter("GPU 0", name, CounterKind.REPAIRED, value, source, 0)


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_what_was_added_comes_out(start: int, more: int) -> None:
    (change,) = changes((counter(start),), (counter(start + more),))
    assert change.grown == more


def test_a_counter_that_fell_was_reset_and_tells_nothing() -> None:
    (change,) = changes((counter(9),), (counter(2),))
    assert isinstance(change.grown, Gap)
    assert "reset" in change.grown.reason


def test_what_could_not_be_read_at_either_end_is_a_gap_with_its_reason() -> None:
    denied = Gap("denied")
    for before, after in (((counter(denied),), (counter(1),)), ((counter(1),), (counter(denied),))):
        assert changes(before, after)[0].grown == denied
    assert isinstance(changes((counter(1),), ())[0].grown, Gap)
    assert isinstance(changes((), (counter(1),))[0].grown, Gap)


def test_an_xid_that_the_kernel_log_did_not_hold_before_is_new() -> None:
    (change,) = changes((), (counter(2, "xid_79", KERNEL_LOG),))
    assert (change.before, change.grown) == (0, 2)


def test_only_a_counter_that_was_read_twice_and_grew_is_an_event() -> None:
    oom, pids, memory = OutsideKind.OOM_KILL, OutsideKind.PIDS_LIMIT, OutsideKind.MEMORY_FAILURE
    before: Counts = {oom: (2, "memory.events"), pids: (4, "pids.events"), memory: (Gap("not permitted"), KERNEL_LOG)}
    after: Counts = {oom: (5, "memory.events"), pids: (4, "pids.events"), memory: (1, KERNEL_LOG)}
    assert events_between(before, after) == (OutsideEvent(oom, 3, "memory.events"),)
    assert events_between({}, after) == ()
