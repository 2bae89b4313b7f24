"""What a checkpoint and a message weigh."""

from __future__ import annotations

import pytest

from preflight.model.job import Dtype, Job, Optimizer, ParamCount, Save, Strategy
from preflight.timeout.checkpoint_size import checkpoint_bytes, gathered_bytes, message_bytes, weight_bytes

SEVEN = ParamCount(7 * 10**9, 7 * 10**9)
GB = 10**9


@pytest.mark.parametrize(("dtype", "optimizer", "size_gb"), [
    (Dtype.BF16, Optimizer.ADAMW, 98), (Dtype.FP32, Optimizer.ADAMW, 84), (Dtype.FP16, Optimizer.ADAMW_8BIT, 56),
    (Dtype.FP32, Optimizer.SGD, 28), (Dtype.BF16, Optimizer.MOMENTUM, 70), (Dtype.BF16, Optimizer.ADAFACTOR, 42),
])  # fmt: skip
def test_a_checkpoint_to_resume_from_holds_weights_master_copy_and_moments(
    dtype: Dtype, optimizer: Optimizer, size_gb: int
) -> None:
    assert checkpoint_bytes(Job(dtype=dtype, optimizer=optimizer), SEVEN) == size_gb * GB


def test_of_lora_only_what_is_trained_is_saved() -> None:
    assert checkpoint_bytes(Job(lora_share=0.01), SEVEN) == 0.98 * GB
    assert weight_bytes(Job(lora_share=0.01), SEVEN) == 14 * GB


@pytest.mark.parametrize(("strategy", "gathered_gb"), [
    (Strategy.DDP, 0), (Strategy.ZERO1, 84), (Strategy.ZERO2, 84), (Strategy.ZERO3, 98), (Strategy.FSDP, 98),
])  # fmt: skip
def test_what_is_divided_has_to_be_gathered_for_a_full_save_and_for_no_other(
    strategy: Strategy, gathered_gb: int
) -> None:
    assert gathered_bytes(Job(strategy=strategy), SEVEN) == gathered_gb * GB
    assert gathered_bytes(Job(strategy=strategy, save=Save.SHARDED), SEVEN) == 0


def test_messages_are_buckets_under_ddp_and_zero_and_units_under_fsdp() -> None:
    sizes = {strategy: message_bytes(Job(strategy=strategy), SEVEN) for strategy in Strategy}
    assert sizes[Strategy.DDP] == 25 << 20
    assert sizes[Strategy.FSDP] == 14 * GB // 8
    assert sizes[Strategy.ZERO3] == GB
