from __future__ import annotations

import pytest

from preflight.judge.run.numa_pcie_copy import pcie_copy_slow
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Severity
from tests.hardware import hardware, host_copy, run_with, with_one
from tests.judge.findings import found, only, skips


def at(h2d: float, d2h: float = 54.0) -> dict[str, object]:
    return {"copies": (host_copy("h2d", h2d), host_copy("d2h", d2h))}


def test_copies_at_most_of_the_links_rate_give_nothing() -> None:
    assert found(pcie_copy_slow, run_with()) == ()


@pytest.mark.parametrize(("gb_s", "severity"), [(30.0, Severity.WARN), (13.0, Severity.FAIL)])
def test_a_copy_far_below_the_link_is_named_with_direction_share_and_link(gb_s: float, severity: Severity) -> None:
    finding = only(found(pcie_copy_slow, run_with(gpus=with_one(hardware().gpus, 1, **at(gb_s)))))
    assert (finding.blame, finding.severity) == (Blame.HOST, severity)
    assert f"copies from the host at {gb_s:.1f} GB/s, but its link can carry 63.0 GB/s" in finding.problem
    assert finding.evidence[1].value == "generation 5, x16"


def test_one_below_its_siblings_is_found_where_the_links_rate_is_not_known() -> None:
    finding = only(
        found(pcie_copy_slow, run_with(host_limits_gb_s=(), gpus=with_one(hardware().gpus, 2, **at(54.0, 40.0))))
    )
    assert finding.severity is Severity.WARN
    assert "to the host at 40.0 GB/s, but other GPUs reach 54.0" in finding.problem


def test_far_memory_is_not_judged_by_the_link() -> None:
    copies = (host_copy(), host_copy("d2h"), host_copy("h2d", 20.0, is_near=False, numa_node=1))
    assert found(pcie_copy_slow, run_with(gpus=with_one(hardware().gpus, 0, copies=copies))) == ()


def test_speeds_beside_another_job_are_not_judged() -> None:
    busy = Gap("GPU 0 was in use by another process")
    gpus = with_one(hardware(1).gpus, 0, copies=(host_copy(gb_s=busy),))
    assert skips(pcie_copy_slow, run_with(1, gpus=gpus, disturbed=busy.reason))[0].reason == busy.reason
