from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.cli.timeout import batch_of
from preflight.errors import UsageError
from preflight.model.codec import decode, encode
from preflight.model.fit import (
    Batch,
    Certainty,
    Fit,
    FitVerdict,
    Headroom,
    MemoryNeed,
    MemoryPhase,
    MemoryPlace,
    ModelShape,
)
from preflight.model.gap import Gap
from preflight.model.job import Dtype, Job, Optimizer, ParamCount, Save, Strategy
from preflight.timeout.memory import is_thinkable, will_it_fit

GIB = 1 << 30
LLAMA_7B = ModelShape(hidden_size=4096, layers=32, intermediate_size=11008, vocab_size=32000)
SEVEN_B = ParamCount(7 * 10**9, 7 * 10**9)
ROOMY = Headroom(8, 80 * GIB, "free on GPU 0", 1000 * GIB, "MemAvailable")
CARD_24 = replace(ROOMY, gpu_free_bytes=24 * GIB)

COUNTS = st.integers(1000, 10**13)
JOBS = st.builds(
    Job,
    params=COUNTS.map(lambda count: ParamCount(count, count)),
    dtype=st.sampled_from(Dtype),
    optimizer=st.sampled_from(Optimizer),
    strategy=st.sampled_from(Strategy),
    save=st.sampled_from(Save),
    lora_share=st.none() | st.floats(1e-6, 1.0),
    world_size=st.integers(1, 4096),
)
SIZES = st.integers(0, 10**15)
ROOMS = st.builds(
    Headroom,
    ranks=st.integers(1, 8),
    gpu_free_bytes=SIZES | st.just(Gap("no NVML")),
    gpu_source=st.just("free on GPU 0"),
    host_bytes=SIZES | st.just(Gap("no /proc")),
    host_source=st.just("MemAvailable"),
)
SHAPES = st.builds(
    ModelShape, st.integers(1, 1 << 20), st.integers(1, 10_000), st.integers(1, 1 << 24), st.integers(1, 1 << 24)
)
BATCHES = st.builds(Batch, SHAPES, st.integers(1, 1 << 24), st.integers(1, 1 << 16)).filter(is_thinkable)


def need(fit: Fit, place: MemoryPlace = MemoryPlace.GPU, phase: MemoryPhase = MemoryPhase.TRAINING) -> MemoryNeed:
    return next(each for each in fit.needs if (each.place, each.phase) == (place, phase))


def per_parameter(job: Job, phase: MemoryPhase = MemoryPhase.TRAINING) -> tuple[float, float]:
    """Return the bytes per parameter that are certain, and those that are usual."""
    seen = need(will_it_fit(replace(job, params=SEVEN_B), ROOMY), phase=phase)
    return seen.at_least_bytes / SEVEN_B.total, seen.usual_bytes / SEVEN_B.total


@pytest.mark.parametrize(
    ("job", "certain", "usual"),
    [
        (Job(dtype=Dtype.FP32), 12, 16),  # one rank: DDP has no buckets
        (Job(dtype=Dtype.FP32, world_size=2), 12, 20),
        (Job(dtype=Dtype.BF16), 6, 16),
        (Job(dtype=Dtype.BF16, world_size=8), 6, 18),
        (Job(dtype=Dtype.FP32, optimizer=Optimizer.SGD), 4, 8),
        (Job(dtype=Dtype.FP32, optimizer=Optimizer.MOMENTUM), 8, 12),
        (Job(dtype=Dtype.BF16, optimizer=Optimizer.ADAMW_8BIT), 4, 10),
        (Job(dtype=Dtype.FP32, strategy=Strategy.FSDP, world_size=8), 1.5, 2),
        (Job(dtype=Dtype.BF16, strategy=Strategy.FSDP, world_size=8), 0.75, 2),
        (Job(dtype=Dtype.BF16, strategy=Strategy.ZERO1, world_size=8), 2 + 12 / 8 + 2, 2 + 12 / 8 + 2),
        (Job(dtype=Dtype.BF16, strategy=Strategy.ZERO2, world_size=8), 2 + 12 / 8 + 2 / 8, 2 + 12 / 8 + 2 / 8),
        (Job(dtype=Dtype.BF16, strategy=Strategy.ZERO3, world_size=8), 1.75, 2),
        (Job(dtype=Dtype.BF16, lora_share=0.01), 0.99 / 2 + 0.06, 2 + 0.14),
    ],
)
def test_each_strategy_divides_what_it_divides(job: Job, certain: float, usual: float) -> None:
    assert per_parameter(job) == pytest.approx((certain, usual))


def test_what_pure_16_bit_training_does_without_does_not_refuse_it() -> None:
    fit = will_it_fit(Job(SEVEN_B, world_size=8), ROOMY)
    seen = need(fit)
    assert seen.at_least_bytes < 80 * GIB < seen.usual_bytes
    assert fit.verdict is FitVerdict.NOT_AS_USUAL
    assert [way.split(" ")[0] for way in fit.ways_out] == ["fsdp", "an", "LoRA"]


