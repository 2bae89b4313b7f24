"""The bound of a small model beside what two real ranks on gloo took: never above it, and near."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.model.fit import Headroom, MemoryNeed, MemoryPhase, MemoryPlace
from preflight.model.job import Dtype, Job, ParamCount, Strategy
from preflight.timeout.memory import will_it_fit

TRAIN = Path(__file__).with_name("train.py")
RANKS = 2
MOST_BELOW = 0.25
ROOM = Headroom(RANKS, 1 << 40, "free", 1 << 40, "MemAvailable")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def measured(strategy: str, tmp_path: Path) -> list[dict[str, int]]:
    """Return what each rank's memory grew by; what is freed goes back at once, so that only what is held counts."""
    environ = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(TRAIN), strategy, str(tmp_path / "store"), str(rank), str(RANKS)],
            env=environ, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    try:
        return [json.loads(rank.communicate(timeout=500)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def needs(strategy: Strategy, params: int) -> dict[tuple[MemoryPlace, MemoryPhase], MemoryNeed]:
    job = Job(ParamCount(params, params), dtype=Dtype.FP32, strategy=strategy, world_size=RANKS)
    return {(need.place, need.phase): need for need in will_it_fit(job, ROOM).needs}


def assert_holds(bound_bytes: int, seen_bytes: int) -> None:
    assert bound_bytes <= seen_bytes
    assert bound_bytes >= (1 - MOST_BELOW) * seen_bytes


def test_weights_gradients_adam_states_and_buckets_of_ddp(tmp_path: Path) -> None:
    for rank in measured("ddp", tmp_path):
        need = needs(Strategy.DDP, rank["params"])[MemoryPlace.GPU, MemoryPhase.TRAINING]
        assert need.at_least_bytes <= rank["training"]  # without gradients: an optimizer may use them up as they come
        assert_holds(need.usual_bytes, rank["training"])


def test_the_parts_of_fsdp_and_the_gather_of_a_full_save_on_rank_0(tmp_path: Path) -> None:
    first, second = measured("fsdp", tmp_path)
    seen = needs(Strategy.FSDP, first["params"])
    states = seen[MemoryPlace.GPU, MemoryPhase.SAVE].at_least_bytes
    for rank in (first, second):
        assert seen[MemoryPlace.GPU, MemoryPhase.TRAINING].at_least_bytes <= rank["training"]
        assert_holds(seen[MemoryPlace.GPU, MemoryPhase.TRAINING].usual_bytes, rank["training"])
    # On the CPU the GPU's memory and the host's are one.
    assert_holds(states + seen[MemoryPlace.HOST, MemoryPhase.SAVE].at_least_bytes, first["save"])
    assert_holds(states, second["save"])
    assert (first["saved_tensors"] > 0, second["saved_tensors"]) == (True, 0)
