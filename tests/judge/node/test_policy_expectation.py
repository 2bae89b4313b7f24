"""A node that is not what the policy names fails, and nothing is expected without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.check import Case
from preflight.judge.node.policy_expectation import is_driver, policy_expectation
from preflight.model.facts import NodeFacts
from preflight.model.policy import Expectation, Policy
from tests.facts import case, gpu_node

TODAY = "2026-11-21"


def expecting(node: NodeFacts, **expect: object) -> list[str]:
    policy = Policy("site.toml", TODAY, expect=Expectation(**expect))  # type: ignore[arg-type]
    asked: Case = replace(case(), policy=policy)
    return [f"{each.subject}: {each.problem}" for each in policy_expectation.judge(node, asked)]


def test_a_node_that_is_not_as_expected_fails_and_says_both() -> None:
    node = gpu_node(4)
    assert expecting(node, gpu_count=4) == []
    assert "4, but the policy expects 8" in expecting(node, gpu_count=8)[0]
    assert len(expecting(node, gpu_model="no such GPU")) == 4
    assert list(policy_expectation.judge(node, case())) == [], "no policy, no opinion"


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [("580.95.05", ">=580.65", True), ("570.1", ">=580", False), ("580.95.05", "580.95", False), ("5.1", "5.1", True)],
)
def test_a_driver_is_compared_by_its_numbers(version: str, wanted: str, fits: bool) -> None:
    assert is_driver(version, wanted) is fits