@pytest.mark.parametrize(
    ("job", "gib"),
    [
        (Job(ParamCount(6_740_000_000, 6_740_000_000), optimizer=Optimizer.SGD), 24),  # LOMO on one RTX 3090
        (Job(ParamCount(70_600_000_000, 70_600_000_000), lora_share=0.005), 48),  # QLoRA trains 65B there
    ],
)
def test_what_is_known_to_run_is_not_refused(job: Job, gib: int) -> None:
    assert will_it_fit(job, replace(ROOMY, gpu_free_bytes=gib * GIB)).verdict is FitVerdict.NOT_AS_USUAL


def test_loading_counts_each_rank_of_the_host_and_refuses_nothing() -> None:
    fit = will_it_fit(
        Job(SEVEN_B, strategy=Strategy.FSDP, save=Save.SHARDED, world_size=8), replace(ROOMY, host_bytes=GIB)
    )
    loading = need(fit, MemoryPlace.HOST, MemoryPhase.LOADING)
    assert (loading.at_least_bytes, loading.estimate_bytes) == (0, 8 * 14 * 10**9)
    assert fit.verdict is FitVerdict.MAY_FIT


def test_7b_in_ddp_cannot_fit_on_24_gib_and_the_ways_out_would() -> None:
    fit = will_it_fit(Job(SEVEN_B, world_size=8), CARD_24)
    assert fit.verdict is FitVerdict.CANNOT_FIT
    assert [way.split(" ")[0] for way in fit.ways_out] == ["fsdp", "LoRA"]


def test_the_third_seeds_case_may_fit_until_its_sequence_length_is_said() -> None:
    job = Job(SEVEN_B, strategy=Strategy.ZERO3, world_size=8, lora_share=0.05)
    silent = will_it_fit(job, CARD_24)
    assert silent.verdict is FitVerdict.MAY_FIT
    assert isinstance(need(silent).estimate_bytes, Gap)
    told = need(will_it_fit(job, CARD_24, Batch(LLAMA_7B, seq_len=8192, micro_batch=4)))
    assert told.verdict is FitVerdict.MAY_FIT, "an estimate refuses nothing"
    assert isinstance(told.estimate_bytes, int)
    assert told.estimate_bytes > 24 * GIB


def test_the_estimate_is_near_the_34_bytes_of_the_literature() -> None:
    batch = Batch(LLAMA_7B, 4096, 1)
    (blocks,) = (
        term.needed_bytes
        for term in need(will_it_fit(Job(SEVEN_B), ROOMY, batch)).terms
        if term.certainty is Certainty.WITHOUT_CHECKPOINTING
    )
    assert blocks == pytest.approx(34 * 4096 * 4096 * 32, rel=0.1)


def test_a_full_save_needs_host_memory_on_rank_0_and_a_sharded_one_none() -> None:
    full = will_it_fit(Job(SEVEN_B, strategy=Strategy.FSDP, world_size=8), replace(ROOMY, host_bytes=8 * GIB))
    assert need(full, MemoryPlace.HOST, MemoryPhase.SAVE).verdict is FitVerdict.CANNOT_FIT
    assert any("sharded" in way for way in full.ways_out)
    sharded = will_it_fit(Job(SEVEN_B, strategy=Strategy.FSDP, world_size=8, save=Save.SHARDED), ROOMY)
    assert [each.phase for each in sharded.needs if each.place is MemoryPlace.HOST] == [MemoryPhase.LOADING]


def test_an_asynchronous_save_copies_each_ranks_part_to_this_host() -> None:
    job = Job(SEVEN_B, dtype=Dtype.FP32, strategy=Strategy.FSDP, save=Save.ASYNC, world_size=16)
    seen = need(will_it_fit(job, replace(ROOMY, ranks=8)), MemoryPlace.HOST, MemoryPhase.SAVE)
    assert seen.at_least_bytes == pytest.approx(4 * SEVEN_B.total / 2)
    assert seen.usual_bytes == pytest.approx(12 * SEVEN_B.total / 2)


def test_the_gather_of_a_full_save_is_an_estimate_since_it_may_be_offloaded() -> None:
    saving = need(will_it_fit(Job(SEVEN_B, strategy=Strategy.ZERO3, world_size=8), ROOMY), phase=MemoryPhase.SAVE)
    assert isinstance(saving.estimate_bytes, int)
    assert saving.estimate_bytes - saving.usual_bytes == pytest.approx(2 * SEVEN_B.total * 7 / 8)


def test_what_is_not_known_is_never_called_a_fit() -> None:
    unknown = will_it_fit(Job(SEVEN_B), replace(ROOMY, gpu_free_bytes=Gap("no NVML")))
    assert unknown.verdict is FitVerdict.UNKNOWN
    assert will_it_fit(Job(), ROOMY) == Fit(FitVerdict.UNKNOWN, ())


