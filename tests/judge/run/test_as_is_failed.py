from __future__ import annotations

from preflight.judge.run.trial_as_is_failed import as_is_failed
from preflight.model.finding import Blame, Severity
from preflight.model.trial import AS_IS, Outcome
from tests.judge.findings import found, only
from tests.node_facts import case, trial


def test_inherited_variables_that_fail_where_the_defaults_work_are_a_warning() -> None:
    finding = only(found(as_is_failed, case(trial(), trial(AS_IS, Outcome.HANG))))
    assert (finding.severity, finding.blame) == (Severity.WARN, Blame.CONFIGURATION)


def test_inherited_variables_are_not_accused_where_the_defaults_fail_too() -> None:
    assert found(as_is_failed, case(trial(outcome=Outcome.HANG), trial(AS_IS, Outcome.HANG))) == ()


def test_inherited_variables_that_work_are_fine() -> None:
    assert found(as_is_failed, case(trial(), trial(AS_IS))) == ()
