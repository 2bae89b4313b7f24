"""The laws of the safe timeout, and what it says of itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.fit import ModelShape
from preflight.model.gap import Gap
from preflight.model.job import Dtype, Job, Optimizer, ParamCount, Save, Strategy
from preflight.model.timeout import Part, SafeTimeout, Source, Timings
from preflight.timeout.checkpoint_size import message_bytes
from preflight.timeout.safe_timeout import CAP_S, FLOOR_S, safe_timeout

GAP = Gap("not measured")
NOTHING = Timings(GAP, GAP, GAP, GAP, "", GAP, 0, GAP, GAP, 0, 60.0, "sockets 60 s")
FAST = Timings(2e9, 4e9, 3e9, 3e9, "/ckpt", 0.012, 1 << 30, 1.5, 0.001, 8, 60.0, "sockets 60 s")

SPEEDS = st.one_of(st.floats(1e3, 1e12), st.just(GAP))
SHORT_S = st.one_of(st.floats(0, 1e4), st.just(GAP))
PHASES_S = st.floats(0, 7 * 86400)
JOBS = st.builds(
    Job, params=st.one_of(st.none(), st.builds(ParamCount, total=st.integers(1000, 10**14), active=st.just(1000))),
    dtype=st.sampled_from(Dtype), optimizer=st.sampled_from(Optimizer), strategy=st.sampled_from(Strategy),
    save=st.sampled_from(Save), lora_share=st.one_of(st.none(), st.floats(1e-6, 1)), world_size=st.integers(1, 10**6),
    save_s=st.one_of(st.just(0.0), PHASES_S), preprocess_s=PHASES_S, eval_s=PHASES_S, compile_s=PHASES_S,
)  # fmt: skip
TIMINGS = st.builds(
    Timings, write_one_bytes_per_s=SPEEDS, write_all_bytes_per_s=SPEEDS, read_one_bytes_per_s=SPEEDS,
    read_all_bytes_per_s=SPEEDS,
    directory=st.just("/ckpt"), collective_s=SHORT_S, collective_bytes=st.integers(8, 1 << 32), connect_s=SHORT_S,
    spread_s=SHORT_S, ranks=st.integers(1, 4096), nccl_report_s=st.floats(0, 1e6), nccl_report_why=st.just(""),
)  # fmt: skip
GROWS_WITH_JOB = ("params", "lora_share", "world_size", "preprocess_s", "eval_s", "compile_s")
GROWS_WITH_TIMINGS = ("collective_s", "connect_s", "spread_s", "nccl_report_s")
FALLS_WITH_TIMINGS = (
    "write_one_bytes_per_s", "write_all_bytes_per_s", "read_one_bytes_per_s", "read_all_bytes_per_s",
    "collective_bytes", "ranks",
)  # fmt: skip
FACTORS = st.floats(1, 1e3)


def grown(value: Any, factor: float) -> Any:
    """Return an input that is larger, of its own kind."""
    if isinstance(value, ParamCount):
        return ParamCount(int(value.total * factor), value.active)
    return int(value * factor) if isinstance(value, int) else value * factor


def numbers(safe: SafeTimeout) -> tuple[float, ...]:
    return (safe.init_timeout_s, safe.pg_timeout_s, safe.sum_s)


@pytest.mark.parametrize("name", GROWS_WITH_JOB)
@given(job=JOBS, timings=TIMINGS, factor=FACTORS)
def test_it_never_falls_when_the_job_grows(name: str, job: Job, timings: Timings, factor: float) -> None:
    value = getattr(job, name)
    if value is None or (name == "world_size" and job.save is not Save.FULL):
        return  # more nodes read and write more shards at once
    more = min(1.0, value * factor) if name == "lora_share" else grown(value, factor)
    larger = dataclasses.replace(job, **{name: more})
    pairs = zip(numbers(safe_timeout(job, timings)), numbers(safe_timeout(larger, timings)), strict=True)
    assert all(small <= large for small, large in pairs)


@pytest.mark.parametrize("name", [*GROWS_WITH_TIMINGS, *FALLS_WITH_TIMINGS])
@given(job=JOBS, timings=TIMINGS, factor=FACTORS)
def test_it_never_falls_when_a_latency_rises_nor_rises_when_a_speed_does(
    name: str, job: Job, timings: Timings, factor: float
) -> None:
    value = getattr(timings, name)
    if isinstance(value, Gap):
        return
    other = dataclasses.replace(timings, **{name: grown(value, factor)})
    before, after = numbers(safe_timeout(job, timings)), numbers(safe_timeout(job, other))
    if name in FALLS_WITH_TIMINGS:
        before, after = after, before
    assert all(small <= large for small, large in zip(before, after, strict=True))


@given(job=JOBS, timings=TIMINGS)
def test_it_lies_between_floor_and_cap_in_whole_minutes_and_waits_for_nccl_s_own_error(
    job: Job, timings: Timings
) -> None:
    safe = safe_timeout(job, timings)
    for seconds in (safe.init_timeout_s, safe.pg_timeout_s):
        assert FLOOR_S.value <= safe.floor_s <= seconds <= CAP_S.value
        assert seconds % 60 == 0
        assert seconds >= min(timings.nccl_report_s, CAP_S.value)
    assert safe.init_timeout_s <= safe.pg_timeout_s, "torch has one timeout for both phases"


@given(job=JOBS, timings=TIMINGS)
def test_the_sum_is_that_of_its_terms_and_every_term_has_a_unit_and_a_reason(job: Job, timings: Timings) -> None:
    safe = safe_timeout(job, timings)
    sums = [sum(term.counts_s for term in safe.terms if term.part is part) for part in Part]
    assert safe.sum_s == max(sums)
    assert all(term.unit == "s" and term.detail and term.value >= 0 for term in safe.terms)
    assert all(term.counts_s in (0, term.factor * term.value) for term in safe.terms)
    if safe.sum_s <= CAP_S.value:
        assert safe.pg_timeout_s >= safe.sum_s


@given(job=JOBS, timings=TIMINGS)
def test_a_pause_that_is_longer_than_the_answer_is_never_called_safe(job: Job, timings: Timings) -> None:
    safe = safe_timeout(job, timings)
    assert safe.is_enough == (safe.longest_pause_s <= safe.pg_timeout_s)
    if not safe.is_enough:
        assert safe.pg_timeout_s == CAP_S.value
        is_guess = safe.longest_source is Source.ASSUMED
        assert safe.verdict.startswith("perhaps no timeout is enough") == is_guess
        assert "but preflight advises at most 3,600 s" in safe.verdict


@given(job=JOBS, timings=TIMINGS, current_s=st.just(600.0) | st.floats(1, 1e5))
def test_an_answer_that_is_not_longer_than_the_job_s_own_timeout_is_called_useless(
    job: Job, timings: Timings, current_s: float
) -> None:
    safe = safe_timeout(job, timings, current_s)
    if safe.is_enough:
        assert ("a longer timeout does not help" in safe.verdict) == (safe.pg_timeout_s <= current_s)


def test_the_fourth_report_s_1800_s_is_called_useless_for_a_fast_disk() -> None:
    safe = safe_timeout(Job(params=ParamCount(1_500_000_000, 1_500_000_000), world_size=8), FAST, 1800)
    assert (safe.pg_timeout_s, safe.is_enough) == (600, True)
    assert safe.verdict.startswith("a longer timeout does not help: the job has 1,800 s already")
    assert any("1,800 to 3,600 s" in note and "less is enough" in note for note in safe.notes)
    assert any("preflight explain" in note for note in safe.notes)


def test_a_slow_disk_asks_for_more_than_the_job_has_and_says_what_would_help() -> None:
    slow = dataclasses.replace(FAST, write_one_bytes_per_s=20e6, write_all_bytes_per_s=100e6)
    safe = safe_timeout(Job(params=ParamCount(1_500_000_000, 1_500_000_000)), slow, 1800)
    assert safe.pg_timeout_s == 3240  # 21 GB at 20 MB/s are 1050 s
    assert safe.dominated_by == "checkpoint"
    assert "too short" in safe.verdict
    assert [hint.partition(":")[0] for hint in safe.smaller[:2]] == ["--save async", "--save sharded"]
    saving = next(term for term in safe.terms if term.name == "checkpoint")
    assert (saving.source, saving.value) == (Source.MEASURED, 1050.0)


@pytest.mark.parametrize(("params", "speed", "words"), [
    (500_000_000, 2e6, "more is needed"), (5_000_000_000, 1e9, "less is enough"), (70_000_000_000, 1e9, "by hand"),
])  # fmt: skip
def test_leaving_the_usual_advice_is_said_with_the_reason(params: int, speed: float, words: str) -> None:
    timings = dataclasses.replace(FAST, write_one_bytes_per_s=speed)
    notes = safe_timeout(Job(params=ParamCount(params, params)), timings).notes
    assert any("usual advice" in note and words in note for note in notes)


def test_beyond_the_cap_it_says_why_there_is_one_and_how_much_is_still_covered() -> None:
    safe = safe_timeout(Job(preprocess_s=1800), NOTHING)
    assert (safe.pg_timeout_s, safe.is_enough) == (3600, True)
    assert "2.0 times the longest pause: preprocessing, 1,800 s (given)" in safe.verdict
    assert any("more than an hour" in note for note in safe.notes)
    assert any("before the job starts" in hint for hint in safe.smaller)


def test_a_phase_that_no_sensible_timeout_covers_is_said_to_be_moved_away() -> None:
    safe = safe_timeout(Job(eval_s=7200), NOTHING)
    assert not safe.is_enough
    assert safe.verdict.startswith("the evaluation takes 7,200 s (given), but preflight advises at most 3,600 s")
    assert "Shorten the evaluation, or let no other rank wait for it" in safe.verdict
    assert any("gloo group" in hint for hint in safe.smaller)


def test_a_network_in_which_one_collective_takes_a_tenth_of_the_timeout_is_named() -> None:
    safe = safe_timeout(Job(), dataclasses.replace(FAST, collective_s=90.0))
    assert any("repair the network" in note for note in safe.notes)


def test_retries_that_outlast_the_cap_are_named() -> None:
    safe = safe_timeout(Job(), dataclasses.replace(NOTHING, nccl_report_s=50_000.0))
    assert safe.pg_timeout_s == CAP_S.value
    assert any("NCCL retries for 50,000 s" in note for note in safe.notes)


def test_the_init_timeout_grows_with_the_ranks_that_were_not_measured() -> None:
    few, many = (safe_timeout(Job(world_size=n), FAST) for n in (8, 16384))
    assert few.init_timeout_s == 600
    assert many.init_timeout_s == 1200  # 120 + 10 x 1.5 s + 3 x 0.02 s x 16376 + 60
    more = next(term for term in many.terms if term.name == "the additional ranks")
    assert "16376 more" in more.detail


@given(job=JOBS, one=st.floats(0.2e9, 1e13), all_=st.floats(0.2e9, 1e13))
def test_fast_storage_never_gives_the_longer_timeout(job: Job, one: float, all_: float) -> None:
    fast = dataclasses.replace(
        NOTHING, write_one_bytes_per_s=one, write_all_bytes_per_s=all_, read_one_bytes_per_s=one,
        read_all_bytes_per_s=all_,
    )  # fmt: skip
    pairs = zip(numbers(safe_timeout(job, fast)), numbers(safe_timeout(job, NOTHING)), strict=True)
    assert all(small <= large for small, large in pairs)


def test_a_unit_is_the_largest_layer_or_the_vocabulary_s_ends() -> None:
    job = Job(ParamCount(405 * 10**9, 405 * 10**9), strategy=Strategy.FSDP, shape=ModelShape(16384, 126, 53248, 128256))
    assert job.params is not None
    assert message_bytes(job, job.params) == int(1.5 * 810e9 / 126)
    small = dataclasses.replace(job, params=ParamCount(10**9, 10**9))
    assert message_bytes(small, ParamCount(10**9, 10**9)) == 2 * 10**9, "no more than the whole model"
