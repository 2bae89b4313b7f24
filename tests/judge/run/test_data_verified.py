from __future__ import annotations

from dataclasses import replace

from preflight.judge.check import run_checks
from preflight.judge.run.data_verified import NO_PART, data_verified
from preflight.model.collective import Collective
from preflight.model.finding import Blame, Severity
from preflight.model.trial import UNDER_LOAD, CollectiveResult, Outcome, TrialResult
from tests.judge.findings import found, only
from tests.node_facts import MIB, case, gpu_case, result, trial


def wrong(size_bytes: int = MIB, collective: Collective = Collective.ALL_REDUCE) -> CollectiveResult:
    return result(collective, size_bytes, verified=False, wrong_elements=1)


def corrupt(*results: CollectiveResult, candidate: str = "default") -> TrialResult:
    return trial(candidate, Outcome.WRONG_DATA, results=results)


def test_verified_data_is_no_finding() -> None:
    assert found(data_verified, case()) == ()


def test_wrong_data_names_collective_size_elements_and_rank() -> None:
    finding = only(found(data_verified, case(corrupt(wrong()))))
    assert finding.severity is Severity.FAIL
    assert finding.problem == "all_reduce of 1 MiB delivered 1 wrong element on rank 1"


def test_wrong_data_at_many_sizes_is_one_finding_per_collective() -> None:
    many = corrupt(wrong(8), wrong(MIB), wrong(MIB, Collective.ALL_GATHER), result())
    first, second = found(data_verified, case(many))
    assert first.problem.endswith("; 1 other size also failed")
    assert len(first.evidence) == 2
    assert second.problem.startswith("all_gather")


def test_the_gpu_is_blamed_with_nccl_and_the_host_without() -> None:
    assert only(found(data_verified, gpu_case(corrupt(wrong())))).blame is Blame.GPU
    assert only(found(data_verified, case(corrupt(wrong())))).blame is Blame.HOST


def test_wrong_data_on_several_ranks_names_no_gpu_and_the_page_says_how_to_find_it() -> None:
    both = replace(corrupt(wrong()), culprits=(0, 1))
    assert NO_PART in only(found(data_verified, gpu_case(both))).fix
    assert NO_PART not in only(found(data_verified, gpu_case(corrupt(wrong())))).fix
    cure = trial("p2p-off", env=(("NCCL_P2P_DISABLE", "1"),))
    assert NO_PART not in only(found(data_verified, gpu_case(both, cure))).fix


def test_an_unverified_result_of_a_trial_that_calls_itself_ok_still_fails() -> None:
    assert only(found(data_verified, case(trial(results=(wrong(),))))).severity is Severity.FAIL


def test_a_trial_with_wrong_data_and_no_result_is_not_overlooked() -> None:
    problem = only(
        run_checks((data_verified,), case(trial("default", Outcome.WRONG_DATA, problem=""))).findings
    ).problem
    assert problem == "wrong data on rank 1"


def test_wrong_data_of_a_candidate_is_only_worth_a_note() -> None:
    finding = only(found(data_verified, gpu_case(trial(), corrupt(wrong(), candidate="NCCL_PROTO=LL128"))))
    assert finding.severity is Severity.INFO


def test_wrong_data_that_disappears_without_p2p_warns_and_blames_the_host() -> None:
    cure = trial("p2p-off", env=(("NCCL_P2P_DISABLE", "1"),))
    finding = only(found(data_verified, gpu_case(corrupt(wrong()), cure)))
    assert (finding.severity, finding.blame) == (Severity.WARN, Blame.HOST)
    assert "iommu=pt" in finding.fix


def test_wrong_data_of_the_default_under_load_fails_although_it_was_right_at_first() -> None:
    findings = found(data_verified, gpu_case(trial(), trial(f"{UNDER_LOAD}{3}", Outcome.WRONG_DATA)))
    assert [finding.severity for finding in findings] == [Severity.FAIL]
