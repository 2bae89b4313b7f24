from __future__ import annotations

from preflight.judge.run.gpu import gpu_unkillable
from preflight.model.finding import Blame, Severity
from preflight.model.trial import Outcome, RankEnd
from tests.judge.findings import found, only
from tests.node_facts import case, gpu_case, trial

STUCK = trial(
    outcome=Outcome.HANG, ranks=(RankEnd(0, "killed", "first", ""), RankEnd(1, "unkillable", "first", "state D"))
)


def test_a_process_that_outlives_sigkill_fails_and_blames_its_gpu() -> None:
    finding = only(found(gpu_unkillable, gpu_case(STUCK)))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.GPU)
    assert "rank 1" in finding.subject


def test_without_gpus_the_host_is_blamed() -> None:
    assert only(found(gpu_unkillable, case(STUCK))).blame is Blame.HOST


def test_processes_that_died_when_told_are_fine() -> None:
    assert found(gpu_unkillable, case(trial(outcome=Outcome.HANG))) == ()
