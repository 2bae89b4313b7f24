from __future__ import annotations

import pytest

from preflight.judge.run.trial_as_is_failed import trial_failed
from preflight.model.facts import ContainerKind
from preflight.model.finding import Blame, Severity
from preflight.model.trial import UNDER_LOAD, Outcome
from tests.judge.findings import found, only
from tests.node_facts import case, contained, failed_with, gpu_case, gpu_node, trial

FAILURES = (Outcome.HANG, Outcome.CRASH, Outcome.INIT_ERROR)


def test_a_default_that_works_is_no_finding_whatever_candidates_do() -> None:
    assert found(trial_failed, case(trial(), trial("other", Outcome.HANG))) == ()


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_default_that_fails_alone_fails_the_run_and_names_rank_and_stage(outcome: Outcome) -> None:
    finding = only(found(trial_failed, case(trial(outcome=outcome))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.HOST)
    assert "rank 1" in finding.problem
    assert "the first collective" in finding.problem


def test_the_problem_names_rank_and_stage_even_where_the_trial_left_no_text() -> None:
    assert (
        only(found(trial_failed, case(trial(outcome=Outcome.HANG, problem="")))).problem
        == "rank 1 hung in the first collective"
    )


def test_a_hang_of_which_nobody_can_be_accused_names_nobody() -> None:
    nobody = trial(outcome=Outcome.HANG, problem="", culprits=())
    assert "an unknown rank" in only(found(trial_failed, case(nobody))).problem


@pytest.mark.parametrize(
    ("name", "value", "blame"),
    [
        ("NCCL_P2P_DISABLE", "1", Blame.HOST),
        ("NCCL_P2P_LEVEL", "NVL", Blame.HOST),
        ("NCCL_NVLS_ENABLE", "0", Blame.FABRIC),
        ("NCCL_SHM_DISABLE", "1", Blame.HOST),
        ("NCCL_IB_DISABLE", "1", Blame.FABRIC),
        ("NCCL_NET", "Socket", Blame.FABRIC),
        ("NCCL_SOCKET_IFNAME", "=eth0", Blame.CONFIGURATION),
        ("NCCL_CONF_FILE", "/dev/null", Blame.CONFIGURATION),
    ],
)
def test_a_failure_that_a_candidate_cures_warns_and_blames_by_the_cure(name: str, value: str, blame: Blame) -> None:
    cure = trial("cure", env=((name, value),))
    finding = only(found(trial_failed, gpu_case(trial(outcome=Outcome.HANG), cure)))
    assert (finding.severity, finding.blame) == (Severity.WARN, blame)


def test_a_cure_that_switches_nothing_off_acquits_the_transports() -> None:
    cures = (trial("p2p", env=(("NCCL_P2P_DISABLE", "1"),)), trial("eth", env=(("NCCL_SOCKET_IFNAME", "=eth0"),)))
    assert only(found(trial_failed, gpu_case(trial(outcome=Outcome.HANG), *cures))).blame is Blame.CONFIGURATION


def test_shared_memory_switched_off_in_a_container_is_the_containers_fault() -> None:
    cure = trial("cure", env=(("NCCL_SHM_DISABLE", "1"),))
    nodes = (contained(gpu_node(), ContainerKind.KUBERNETES),)
    assert only(found(trial_failed, gpu_case(trial(outcome=Outcome.CRASH), cure, nodes=nodes))).blame is Blame.CONTAINER


def test_an_error_text_that_names_the_cause_decides_whom_to_blame() -> None:
    duplicate = failed_with("ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1")
    assert only(found(trial_failed, gpu_case(duplicate))).blame is Blame.CONFIGURATION


def test_the_rank_that_failed_is_in_the_evidence_and_those_killed_with_it_are_not() -> None:
    evidence = only(found(trial_failed, case(failed_with("Connection reset\nmore")))).evidence
    assert [e.value for e in evidence if e.what.startswith("rank")] == [
        "error in the first collective: Connection reset"
    ]


def test_a_default_that_works_at_first_and_hangs_under_load_fails_and_says_how_often() -> None:
    again = [trial(f"{UNDER_LOAD}{turn}", outcome) for turn, outcome in ((1, Outcome.OK), (2, Outcome.HANG))]
    finding = only(found(trial_failed, gpu_case(trial(), *again)))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.HOST)
    assert "under load (1 of 2 times)" in finding.problem
