from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from preflight.judge.check import Case
from preflight.judge.verdict import Decision, decide
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Finding, Severity, SkippedCheck, Unseen
from preflight.model.report import Advice, NodeVerdict, Verdict
from preflight.model.trial import AS_IS, Outcome, TrialResult
from tests.node_facts import advice, case, finding, gpu_case, node, result, trial
from tests.search.settings.test_internode import port

ENV = advice(env=(("NCCL_P2P_DISABLE", "1"),))
UNSET = advice(unset=("NCCL_SOCKET_IFNAME",))
FAILS = {blame: finding(blame=blame) for blame in Blame}
WARNS = {blame: finding(Severity.WARN, blame) for blame in Blame}
CRASHED = SkippedCheck("memlock", Blame.HOST, "KeyError: 3", crashed=True)
UNSEEN = {cost: SkippedCheck("memlock", Blame.HOST, "denied", crashed=False, costs=cost) for cost in Unseen}
NO_PROBLEMS: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """The arguments of `decide`, of a healthy run over NCCL."""

    case: Case = field(default_factory=gpu_case)
    findings: Sequence[Finding] = ()
    skipped: Sequence[SkippedCheck] = ()
    trials: Sequence[TrialResult] = (trial(),)
    advice: Advice = field(default_factory=advice)
    problems: Sequence[str] = ()
    strict: bool = False
    accept: bool = False
    cpu_path: bool = False
    refuses_sockets: bool = False

    def decide(self) -> Decision:
        return decide(
            self.case,
            self.findings,
            self.skipped,
            self.trials,
            self.advice,
            self.problems,
            strict=self.strict,
            accept=self.accept,
            cpu_path=self.cpu_path,
            refuses_sockets=self.refuses_sockets,
        )


HUNG = trial(outcome=Outcome.HANG)
CURE = trial("p2p-off", env=(("NCCL_P2P_DISABLE", "1"),))
WORKED_ROUND = finding(Severity.WARN, Blame.HOST, check="trial-failed")


@pytest.mark.parametrize(
    ("run", "verdict", "exit_code"),
    [
        (Run(), Verdict.READY, 0),
        (Run(advice=ENV), Verdict.READY_WITH_ENV, 0),
        (Run(advice=UNSET), Verdict.READY_WITH_ENV, 0),
        (Run(trials=(HUNG, CURE), advice=ENV, findings=(WORKED_ROUND,)), Verdict.READY_WITH_ENV, 0),
        (Run(trials=(HUNG, trial(AS_IS))), Verdict.READY, 0),
        (Run(findings=tuple(WARNS.values())), Verdict.READY, 0),
        (Run(findings=(WARNS[Blame.HOST],), strict=True), Verdict.NOT_READY, 1),
        (Run(findings=(finding(Severity.INFO),), strict=True), Verdict.READY, 0),
        (Run(findings=(FAILS[Blame.APPLICATION],)), Verdict.NOT_READY, 1),
        (Run(findings=(FAILS[Blame.CONTAINER],), problems=("deadline",)), Verdict.NOT_READY, 1),
        (Run(trials=(HUNG,)), Verdict.NOT_READY, 1),
        (Run(trials=(HUNG, CURE)), Verdict.NOT_READY, 1),
        (Run(trials=(trial(results=(result(verified=False),)),)), Verdict.NOT_READY, 1),
        (Run(findings=(FAILS[Blame.HARNESS],)), Verdict.UNKNOWN, 3),
        (Run(findings=(WARNS[Blame.HARNESS],), strict=True), Verdict.UNKNOWN, 3),
        (Run(problems=("rendezvous failed",)), Verdict.UNKNOWN, 3),
        (Run(skipped=(CRASHED,)), Verdict.UNKNOWN, 3),
        (Run(trials=()), Verdict.UNKNOWN, 3),
        (Run(trials=(CURE,)), Verdict.UNKNOWN, 3),
        (Run(trials=(trial(outcome=Outcome.SKIPPED),)), Verdict.UNKNOWN, 3),
        (Run(trials=(trial(results=()),)), Verdict.UNKNOWN, 3),
        (Run(skipped=(UNSEEN[Unseen.ACCEPTANCE],)), Verdict.READY, 0),
        (Run(skipped=(UNSEEN[Unseen.ANSWER],)), Verdict.UNKNOWN, 3),
    ],
)
def test_the_verdict_and_its_exit_code_follow_the_contract(run: Run, verdict: Verdict, exit_code: int) -> None:
    decision = run.decide()
    assert (decision.verdict, decision.exit_code) == (verdict, exit_code)
    assert isinstance(decision.node_verdict, Gap)