@given(JOBS, ROOMS, st.none() | BATCHES)
def test_sums_rise_with_uncertainty_and_the_verdict_follows_from_the_certain_one(
    job: Job, headroom: Headroom, batch: Batch | None
) -> None:
    fit = will_it_fit(job, headroom, batch)
    for each in fit.needs:
        sums = [each.at_least_bytes, each.usual_bytes, each.estimate_bytes, each.without_checkpointing_bytes]
        known = [size for size in sums if isinstance(size, int)]
        assert known == sorted(known)
        assert all(term.needed_bytes > 0 for term in each.terms)
        assert sum(term.needed_bytes for term in each.terms) == known[-1]
        if isinstance(each.available_bytes, Gap):
            assert each.verdict is FitVerdict.UNKNOWN
        else:
            assert (each.verdict is FitVerdict.CANNOT_FIT) == (each.at_least_bytes > each.available_bytes)
            assert (each.verdict is FitVerdict.MAY_FIT) == (each.usual_bytes <= each.available_bytes)
    assert (fit.verdict is FitVerdict.CANNOT_FIT) == any(each.verdict is FitVerdict.CANNOT_FIT for each in fit.needs)
    assert fit.verdict in (FitVerdict.CANNOT_FIT, FitVerdict.NOT_AS_USUAL) or fit.ways_out == ()
    assert decode(Fit, encode(fit)) == fit


def totals(job: Job, headroom: Headroom, batch: Batch | None) -> dict[tuple[MemoryPlace, MemoryPhase, str], int]:
    names = ("at_least_bytes", "usual_bytes", "estimate_bytes", "without_checkpointing_bytes")
    return {
        (each.place, each.phase, name): size
        for each in will_it_fit(job, headroom, batch).needs
        for name in names
        if isinstance(size := getattr(each, name), int)
    }


def assert_never_less(
    more: dict[tuple[MemoryPlace, MemoryPhase, str], int], less: dict[tuple[MemoryPlace, MemoryPhase, str], int]
) -> None:
    for key, size in less.items():
        assert more.get(key, 0) >= size, key


@given(JOBS, ROOMS, COUNTS)
def test_more_parameters_never_need_less(job: Job, headroom: Headroom, count: int) -> None:
    assert job.params is not None
    larger = replace(job, params=ParamCount(job.params.total + count, job.params.total + count))
    assert_never_less(totals(larger, headroom, None), totals(job, headroom, None))


@given(JOBS, ROOMS, st.integers(1, 4096))
def test_more_ranks_never_need_more_of_what_is_certain_on_a_gpu(job: Job, headroom: Headroom, ranks: int) -> None:
    wider = replace(job, world_size=job.world_size + ranks)
    for phase in (MemoryPhase.TRAINING, MemoryPhase.SAVE):
        key = (MemoryPlace.GPU, phase, "at_least_bytes")
        assert totals(wider, headroom, None)[key] <= totals(job, headroom, None)[key]


@given(JOBS, ROOMS)
def test_what_divides_more_never_needs_more(job: Job, headroom: Headroom) -> None:
    key = (MemoryPlace.GPU, MemoryPhase.TRAINING, "at_least_bytes")
    order = (Strategy.ZERO1, Strategy.ZERO2, Strategy.ZERO3)
    sizes = [totals(replace(job, strategy=each), headroom, None)[key] for each in order]
    assert sizes == sorted(sizes, reverse=True)
    assert (
        totals(replace(job, strategy=Strategy.FSDP), headroom, None)[key]
        <= totals(replace(job, strategy=Strategy.DDP), headroom, None)[key]
    )


@given(JOBS, ROOMS)
def test_lora_never_needs_more_than_training_everything(job: Job, headroom: Headroom) -> None:
    assert_never_less(totals(replace(job, lora_share=None), headroom, None), totals(job, headroom, None))


@given(JOBS, ROOMS, BATCHES, st.sampled_from(["seq_len", "micro_batch"]), st.integers(1, 1000))
def test_longer_sequences_and_larger_batches_never_need_less(
    job: Job, headroom: Headroom, batch: Batch, name: str, more: int
) -> None:
    larger = dataclasses.replace(batch, **{name: getattr(batch, name) + more})
    assert_never_less(totals(job, headroom, larger), totals(job, headroom, batch))


@given(JOBS, ROOMS, st.none() | BATCHES, st.integers(0, 10**15))
def test_more_room_never_turns_a_fit_into_none(job: Job, headroom: Headroom, batch: Batch | None, more: int) -> None:
    wider = replace(
        headroom,
        gpu_free_bytes=headroom.gpu_free_bytes
        if isinstance(headroom.gpu_free_bytes, Gap)
        else headroom.gpu_free_bytes + more,
        host_bytes=headroom.host_bytes if isinstance(headroom.host_bytes, Gap) else headroom.host_bytes + more,
    )
    if will_it_fit(job, headroom, batch).verdict is FitVerdict.MAY_FIT:
        assert will_it_fit(job, wider, batch).verdict is FitVerdict.MAY_FIT


def test_a_batch_that_no_gpu_will_ever_hold_is_a_mistyped_number(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008, "vocab_size": 32000}')
    assert batch_of("4096", "4", str(config)) == Batch(LLAMA_7B, 4096, 4)
    with pytest.raises(UsageError, match=r"--seq-len 16777216 --micro-batch 65536: .*config\.json"):
        batch_of("16777216", "65536", str(config))
