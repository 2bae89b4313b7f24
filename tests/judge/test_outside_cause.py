"""A rank that somebody killed, or that a limit stopped, accuses no node; what the host itself did still does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.judge.check import all_checks, run_checks
from preflight.judge.node.memlock_nofile_pids_stack import nofile, pids
from preflight.judge.outside_cause import OWN_SIGNALS, outside_cause, signal_from_outside, traced
from preflight.judge.run.gpu import gpu_unusable
from preflight.judge.run.trial_as_is_failed import trial_failed
from preflight.model.counters import OutsideEvent, OutsideKind
from preflight.model.facts import known
from preflight.model.finding import REJECTS_A_NODE, Blame, Severity
from preflight.model.gpu_test import Ending
from preflight.model.trial import UNDER_LOAD, Outcome, RankEnd, TrialResult
from tests.hardware import hardware, with_one
from tests.judge.findings import found, only
from tests.node_facts import contained, failed_with, gpu_case, gpu_node, trial

OOM = OutsideEvent(OutsideKind.OOM_KILL, 1, "the cgroup's memory.events")
REFUSED = OutsideEvent(OutsideKind.PIDS_LIMIT, 3, "the cgroup's pids.events")
BROKEN = OutsideEvent(OutsideKind.MEMORY_FAILURE, 1, "kernel log")
WAITING = RankEnd(0, "timeout", "first", "timed out")
CURE = trial("cure", env=(("NCCL_P2P_DISABLE", "1"),))


def ended(how: str, detail: str, stage: str = "first", outcome: Outcome = Outcome.CRASH) -> TrialResult:
    return trial(outcome=outcome, ranks=(WAITING, RankEnd(1, how, stage, detail)), culprits=(1,))


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGXCPU", "SIGUSR1", "signal 40"])
def test_a_signal_that_somebody_sent_is_the_harness_and_leaves_the_job_unknown_even_beside_a_cure(name: str) -> None:
    finding = only(found(trial_failed, gpu_case(ended("signal", f"died by {name}"), CURE)))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.HARNESS)
    assert name in finding.problem and "from outside" in finding.problem


@pytest.mark.parametrize("name", sorted(OWN_SIGNALS))
def test_a_signal_that_a_process_brings_upon_itself_is_judged_as_before(name: str) -> None:
    assert signal_from_outside(f"died by {name}") == ""
    assert only(found(trial_failed, gpu_case(ended("signal", f"died by {name}")))).blame is Blame.HOST


def test_a_kill_that_the_cgroup_counts_as_its_oom_killers_is_the_containers() -> None:
    finding = only(found(trial_failed, gpu_case(ended("signal", "died by SIGKILL"), outside=(OOM,))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.CONTAINER)
    assert ("OOM kills during the run", "1") in [(each.what, each.value) for each in finding.evidence]


def test_an_oom_kill_explains_no_other_signal() -> None:
    assert only(found(trial_failed, gpu_case(ended("signal", "died by SIGSEGV"), outside=(OOM,)))).blame is Blame.HOST


SEGMENT = "torchrun ended with exit code 1: ImportError: libtorch_cpu.so: failed to map segment from shared object"
ABORTED = "torchrun died by SIGABRT: what(): std::bad_alloc"


@pytest.mark.parametrize(
    ("problem", "outside", "limits", "says"),
    [
        (
            "torchrun died by SIGKILL",
            (OOM,),
            {"cpu_s": 60},
            "ran out of memory (the cgroup's memory.events: 1 OOM kills); give",
        ),
        ("torchrun ended with exit code 1", (REFUSED,), {}, "did not allow a process or thread that it needed"),
        (SEGMENT, (), {"bytes": 400 << 20}, "`ulimit -v` allows only 400 MiB"),
        (ABORTED, (), {"bytes": 1 << 30}, "`ulimit -v unlimited`"),
        ("torchrun died by SIGKILL", (), {"cpu_s": 60}, "`ulimit -t` allows 60 s"),
        ("torchrun died by SIGXCPU", (), {"cpu_s": 60}, "`ulimit -t unlimited`"),
        ("torchrun ended: UnicodeError: label too long", (), {}, "shorten the host name"),
    ],
)
def test_a_start_that_a_limit_ended_names_the_limit_and_what_to_do(
    problem: str, outside: tuple[OutsideEvent, ...], limits: dict[str, int], says: str
) -> None:
    told = traced(problem, outside, limits)
    assert told.startswith(f"{problem}: ") and says in told


@pytest.mark.parametrize("problem", ["torchrun died by SIGSEGV", "the ranks did not report that they were ready"])
def test_what_no_limit_explains_is_told_as_it_is(problem: str) -> None:
    assert traced(problem, (OOM, BROKEN), {"bytes": 1 << 30, "cpu_s": 60}) == problem
    assert traced(SEGMENT, (), {}) == SEGMENT


@pytest.mark.parametrize("name", ["SIGBUS", "SIGKILL"])
def test_a_memory_failure_in_the_kernel_log_makes_it_the_hosts(name: str) -> None:
    finding = only(found(trial_failed, gpu_case(ended("signal", f"died by {name}"), CURE, outside=(BROKEN, OOM))))
    assert (finding.severity, finding.blame) == (Severity.FAIL, Blame.HOST)
    assert "memory failed" in finding.problem


@pytest.mark.parametrize("outcome", [Outcome.HANG, Outcome.CRASH, Outcome.INIT_ERROR])
def test_whatever_failed_while_the_pids_limit_refused_processes_is_the_containers(outcome: Outcome) -> None:
    stuck = ended("stuck", "process state S, silent for 90.0 s", stage="init", outcome=outcome)
    assert only(found(trial_failed, gpu_case(stuck, outside=(REFUSED,)))).blame is Blame.CONTAINER


@pytest.mark.parametrize(
    "detail",
    ["OSError: [Errno 24] Too many open files", "BlockingIOError: [Errno 11] Resource temporarily unavailable",
     "RuntimeError: can't start new thread", "RuntimeError: Resource temporarily unavailable"],
)  # fmt: skip
@pytest.mark.parametrize(("in_container", "blame"), [(False, Blame.HARNESS), (True, Blame.CONTAINER)])
def test_eagain_and_emfile_never_reject_a_node(detail: str, in_container: bool, blame: Blame) -> None:
    node = contained(gpu_node()) if in_container else gpu_node()
    case = gpu_case(failed_with(detail), nodes=(node,))
    assert only(found(trial_failed, case)).blame is blame
    against = [each for each in run_checks(all_checks(), case)[0] if each.severity is Severity.FAIL]
    assert against and not any(each.blame in REJECTS_A_NODE for each in against), against


def test_a_low_limit_that_stopped_nothing_is_still_the_nodes_to_raise() -> None:
    few = replace(gpu_node(), limits=replace(known(gpu_node().limits), nofile=64, nproc=10))
    for check in (nofile, pids):
        finding = only(found(check, gpu_case(nodes=(few,))))
        assert (finding.severity, finding.blame) == (Severity.WARN, Blame.HOST)


@pytest.mark.parametrize("stage", ["spawned", "store"])
@pytest.mark.parametrize("how", ["error", "stuck"])
def test_what_fails_before_the_backend_is_asked_says_nothing_of_the_node(stage: str, how: str) -> None:
    outcome = Outcome.HANG if how == "stuck" else Outcome.INIT_ERROR
    early = ended(how, "RuntimeError: flock: Operation not supported", stage, outcome)
    assert only(found(trial_failed, gpu_case(early))).blame is Blame.HARNESS
    assert only(found(trial_failed, gpu_case(ended(how, "RuntimeError: x", "device", outcome)))).blame is Blame.HOST


def test_wrong_data_and_a_trial_that_works_have_no_cause_outside() -> None:
    outside = (OOM, REFUSED, BROKEN)
    for each in (trial(), ended("signal", "died by SIGKILL", outcome=Outcome.WRONG_DATA)):
        assert outside_cause(gpu_case(each, outside=outside), each) is None


def test_a_repetition_under_load_that_somebody_killed_accuses_nobody() -> None:
    again = replace(ended("signal", "died by SIGTERM"), candidate=f"{UNDER_LOAD}1")
    assert only(found(trial_failed, gpu_case(trial(), again))).blame is Blame.HARNESS


def test_a_test_of_a_gpu_that_somebody_killed_does_not_accuse_the_gpu() -> None:
    for detail, blame in (("died by SIGKILL", Blame.HARNESS), ("died by SIGSEGV", Blame.GPU)):
        gpus = with_one(hardware().gpus, 1, end=Ending.CRASH, problem=f"at multiply float32: {detail}")
        case = gpu_case(hardware=replace(hardware(), gpus=gpus))
        assert only(found(gpu_unusable, case)).blame is blame
