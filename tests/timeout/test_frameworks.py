"""The line of each framework: its unit, its version, and that minutes are never shorter than the seconds."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.model.gap import Gap
from preflight.model.job import Job
from preflight.model.timeout import FrameworkLine
from preflight.timeout.frameworks import deepspeed_minutes, flight_recorder_env, framework_lines, timeout_env
from preflight.timeout.safe_timeout import safe_timeout
from tests.timeout.test_safe_timeout import FAST, NOTHING

NAMES = ["torch", "torchrun", "transformers", "accelerate", "deepspeed", "lightning", "megatron", "torchtitan"]


def lines(pg_s: int = 661, init_s: int = 600, **versions: str) -> dict[str, FrameworkLine]:
    return {each.name: each for each in framework_lines(pg_s, init_s, FAST, versions, 3)}


def test_every_framework_has_a_line_with_its_number() -> None:
    found = lines()
    assert list(found) == NAMES
    assert found["torch"].line == "dist.init_process_group(..., timeout=timedelta(seconds=661))"
    assert found["torchrun"].line == "torchrun --rdzv-backend c10d --rdzv-conf join_timeout=600 ..."
    assert found["transformers"].line == "--ddp_timeout 661"
    assert found["deepspeed"].line == "export DEEPSPEED_TIMEOUT=12"
    assert found["megatron"].line == ("--distributed-timeout-minutes 10 --distributed-timeout-seconds-after-init 661")
    assert found["torchtitan"].line == "--comm.init_timeout_seconds 600 --comm.train_timeout_seconds 661"


@given(pg_s=st.integers(1, 10**6), init_s=st.integers(1, 10**6))
def test_no_line_sets_less_than_was_said(pg_s: int, init_s: int) -> None:
    for each in framework_lines(pg_s, init_s, NOTHING, {}, 3):
        one_for_both = max(pg_s, init_s)
        wanted_s = {"torchrun": init_s, "torchtitan": pg_s, "megatron": pg_s}.get(each.name, one_for_both)
        assert each.sets_s == each.value * {"s": 1, "min": 60}[each.unit]
        assert wanted_s <= each.sets_s < wanted_s + 60
        if each.name in ("megatron", "torchtitan"):
            first = int(each.line.split()[1]) * (60 if each.name == "megatron" else 1)
            assert init_s <= first < init_s + 60
        assert str(each.value) in each.line


@given(pg_s=st.integers(1, 10**6), version=st.sampled_from(["", "0.12.6", "0.19.5", "0.19.6", "1.0"]))
def test_the_exported_deepspeed_timeout_is_never_shorter_than_the_answer_or_deepspeed_s_default(
    pg_s: int, version: str
) -> None:
    default_s = 600 if version in ("0.19.6", "1.0") else 1800
    assert 60 * deepspeed_minutes(pg_s, {"deepspeed": version}) >= max(pg_s, default_s)


@pytest.mark.parametrize(("version", "default_s"), [("2.1.2", 1800), ("2.2.0", 600), ("2.13.0+cpu", 600), ("", 600)])
def test_torch_s_default_is_that_of_its_version(version: str, default_s: int) -> None:
    assert lines(torch=version)["torch"].default_s == default_s


@pytest.mark.parametrize(("version", "name"), [
    ("2.3.1", None), ("2.4.0", "_set_pg_timeout"), ("2.13.0", "_set_pg_timeout"), ("2.14.0", "dist.set_timeout("),
])  # fmt: skip
def test_how_to_change_it_later_is_that_of_the_version(version: str, name: str | None) -> None:
    note = lines(torch=version)["torch"].note
    assert name in note if name else "later" not in note


def test_what_a_default_absorbs_is_told_at_the_measured_speed_only() -> None:
    slow = dataclasses.replace(FAST, write_one_bytes_per_s=0.1e9)
    found = {each.name: each for each in framework_lines(600, 600, slow, {}, 3)}
    assert found["torch"].absorbs_bytes == 20_000_000_000  # 600 s / 3 at 100 MB/s
    assert found["transformers"].absorbs_bytes == 60_000_000_000
    unmeasured = framework_lines(600, 600, NOTHING, {}, 3)
    assert all(isinstance(each.absorbs_bytes, Gap) for each in unmeasured)


@pytest.mark.parametrize(("version", "names"), [
    ("2.1.2", []),
    ("2.2.2", ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT"]),
    ("2.6.0", ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT"]),
    ("2.7.1", ["TORCH_NCCL_TRACE_BUFFER_SIZE"]),
    ("2.8.0", ["TORCH_FR_BUFFER_SIZE"]),
    ("2.10.0", ["TORCH_FR_BUFFER_SIZE"]),
    ("2.11.0", []),
    ("", []),
])  # fmt: skip
def test_the_flight_recorder_is_switched_on_where_this_torch_has_it_off(version: str, names: list[str]) -> None:
    assert [name for name, _ in flight_recorder_env(version)] == names


@pytest.mark.parametrize("dialect", ["nccl", "gloo"])
@pytest.mark.parametrize("torch", ["2.1.2", "2.6.0", "2.9.1", "2.13.0", ""])
def test_nothing_that_is_exported_changes_nccl_or_gloo_or_raises_the_heartbeat_timeout(
    dialect: str, torch: str
) -> None:
    names = [name for name, _ in timeout_env(safe_timeout(Job(), FAST), {"torch": torch}, dialect)]
    assert names[:3] == ["PREFLIGHT_PG_TIMEOUT_S", "PREFLIGHT_INIT_TIMEOUT_S", "DEEPSPEED_TIMEOUT"]
    assert not [name for name in names if name.startswith(("NCCL_", "GLOO_", "CUDA_")) or "HEARTBEAT" in name]
    assert dialect == "nccl" or len(names) == 3, "gloo has no flight recorder to switch on"
