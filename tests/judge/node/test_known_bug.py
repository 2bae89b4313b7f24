from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from preflight.judge.node.known_bug import known_bug
from preflight.judge.verdict import decide
from preflight.model.facts import Gap, NodeFacts, SoftwareFacts, TorchFacts, known
from preflight.model.finding import Finding, Severity
from preflight.model.report import Verdict
from preflight.model.trial import Outcome, TrialResult
from preflight.system.known_bugs import load_known_bugs
from tests.judge.findings import applies_not, skips
from tests.judge.findings import found as of
from tests.node_facts import advice, case, gpu_case, gpu_node, system, trial


def machine(nccl: str, architecture: str = "aarch64", model: str = "NVIDIA GB200", torch: str = "2.11.0") -> NodeFacts:
    facts = gpu_node(
        system=system(architecture=architecture),
        software=SoftwareFacts("3.12.3", "0.1.0", TorchFacts(torch, "13.0", nccl, "/venv/torch")),
    )
    return replace(facts, gpus=tuple(replace(each, name=model) for each in known(facts.gpus)))


def found(facts: NodeFacts, *trials: TrialResult, **how: Any) -> tuple[Finding, ...]:
    return of(known_bug, gpu_case(*trials, nodes=(facts,), bugs=load_known_bugs(), **how))


def test_a_gb200_with_2_28_9_is_told_of_the_bug_that_a_check_can_miss() -> None:
    (finding,) = found(machine("2.28.9"))
    assert finding.severity is Severity.INFO
    assert finding.subject == "node1 NCCL 2.28.9"
    assert "this version has a known bug, fixed in 2.29.3: one rank spins" in finding.problem
    assert finding.problem.endswith("; the bug did not occur here")
    assert finding.fix.startswith("use NCCL 2.29.3 or newer")
    assert "its makers say so" in finding.evidence[0].value


@pytest.mark.parametrize(
    "facts",
    [
        machine("2.29.3"),
        machine("2.28.9", architecture="x86_64", model="NVIDIA H100 80GB HBM3"),
        machine("2.27.5", architecture="x86_64", model="NVIDIA H100 80GB HBM3"),
        machine("2.21.5", architecture="x86_64", model="NVIDIA A100-SXM4-80GB", torch="2.6.0"),
        machine("2.30.7", architecture="x86_64", model="NVIDIA GeForce RTX 4090", torch="2.13.0"),
    ],
    ids=lambda facts: f"{known(facts.software).torch.nccl}-{known(facts.system).architecture}",
)
def test_an_ordinary_machine_is_told_nothing(facts: NodeFacts) -> None:
    assert found(facts) == ()


def test_what_the_ranks_have_loaded_counts_and_not_what_pip_lists() -> None:
    assert found(machine("2.28.9"), trial(nccl="2.29.7")) == ()
    (finding,) = found(machine("2.30.7"), trial(nccl="2.28.9"))
    assert finding.subject == "node1 NCCL 2.28.9"


def test_a_bug_of_several_nodes_is_said_of_several_nodes_only() -> None:
    one = machine("2.27.5", architecture="x86_64", model="NVIDIA H100 80GB HBM3")
    assert found(one) == ()
    both = of(known_bug, gpu_case(nodes=(one, replace(one, host="node2")), bugs=load_known_bugs(), world_size=4))
    assert [each.subject for each in both] == ["node1 NCCL 2.27.5", "node2 NCCL 2.27.5"]
    assert "does not report it to the rank" in both[0].problem


def test_a_trial_that_fails_as_a_bug_does_is_told_of_it() -> None:
    volta = machine("2.28.9", architecture="x86_64", model="Tesla V100-SXM2-32GB")
    assert found(volta) == ()
    (finding,) = found(volta, trial(outcome=Outcome.CRASH, nccl="2.28.9"))
    assert "a trial failed in the same way" in finding.problem
    assert "ncclCommInitRank" in finding.problem


def test_it_changes_no_verdict_not_even_with_strict() -> None:
    tried = gpu_case(nodes=(machine("2.28.9"),), bugs=load_known_bugs())
    findings = of(known_bug, tried)
    decision = decide(tried, findings, (), tried.trials, advice(), (), strict=True, accept=False, cpu_path=False)
    assert findings
    assert (decision.verdict, decision.exit_code) == (Verdict.READY, 0)


def test_without_a_gpu_or_a_version_nothing_is_said() -> None:
    assert found(machine("2.28.9"), wants_gpus=False) == ()
    unknown = gpu_node(
        software=SoftwareFacts("3.12.3", "0.1.0", Gap("there is no torch")), system=system(architecture="aarch64")
    )
    assert skips(known_bug, gpu_case(nodes=(unknown,), bugs=load_known_bugs()))[0].reason == "there is no torch"
    assert applies_not(known_bug, case())
