"""Laws that every check obeys."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import preflight.judge
from preflight.judge.check import Case, Check, CheckResults, RunCheck, all_checks, run_checks
from preflight.judge.node.gpu_memory import gpu_memory
from preflight.judge.node.memlock_nofile_pids_stack import memlock
from preflight.model.facts import EnvVar, Gap, NodeFacts
from preflight.model.finding import Blame, CheckOutcome, Finding, Severity, Unseen
from preflight.model.gpu_test import Hardware
from preflight.model.trial import AS_IS, DEFAULT, Outcome, RankEnd
from tests.hardware import hardware
from tests.judge.findings import found
from tests.node_facts import case, contained, failed_with, gpu_case, gpu_node, laptop, node, trial

CHECKS = all_checks()
FACTS = {field.name for field in dataclasses.fields(NodeFacts)}
REACHES = FACTS | {field.name for field in dataclasses.fields(Case)}


WORKED = trial(world_size=8, transport=("0>1 via P2P/CUMEM", "NVLS"))


def name_of(check: Check) -> str:
    return check.name


def findings_of(run: Case) -> tuple[Finding, ...]:
    findings, skipped, _ = run_checks(CHECKS, run)
    assert [check for check in skipped if check.crashed] == []
    return findings


@pytest.mark.parametrize("facts", [node(), laptop(), contained(node())], ids=lambda facts: str(facts.host))
def test_an_ordinary_machine_gets_neither_failure_nor_warning(facts: NodeFacts) -> None:
    findings, skipped, _ = run_checks(CHECKS, case(nodes=(facts,)))
    assert [f for f in findings if f.severity is not Severity.INFO] == []
    assert skipped == ()


def test_a_healthy_gpu_server_gets_neither_failure_nor_warning() -> None:
    run = gpu_case(nodes=(gpu_node(8),), trials=(WORKED,), world_size=8)
    findings, skipped, _ = run_checks(CHECKS, run)
    assert [f for f in findings if f.severity is not Severity.INFO] == []
    assert {skip.reason for skip in skipped} == {"the GPUs were not tested"}


def test_a_healthy_gpu_server_whose_gpus_were_tested_gets_neither_failure_nor_warning() -> None:
    run = gpu_case(nodes=(gpu_node(8),), trials=(WORKED,), world_size=8, hardware=hardware(8))
    findings, skipped, _ = run_checks(CHECKS, run)
    assert [f for f in findings if f.severity is not Severity.INFO] == []
    assert skipped == ()


@pytest.mark.parametrize("facts", [node(), laptop(), gpu_node(8)], ids=lambda facts: str(facts.host))
def test_probe_judges_facts_alone(facts: NodeFacts) -> None:
    run = case(nodes=(facts,), trials=(), world_size=0, wants_gpus=facts.host == "node1")
    assert [f for f in findings_of(run) if f.severity is not Severity.INFO] == []


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_a_check_is_named_as_its_file_and_says_what_it_reads_and_cannot_see(check: Check) -> None:
    module = importlib.import_module(check.judge.__module__)
    assert getattr(module, check.name.replace("-", "_")) is check
    words, of_file = check.name.split("-"), module.__name__.rpartition(".")[2].split("_")
    is_alone = [each.name for each in CHECKS if each.judge.__module__ == module.__name__] == [check.name]
    assert words == of_file if is_alone else words[0] in of_file, "checks of one subject share a file named for each"
    promise, *why, blind_to = inspect.cleandoc(check.judge.__doc__ or "").split("\n\n")
    assert promise.lower().startswith(check.promise.split()[0].lower())
    assert why
    assert blind_to.startswith("Can't see: ")
    assert check.promise
    assert check.blind_to
    assert set(check.reads) <= REACHES


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_a_check_has_a_test_file(check: Check) -> None:
    folder = check.judge.__module__.rpartition(".")[0].replace("preflight", "tests", 1)
    assert importlib.import_module(f"{folder}.test_{check.name.replace('-', '_')}")


def test_every_name_is_given_once() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)


MODULES = [m.name for m in pkgutil.walk_packages(preflight.judge.__path__, "preflight.judge.")]


@pytest.mark.parametrize("module", MODULES)
def test_judging_imports_nothing_that_could_look_at_this_machine(module: str) -> None:
    source = inspect.getsource(importlib.import_module(module))
    assert not re.search(r"^\s*(?:import|from) (?:os|io|pathlib|time|subprocess|socket|torch)\b", source, re.MULTILINE)


RANK_ENDS = st.builds(
    RankEnd,
    st.integers(0, 3),
    st.sampled_from(["done", "timeout", "error", "signal", "stuck", "stopped", "killed", "unkillable"]),
    st.sampled_from(["init", "first", "timed 1/8"]),
    st.sampled_from(["", "Bus error", "ibv_reg_mr: Cannot allocate memory", "Too many open files\n", "\n"]),
)
TRIALS = st.lists(
    st.builds(
        trial,
        st.sampled_from([DEFAULT, AS_IS, "p2p-off"]),
        st.sampled_from(Outcome),
        world_size=st.integers(1, 4),
        ranks=st.lists(RANK_ENDS, max_size=3).map(tuple),
        env=st.sampled_from([(), (("NCCL_P2P_DISABLE", "1"),), (("GLOO_SOCKET_IFNAME", "eth0"),)]),
    ),
    max_size=3,
).map(tuple)


def some_gaps(facts: NodeFacts) -> st.SearchStrategy[NodeFacts]:
    """Return the node with gaps in any of its facts, and in any fact of a record within."""

    def within(record: Any) -> st.SearchStrategy[Any]:
        kinds = {f.name: str(f.type) for f in dataclasses.fields(record)}
        return st.fixed_dictionaries({}, optional={n: gaps() for n, kind in kinds.items() if "Gap" in kind}).map(
            lambda changes: dataclasses.replace(record, **changes)
        )

    def either(value: Any) -> st.SearchStrategy[Any]:
        if isinstance(value, tuple):
            inner = st.tuples(*(within(item) for item in value))
            return gaps() | inner
        return gaps() | (within(value) if dataclasses.is_dataclass(value) else st.just(value))

    def gaps() -> st.SearchStrategy[Gap]:
        return st.just(Gap("denied"))

    names = [f.name for f in dataclasses.fields(facts) if f.name != "host"]
    return st.fixed_dictionaries({n: either(getattr(facts, n)) for n in names}).map(
        lambda changes: dataclasses.replace(facts, **changes)
    )


def with_subjects(tested: Hardware) -> Hardware:
    """Return the tests with a subject for each counter: preflight names those itself, and never with nothing."""
    if isinstance(tested.counters, Gap):
        return tested
    named = tuple(dataclasses.replace(each, subject=f"GPU {each.subject}") for each in tested.counters)
    return dataclasses.replace(tested, counters=named)


HARDWARE = st.from_type(Hardware).map(with_subjects)


def runs(nodes: st.SearchStrategy[NodeFacts]) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        nodes=st.lists(nodes, min_size=1, max_size=2).map(tuple),
        trials=TRIALS,
        backend=st.sampled_from(["nccl", "gloo"]),
        world_size=st.integers(0, 4),
        wants_gpus=st.booleans(),
        hardware=st.none() | st.just(Gap("not tested")) | st.just(hardware()) | HARDWARE,
    )


HARMFUL = (EnvVar("NCCL_IB_DISABLE", "true"), EnvVar("NCCL_SOCKET_IFNAME", "zz"), EnvVar("GLOO_SOCKET_IFNAME", "=x"))
STARTS = (node(), contained(gpu_node(environment=HARMFUL)), gpu_node(3), laptop(environment=HARMFUL))
GAPPY = runs(st.sampled_from(STARTS).flatmap(some_gaps))
# A node always has a name.
UNHEARD_OF = runs(st.from_type(NodeFacts).map(lambda facts: dataclasses.replace(facts, host=f"node {facts.host}")))
SLOW = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@SLOW
@given(GAPPY)
def test_facts_that_could_not_be_read_never_break_a_check(run: Case) -> None:
    findings_of(run)


@SLOW
@given(UNHEARD_OF)
def test_facts_that_nobody_has_seen_never_break_a_check(run: Case) -> None:
    findings_of(run)


@SLOW
@given(GAPPY | UNHEARD_OF)
def test_every_finding_says_what_proves_it_and_what_to_do(run: Case) -> None:
    for finding in findings_of(run):
        assert finding.fix.strip()
        assert finding.problem.strip()
        assert finding.subject.strip()
        assert finding.evidence


def test_a_check_that_breaks_ends_as_a_skip_that_says_so_and_stops_no_other() -> None:
    def broken(_: NodeFacts, __: Case) -> Iterator[Finding]:
        raise KeyError("x")

    defective = dataclasses.replace(memlock, judge=broken)
    findings, skipped, _ = run_checks((defective, *CHECKS), gpu_case(failed_with("Duplicate GPU detected")))
    assert [s.check for s in skipped if s.crashed] == ["memlock"]
    assert "trial-failed" in {f.check for f in findings}


def test_the_checks_that_the_contract_names_are_all_there() -> None:
    names = {check.name for check in CHECKS}
    assert names >= {
        "gpu-driver",
        "gpu-not-passed-in",
        "torch-without-cuda",
        "gpu-lost",
        "gpu-unkillable",
        "world-size",
    }
    assert found(CHECKS[0], case()) == ()


def outcomes(run: Case) -> dict[str, CheckOutcome]:
    return {each.check: each.outcome for each in run_checks(CHECKS, run).ran}


# What a stock server without a GPU, an RDMA adapter or a file of the user's has to be looked at for.
OF_EVERY_MACHINE = {
    "data-verified", "dataloader-memory", "dataloader-shm", "gpu-of-another-maker", "gpu-unkillable", "inherited-env",
    "netif-usable", "nofile", "overcommit", "pids", "shm-stale", "shm-too-small", "straggler", "torch-version",
    "trial-failed", "world-size",
}  # fmt: skip


def test_no_check_passes_that_had_nothing_to_look_at() -> None:
    """Without a GPU 68 of 69 checks passed, nvlink-down and gpu-wrong-results among them."""
    ended = outcomes(case())
    passed = {name for name, how in ended.items() if how is CheckOutcome.PASSED}
    assert passed <= OF_EVERY_MACHINE
    for name in ("gpu-wrong-results", "nvlink-down", "p2p-data", "baseline-missed", "policy-expectation", "rail"):
        assert ended[name] is CheckOutcome.NOT_APPLICABLE, name


def test_without_a_trial_no_check_of_a_run_passes() -> None:
    of_runs = {check.name for check in CHECKS if isinstance(check, RunCheck)} - {"gpu-mix"}
    ended = outcomes(gpu_case(nodes=(gpu_node(8),), trials=(trial(outcome=Outcome.SKIPPED),), gpus=tuple(range(8))))
    assert [name for name in of_runs if ended[name] is CheckOutcome.PASSED] == []
    assert ended["trial-failed"] is ended["gpu-wrong-results"] is CheckOutcome.NOT_RUN


@SLOW
@given(GAPPY | UNHEARD_OF)
def test_a_check_that_did_not_pass_says_why_in_findings_or_in_words(run: Case) -> None:
    checked = run_checks(CHECKS, run)
    found, skipped = {f.check for f in checked.findings}, {s.check for s in checked.skipped}
    for each in checked.ran:
        assert (each.outcome is CheckOutcome.FOUND) == (each.check in found)
        assert each.outcome in (CheckOutcome.FOUND, CheckOutcome.PASSED) or each.reason
        if each.outcome in (CheckOutcome.COULD_NOT_LOOK, CheckOutcome.NOT_RUN):
            assert each.check in skipped


def test_of_two_nodes_one_that_could_not_look_outweighs_one_that_passed() -> None:
    nodes = (gpu_node(2), gpu_node(2, gpus=Gap("the call hangs")))
    (ran,) = run_checks((gpu_memory,), gpu_case(nodes=nodes)).ran
    assert (ran.outcome, ran.reason) == (CheckOutcome.COULD_NOT_LOOK, "node1: the call hangs")


def test_what_a_check_costs_that_could_not_look_is_said_for_each() -> None:
    rejecting = {c.name for c in CHECKS if c.unseen is not Unseen.NOTHING}
    assert {"gpu-lost", "gpu-memory-errors", "p2p-data", "policy-expectation"} <= rejecting
    assert {"acs-redirects", "overcommit", "memlock", "hostname-loopback"}.isdisjoint(rejecting)
    assert {c.name for c in CHECKS if c.unseen is Unseen.ANSWER} == {"policy-expectation", "policy-floor"}


def test_of_the_classes_that_are_asked_for_the_findings_stay_and_preflights_own() -> None:
    found = tuple(Finding(blame.value, blame, Severity.FAIL, "", "", "", ()) for blame in Blame)
    kept = CheckResults(found, (), ()).of_classes((Blame.GPU,))
    assert {each.blame for each in kept.findings} == {Blame.GPU, Blame.HARNESS}
