"""What became of a copy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import UnreadableFact
from preflight.model.device_job import DeviceJob, JobKind
from preflight.model.gpu_test import Arrived, CopyBy, Direction
from preflight.trial.rank.gpu_test_child import devices_of
from preflight.trial.rank.gpu_test_cuda import SENTINEL, factors, pattern
from preflight.trial.rank.gpu_tests import arrived, check_pair_data, time_pair
from tests.simgpu import simgpu
from tests.trial.rank.test_children import assignment

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("wrong", "untouched", "expected"),
    [(0, 0, Arrived.RIGHT), (5, 5, Arrived.NEVER_WRITTEN), (5, 4, Arrived.SCRAMBLED), (1, 0, Arrived.SCRAMBLED)],
)
def test_never_written_scrambled_and_right_are_told_apart(wrong: int, untouched: int, expected: Arrived) -> None:
    assert arrived(wrong, untouched) is expected


@given(st.integers(1, 5000), st.integers(0, 10_000))
def test_no_pattern_holds_the_sentinel_or_a_negative_number(count: int, salt: int) -> None:
    numbers = pattern(count, salt, CPU)
    assert numbers.dtype is torch.int32
    assert int(numbers.min()) >= 0
    assert not bool((numbers == SENTINEL).any())


@given(st.integers(1, 40), st.integers(1, 40))
def test_another_copys_pattern_looks_wrong_nearly_everywhere(salt: int, other: int) -> None:
    if salt != other:
        same = int((pattern(4096, salt, CPU) == pattern(4096, other, CPU)).sum())
        assert same < 41


def test_every_sum_of_products_of_factors_is_exact_in_float32() -> None:
    rows = factors(torch.arange(8192, dtype=torch.int64), 17)
    assert int(rows.abs().max()) == 31
    assert 31 * 31 * 8192 < 2**24
    assert len(set(rows.tolist())) == 63


def reports(rules: str, run: Any, kind: JobKind, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setenv("SIMGPU", rules)
    told: list[dict[str, Any]] = []
    run(simgpu.DEVICES, DeviceJob(kind, (0, 1), (4096, 65536), 0.01), told.append)
    return told


def test_each_copy_is_reported_before_and_after_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    told = reports("", check_pair_data, JobKind.PAIR_DATA, monkeypatch)
    assert told[0] == {"cuda": True}
    assert [event["stage"] for event in told if "stage" in event] == [f"copy {n}/12" for n in range(1, 13)]
    copied = [event["copied"] for event in told if "copied" in event]
    assert {(c["by"], c["direction"], c["size_bytes"]) for c in copied} == {
        (by.value, way.value, size) for by in CopyBy for way in Direction for size in (4096, 65536)
    }


def test_a_fault_of_kernels_alone_leaves_the_copy_engines_data_right(monkeypatch: pytest.MonkeyPatch) -> None:
    told = reports("lost:by=sm", check_pair_data, JobKind.PAIR_DATA, monkeypatch)
    by = {event["copied"]["by"]: event["copied"]["arrived"] for event in told if "copied" in event}
    assert by == {"copy_engine": "right", "sm": "never_written"}


def test_both_directions_at_once_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = [e["speed"] for e in reports("", time_pair, JobKind.PAIR_SPEED, monkeypatch) if "speed" in e]
    one, both = (next(s["gb_s"] for s in speeds if s["direction"] == way) for way in ("a_to_b", "both"))
    assert both == pytest.approx(2 * one)


def test_a_stand_in_for_nccl_without_devices_is_never_tested_on_real_ones() -> None:
    class Stand:
        SIMULATED = True

    with pytest.raises(UnreadableFact, match="brings no DEVICES"):
        devices_of(Stand(), assignment())
    assert devices_of(simgpu, assignment()) is simgpu.DEVICES
