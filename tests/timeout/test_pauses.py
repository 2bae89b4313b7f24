"""How long the other ranks wait while one works."""

from __future__ import annotations

import dataclasses

import pytest

from preflight.model.gap import Gap
from preflight.model.job import Job, ParamCount, Save, Strategy
from preflight.model.timeout import Part, Source
from preflight.timeout.pauses import Pause, absorbed_bytes, pauses
from tests.timeout.test_safe_timeout import FAST, NOTHING

SEVEN = ParamCount(7 * 10**9, 7 * 10**9)
DISK = dataclasses.replace(FAST, write_one_bytes_per_s=0.5e9, write_all_bytes_per_s=0.7e9, read_one_bytes_per_s=1.4e9)


def pause(job: Job, name: str = "checkpoint", measured: bool = True) -> Pause:
    return next(each for each in pauses(job, DISK if measured else NOTHING) if each.name == name)


@pytest.mark.parametrize(("save", "strategy", "value_s"), [
    (Save.FULL, Strategy.DDP, 196.0), (Save.FULL, Strategy.FSDP, 196.0 + 49.0), (Save.SHARDED, Strategy.FSDP, 140.0),
    (Save.ASYNC, Strategy.FSDP, 49.0),
])  # fmt: skip
def test_a_save_takes_its_bytes_over_the_measured_speed(save: Save, strategy: Strategy, value_s: float) -> None:
    assert pause(Job(params=SEVEN, save=save, strategy=strategy)).value_s == value_s


def test_what_was_measured_is_said_to_be_and_what_was_not_is_assumed() -> None:
    job = Job(params=SEVEN)
    assert pause(job).source is Source.MEASURED
    assert pause(job, measured=False).source is Source.ASSUMED
    assert "assumed" in pause(job, measured=False).detail


def test_a_fast_disk_is_not_faster_than_the_thread_that_serialises() -> None:
    fast = dataclasses.replace(DISK, write_one_bytes_per_s=7e9)
    assert absorbed_bytes(600, 3, fast) == 200e9
    (saving,) = (each for each in pauses(Job(params=SEVEN), fast) if each.name == "checkpoint")
    assert (saving.value_s, "one thread" in saving.detail) == (98.0, True)


def test_one_writer_s_speed_stands_in_where_all_together_were_not_measured() -> None:
    alone = dataclasses.replace(DISK, write_all_bytes_per_s=Gap("time was up"))
    saving = next(p for p in pauses(Job(params=SEVEN, save=Save.SHARDED), alone) if p.name == "checkpoint")
    assert (saving.value_s, saving.source) == (196.0, Source.MEASURED)


def test_a_given_time_of_a_checkpoint_replaces_the_estimate() -> None:
    for job in (Job(save_s=900), Job(params=SEVEN, save_s=900)):
        (saving,) = (each for each in pauses(job, DISK) if each.name == "checkpoint")
        assert (saving.value_s, saving.source, saving.parts) == (900, Source.GIVEN, (Part.TRAINING,))


def test_weights_are_read_at_the_start_only_and_a_save_comes_in_training_only() -> None:
    job = Job(params=SEVEN, preprocess_s=60, eval_s=60, compile_s=60)
    parts = {each.name: each.parts for each in pauses(job, DISK)}
    assert parts == {
        "loading the weights": (Part.INIT,),
        "checkpoint": (Part.TRAINING,),
        "preprocessing": (Part.INIT, Part.TRAINING),
        "first compilation": (Part.INIT, Part.TRAINING),
        "evaluation": (Part.TRAINING,),
    }
    assert pause(job, "loading the weights").value_s == 10.0


def test_nothing_is_said_of_saves_where_the_size_is_not_known() -> None:
    assert pauses(Job(), DISK) == ()