def test_with_sockets_between_nodes_the_headline_says_that_the_fabric_stays_unused() -> None:
    def run(setting: tuple[str, str], nodes: int) -> str:
        facts = node(hca_ports=(port("mlx5_0"), port("mlx5_1")))
        return Run(case=gpu_case(nodes=(facts,) * nodes), advice=advice(env=(setting,))).decide().headline

    unused = "the traffic used TCP and not the RDMA ports (100 GB/s per node)"
    assert run(("NCCL_IB_DISABLE", "1"), 2).endswith(unused) and run(("NCCL_NET", "Socket"), 2).endswith(unused)
    assert unused not in run(("NCCL_IB_HCA", "=mlx5_1:1"), 2) and unused not in run(("NCCL_IB_DISABLE", "1"), 1)


@pytest.mark.parametrize(
    ("setting", "nodes", "starts"),
    [
        (("NCCL_IB_DISABLE", "1"), 2, False),
        (("NCCL_NET", "Socket"), 2, False),
        (("NCCL_IB_DISABLE", "1"), 1, True),
        (("NCCL_IB_HCA", "=mlx5_1:1"), 2, True),
    ],
)
def test_a_job_that_would_only_use_tcp_between_nodes_is_not_started_unless_allowed(
    setting: tuple[str, str], nodes: int, starts: bool
) -> None:
    case = gpu_case(nodes=(node(hca_ports=(port("mlx5_0"),)),) * nodes)
    run = Run(case=case, advice=advice(env=(setting,)), refuses_sockets=True)
    refused = run.decide()
    assert (refused.verdict, refused.exit_code) == ((Verdict.READY_WITH_ENV, 0) if starts else (Verdict.NOT_READY, 1))
    assert ("`run --allow-sockets`" in refused.headline) is not starts
    assert replace(run, refuses_sockets=False).decide().exit_code == 0


@pytest.mark.parametrize(
    ("run", "node_verdict"),
    [
        (Run(), NodeVerdict.ACCEPT),
        (Run(advice=ENV), NodeVerdict.ACCEPT),
        *((Run(findings=(FAILS[blame],)), NodeVerdict.REJECT) for blame in (Blame.HOST, Blame.GPU, Blame.FABRIC)),
        *(
            (Run(findings=(FAILS[blame],)), NodeVerdict.UNKNOWN)
            for blame in (Blame.APPLICATION, Blame.CONFIGURATION, Blame.CONTAINER, Blame.HARNESS)
        ),
        (Run(findings=(FAILS[Blame.CONTAINER], FAILS[Blame.GPU])), NodeVerdict.REJECT),
        (Run(findings=(FAILS[Blame.GPU],), problems=("deadline",)), NodeVerdict.REJECT),
        (Run(findings=(WARNS[Blame.HOST],)), NodeVerdict.ACCEPT),
        (Run(findings=(WARNS[Blame.HOST],), strict=True), NodeVerdict.REJECT),
        (Run(trials=(HUNG, CURE), advice=ENV, findings=(WORKED_ROUND,)), NodeVerdict.REJECT),
        (Run(findings=(replace(WORKED_ROUND, blame=Blame.CONTAINER),), advice=ENV), NodeVerdict.UNKNOWN),
        (Run(skipped=(UNSEEN[Unseen.ACCEPTANCE],)), NodeVerdict.UNKNOWN),
        (Run(skipped=(UNSEEN[Unseen.ANSWER],)), NodeVerdict.UNKNOWN),
        (Run(skipped=(UNSEEN[Unseen.NOTHING],)), NodeVerdict.ACCEPT),
        (Run(skipped=(CRASHED,)), NodeVerdict.UNKNOWN),
        (Run(trials=(HUNG,)), NodeVerdict.UNKNOWN),
        (Run(problems=("rendezvous failed",)), NodeVerdict.UNKNOWN),
        (Run(cpu_path=True), NodeVerdict.UNKNOWN),
        (Run(cpu_path=True, findings=(FAILS[Blame.HOST],)), NodeVerdict.UNKNOWN),
    ],
)
def test_the_answer_for_the_node_follows_the_contract(run: Run, node_verdict: NodeVerdict) -> None:
    decision = replace(run, accept=True).decide()
    assert decision.node_verdict is node_verdict
    assert decision.exit_code == {NodeVerdict.ACCEPT: 0, NodeVerdict.REJECT: 1, NodeVerdict.UNKNOWN: 3}[node_verdict]
    assert decision.verdict is run.decide().verdict


