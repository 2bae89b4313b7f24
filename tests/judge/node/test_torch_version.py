from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.node.torch import torch_version
from preflight.model.facts import Gap, NodeFacts, SoftwareFacts, TorchFacts
from preflight.model.finding import Blame, Severity
from tests.judge.findings import found, on, only
from tests.node_facts import TORCH, case, node

MISSING = Gap("no distribution called torch")


def with_torch(torch: TorchFacts | Gap) -> NodeFacts:
    return node(software=SoftwareFacts("3.11.7", "0.1.0", torch))


@pytest.mark.parametrize("version", ["2.1.0", "2.13.0+cpu", "3.0", "2.14.0a0+git123", "unknown"])
def test_a_torch_that_was_tried_or_is_newer_is_fine(version: str) -> None:
    assert on(torch_version, with_torch(replace(TORCH, version=version))) == ()


@pytest.mark.parametrize("version", ["1.13.1", "2.0.1+cu117"])
def test_an_older_torch_is_a_warning(version: str) -> None:
    finding = only(on(torch_version, with_torch(replace(TORCH, version=version))))
    assert finding.severity is Severity.WARN
    assert version in finding.problem


def test_a_missing_torch_is_preflights_failure_and_not_the_machines() -> None:
    finding = only(on(torch_version, with_torch(MISSING)))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.HARNESS)


def test_probe_needs_no_torch() -> None:
    assert only(found(torch_version, case(nodes=(with_torch(MISSING),), world_size=0))).severity is Severity.INFO
