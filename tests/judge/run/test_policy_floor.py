"""A floor is missed or held by the default settings; without a figure nothing is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.errors import UnreadableFact
from preflight.judge.run.baseline_missed_policy_floor import policy_floor
from preflight.model.finding import Finding, Severity
from preflight.model.policy import Floor, Policy
from tests.node_facts import case
from tests.reports import trial_result

TODAY = "2026-11-21"


def floored(floor_gb_s: float, size_bytes: int) -> list[Finding]:
    trial = trial_result()
    floor = Floor(trial.results[0].collective, size_bytes, floor_gb_s)
    asked = replace(case(), trials=(trial,), policy=Policy("site.toml", TODAY, floors=(floor,)))
    return list(policy_floor.judge(asked))


def test_a_missed_floor_fails_and_one_without_a_figure_is_a_missing_fact() -> None:
    size = trial_result().results[0].size_bytes
    assert floored(1e-6, size) == []
    assert floored(1e5, size)[0].severity is Severity.FAIL
    with pytest.raises(UnreadableFact, match="did not measure"):
        floored(1.0, size + 1)
