from __future__ import annotations

from preflight.judge.run.numa_pcie_copy import numa_copy
from preflight.model.finding import Blame, Severity
from tests.hardware import hardware, host_copy, run_with, with_one
from tests.judge.findings import found, only


def near_and_far(near: float, far: float) -> dict[str, object]:
    return {"copies": (host_copy(gb_s=near), host_copy(gb_s=far, is_near=False, numa_node=1))}


def test_near_memory_that_is_as_fast_or_faster_gives_nothing() -> None:
    for near, far in ((54.0, 54.0), (54.0, 30.0), (50.0, 54.0)):
        assert found(numa_copy, run_with(gpus=with_one(hardware().gpus, 0, **near_and_far(near, far)))) == ()


def test_far_memory_that_is_clearly_faster_shows_that_the_node_is_not_the_near_one() -> None:
    finding = only(found(numa_copy, run_with(gpus=with_one(hardware().gpus, 2, **near_and_far(30.0, 54.0)))))
    assert (finding.blame, finding.severity) == (Blame.HOST, Severity.WARN)
    assert "GPU 2" in finding.subject
    assert "(30.0 GB/s vs 54.0 GB/s)" in finding.problem


def test_with_one_numa_node_there_is_nothing_to_compare() -> None:
    assert found(numa_copy, run_with()) == ()