def test_only_a_warning_that_strict_makes_count_is_called_so() -> None:
    rejected = Run(trials=(HUNG, CURE), advice=ENV, findings=(WORKED_ROUND,), accept=True).decide()
    assert rejected.exit_code == 1 and "--strict" not in rejected.headline
    assert "[a warning; --strict]" in Run(findings=(WARNS[Blame.HOST],), accept=True, strict=True).decide().headline


@pytest.mark.parametrize(
    ("run", "headline"),
    [
        (Run(case=case()), "ready: 2 ranks on gloo, data verified; no settings needed"),
        (
            Run(case=case(), cpu_path=True),
            "ready: 2 ranks on gloo, no GPU tested, data verified; no settings needed",
        ),
        (Run(advice=ENV), "ready with settings: 2 ranks on nccl, data verified; source the .env: NCCL_P2P_DISABLE=1"),
        (Run(findings=(FAILS[Blame.HOST],)), "not ready: node1: something is wrong"),
        (Run(problems=("torchrun died\ntraceback",)), "unknown: torchrun died"),
        (Run(findings=(FAILS[Blame.HOST],), accept=True), "node rejected: node1: something is wrong"),
    ],
)
def test_the_headline_is_one_sentence(run: Run, headline: str) -> None:
    assert run.decide().headline == headline


SEVERITY = {0: 0, 3: 1, 1: 2}
RUNS = st.builds(
    Run,
    findings=st.lists(
        st.builds(
            finding,
            st.sampled_from(Severity),
            st.sampled_from(Blame),
            check=st.sampled_from(["trial-failed", "data-verified", "memlock"]),
        ),
        max_size=3,
    ),
    skipped=st.lists(st.sampled_from([CRASHED, *UNSEEN.values()]), max_size=2),
    trials=st.lists(st.builds(trial, st.sampled_from(["default", AS_IS, "x"]), st.sampled_from(Outcome)), max_size=3),
    advice=st.sampled_from([advice(), ENV, UNSET]),
    problems=st.sampled_from([NO_PROBLEMS, ("deadline",)]),
    strict=st.booleans(),
    accept=st.booleans(),
    cpu_path=st.booleans(),
)


@given(RUNS)
def test_a_fail_finding_never_ends_in_exit_code_0(run: Run) -> None:
    assert run.decide().exit_code in {1, 3} or all(f.severity is not Severity.FAIL for f in run.findings)


@given(RUNS)
@example(Run(findings=(WARNS[Blame.HARNESS],), trials=(HUNG,)))
def test_strict_never_makes_an_answer_milder(run: Run) -> None:
    lax, strict = replace(run, strict=False).decide(), replace(run, strict=True).decide()
    assert SEVERITY[strict.exit_code] >= SEVERITY[lax.exit_code]


@given(RUNS)
def test_a_node_is_never_accepted_or_rejected_by_the_cpu_path(run: Run) -> None:
    assert replace(run, accept=True, cpu_path=True).decide().exit_code == 3


@given(RUNS)
def test_what_could_not_look_is_never_ready(run: Run) -> None:
    could_not = run.problems or any(check.crashed for check in run.skipped) or not run.trials
    assert not could_not or run.decide().exit_code != 0


@given(RUNS)
def test_a_node_is_rejected_only_for_what_is_its_own_fault(run: Run) -> None:
    decision = replace(run, accept=True).decide()
    blames = {f.blame for f in run.findings if f.severity is not Severity.INFO}
    assert decision.exit_code != 1 or blames & {Blame.HOST, Blame.GPU, Blame.FABRIC}


@given(RUNS)
def test_preflights_own_failures_never_say_not_ready(run: Run) -> None:
    harness = [replace(f, blame=Blame.HARNESS) for f in run.findings]
    works = replace(run, findings=harness, trials=(trial(),), accept=False)
    assert works.decide().exit_code in {0, 3}


@given(RUNS)
def test_a_headline_is_one_line_that_says_something(run: Run) -> None:
    headline = run.decide().headline
    assert "\n" not in headline
    assert headline.partition(": ")[2]


@pytest.mark.parametrize("run", [Run(case=case()), Run(case=case(), cpu_path=True)])
def test_the_usual_headline_fits_a_terminal(run: Run) -> None:
    assert len(run.decide().headline.replace("ready: ", "READY  ")) <= 80
