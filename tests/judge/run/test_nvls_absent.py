"""NVLink SHARP that NCCL goes without in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.check import Case
from preflight.judge.run.transport_silent_fallback_nvls import nvls_absent
from preflight.model.facts import DriverFacts, NcclConfEntry, NodeFacts
from preflight.model.finding import Severity
from preflight.system.links import load_links
from tests.judge.findings import applies_not, found, only
from tests.node_facts import gpu_case, gpu_node, result, trial

RING = ("0>1 via P2P/CUMEM",)


def hopper(count: int = 8, *ways: str, node: NodeFacts | None = None) -> Case:
    default = trial(world_size=count, transport=ways or RING, results=(result(size_bytes=32 << 20),))
    nodes = (node or gpu_node(count),)
    return replace(gpu_case(default, nodes=nodes, gpus=tuple(range(count))), links=load_links())


def test_eight_hoppers_behind_switches_without_nvls_are_a_warning() -> None:
    finding = only(found(nvls_absent, hopper()))
    assert finding.severity is Severity.WARN
    assert "Fabric" in finding.fix or "fabricmanager" in finding.fix


def test_with_nvls_nothing_is_said() -> None:
    assert found(nvls_absent, hopper(8, *RING, "NVLS")) == ()


CONF = (NcclConfEntry("/etc/nccl.conf", "NCCL_NVLS_ENABLE", "0"),)


@pytest.mark.parametrize(
    "case",
    [
        hopper(4),
        hopper(node=gpu_node(8, driver=DriverFacts("525.60.13", "12.0"))),
        hopper(node=gpu_node(8, nccl_conf=CONF)),
    ],
    ids=["too few GPUs", "an old driver", "switched off"],
)
def test_where_it_is_not_expected_it_does_not_apply(case: Case) -> None:
    assert applies_not(nvls_absent, case)
