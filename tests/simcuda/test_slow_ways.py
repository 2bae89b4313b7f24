"""A way between two GPUs that is slow: no rank is accused alone.

Behind a slow way of NCCL's ring one rank may be late in all collectives. The finding then names it or a link to it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simcuda.checking import PATIENT, check, machine_of

pytestmark = [
    pytest.mark.simcuda,
    pytest.mark.usefixtures("simcuda_torch"),
    pytest.mark.timeout(900),
    pytest.mark.heavy(6),
]
ON_THE_RING = ("0>1", "2>3")  # NCCL uses these more than the others; a slow 1>0 changes nothing
MIB = 1 << 20


@pytest.mark.parametrize("mb_s", [1, 5, 20])
@pytest.mark.parametrize("way", ON_THE_RING)
def test_a_slow_way_accuses_no_rank_alone(way: str, mb_s: int, tmp_path: Path) -> None:
    machine = machine_of("a100x4", WAY_SLOW=f"{way}:{mb_s}")
    ran = check(tmp_path, machine, "--profile", "quick", "--sizes", "64K:1M:16", "--gpus", "0,1,2,3", *PATIENT)
    default = ran.trial("default")
    assert default["outcome"] == "ok", ran
    speeds = [each["busbw_gb_s"] for each in default["results"] if each["size_bytes"] == MIB]
    assert 0 < max(speeds) < 10 * mb_s / 1000, "NCCL's channels go over the slow way"
    for late in (each for each in ran.report["findings"] if each["check"] == "straggler"):
        assert late["problem"].startswith(f"rank {way[-1]} or a link to it is ")
