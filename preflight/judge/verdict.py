"""Compute the verdicts, the exit code and the headline of a report, or make a report without results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.judge.check import Case
from preflight.judge.finding_text import first_line
from preflight.judge.workarounds import default_trial, works
from preflight.model.facts import Gap
from preflight.model.finding import REJECTS_A_NODE, Blame, CheckOutcome, Finding, Severity, SkippedCheck, Unseen
from preflight.model.gap import known_or
from preflight.model.nccl_variables import assignment
from preflight.model.report import SCHEMA_VERSION, Advice, NodeVerdict, Report, Verdict
from preflight.model.trial import AS_IS, Outcome, TrialResult
from preflight.model.units import counted
from preflight.search.settings.infiniband import SOCKETS
from preflight.search.settings.rdma import usable_ports

EXIT_CODES = {Verdict.READY: 0, Verdict.READY_WITH_ENV: 0, Verdict.NOT_READY: 1, Verdict.UNKNOWN: 3}
NODE_EXIT_CODES = {NodeVerdict.ACCEPT: 0, NodeVerdict.REJECT: 1, NodeVerdict.UNKNOWN: 3}
NODE_WORDS = {
    NodeVerdict.ACCEPT: "node accepted", NodeVerdict.REJECT: "node rejected", NodeVerdict.UNKNOWN: "node unknown",
}  # fmt: skip
NOT_ASKED_FOR = Gap("not asked for: --accept was not given")
NO_GPU_TRIED = "only the CPU path was tested, so a GPU node can't be judged"
LEAVES_OPEN = frozenset({"gpu-busy", "gpu-memory"})  # with another job on a GPU, no result proves anything of the node
DECIDES_WITHOUT_GPU = frozenset({"policy-expectation"})  # the site says what the node must have
# With a workaround these are only warnings for the job, but they reject the node, because the default settings failed.
WORKED_ROUND = frozenset({"trial-failed", "data-verified", "p2p-data"})
ALLOW_SOCKETS = "`run --allow-sockets` starts the job anyway"
NOT_SHOWN_BY_A_JOB = frozenset({"hca-port-inactive"})  # a job on one node needs no port, a later one may
COUNT_AS_WARNINGS = WORKED_ROUND | NOT_SHOWN_BY_A_JOB


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdicts on the job and on the node, the exit code and the headline.

    Without --accept, the verdict on the node is a Gap.
    """

    verdict: Verdict
    node_verdict: NodeVerdict | Gap
    exit_code: int
    headline: str


Answer = tuple[Verdict, str]  # with the sentence that explains it


def decide(
    case: Case,
    findings: Sequence[Finding],
    skipped: Sequence[SkippedCheck],
    trials: Sequence[TrialResult],
    advice: Advice,
    problems: Sequence[str],
    *,
    strict: bool,
    accept: bool,
    cpu_path: bool,
    refuses_sockets: bool = False,
) -> Decision:
    """Return the verdicts, the exit code and the headline that follow from the results.

    If `strict` is true, a warning counts as a failure. If `accept` is true, the verdict on the node decides the exit
    code.
    """
    # With `refuses_sockets`, the verdict is `not_ready` if the job would not use RDMA ports between nodes. If a check
    # crashed or preflight failed to do a part, the verdict is never `ready`.
    failing = [f for f in findings if f.severity is Severity.FAIL or (strict and f.severity is Severity.WARN)]
    verdict, why = _for_the_job(failing, skipped, trials, advice, problems)
    if verdict in (Verdict.READY, Verdict.READY_WITH_ENV):
        unused = _unused_fabric(case, advice)
        why = f"{_ran(case, cpu_path)}, data verified; {why}{unused}"
        if unused and refuses_sockets:
            verdict, why = Verdict.NOT_READY, f"{why}; {ALLOW_SOCKETS}"
    if not accept:
        word = "ready with settings" if verdict is Verdict.READY_WITH_ENV else verdict.value.replace("_", " ")
        return Decision(verdict, NOT_ASKED_FOR, EXIT_CODES[verdict], f"{word}: {why}")
    node, sentence = _for_the_node(failing, findings, skipped, (verdict, why), cpu_path=cpu_path)
    return Decision(verdict, node, NODE_EXIT_CODES[node], f"{NODE_WORDS[node]}: {sentence}")


def unanswered(
    why: str, exit_code: int | None, *, version: str, created_at: str, backend: str, profile: str, accept: bool
) -> Report:
    """Return a report without results, with the verdict `unknown` and the reason `why`.

    If `exit_code` is None, the report has the exit code of an unknown verdict.
    """
    return Report(
        schema_version=SCHEMA_VERSION,
        preflight_version=version,
        created_at=created_at,
        verdict=Verdict.UNKNOWN,
        node_verdict=NodeVerdict.UNKNOWN if accept else NOT_ASKED_FOR,
        exit_code=EXIT_CODES[Verdict.UNKNOWN] if exit_code is None else exit_code,
        headline=f"{NODE_WORDS[NodeVerdict.UNKNOWN] if accept else Verdict.UNKNOWN.value}: {why}",
        simulated=False,
        backend=backend,
        profile=profile,
        world_size=0,
        nodes=(),
        trials=(),
        comparisons=(),
        left_out=(),
        findings=(),
        skipped_checks=(),
        problems=(why,),
        advice=Advice(
            (), (), (), (), Gap(why), Gap(why), (), "no settings can be recommended, because the run has no result"
        ),
        durations_s=(),
    )


def _for_the_job(
    failing: Sequence[Finding],
    skipped: Sequence[SkippedCheck],
    trials: Sequence[TrialResult],
    advice: Advice,
    problems: Sequence[str],
) -> Answer:
    proof = [finding for finding in failing if finding.blame is not Blame.HARNESS]
    if proof:
        return Verdict.NOT_READY, _worst(proof, failing)
    unchecked = _could_not_look([f for f in failing if f.severity is Severity.FAIL], skipped, trials, problems)
    if unchecked:
        return Verdict.UNKNOWN, unchecked
    verdict, why = _by_trials(trials, advice)
    if failing and verdict is not Verdict.NOT_READY:  # a warning of preflight's own, which --strict makes count
        return Verdict.UNKNOWN, _worst(failing, failing)
    return verdict, why


def _by_trials(trials: Sequence[TrialResult], advice: Advice) -> Answer:
    default = default_trial(trials)
    working = [trial for trial in trials if works(trial)]
    if working and not any(trial.results for trial in working):
        return Verdict.UNKNOWN, "no collective was measured"
    if working and (advice.env or advice.unset):
        return Verdict.READY_WITH_ENV, "source the .env: " + _changes(advice)
    if default in working:
        return Verdict.READY, "no settings needed"
    if any(trial.candidate == AS_IS for trial in working):
        return Verdict.READY, "with the inherited variables, because the job needs them"
    sentence = first_line(default.problem) if default else ""
    return Verdict.NOT_READY, f"the default settings fail: {sentence}" if sentence else "no setting works"


def _could_not_look(
    failing: Sequence[Finding],
    skipped: Sequence[SkippedCheck],
    trials: Sequence[TrialResult],
    problems: Sequence[str],
) -> str:
    default = default_trial(trials)
    if problems:
        return first_line(problems[0]) or "preflight was inconclusive"
    if failing:
        return _worst(failing, failing)
    unseen = [check for check in skipped if check.crashed or check.costs is Unseen.ANSWER]
    if unseen:
        return _unseen(unseen[0])
    if default is None:
        return "the default settings were not tried"
    if default.outcome in (Outcome.SKIPPED, Outcome.NO_EFFECT):
        return f"the default settings were not tried: {first_line(default.problem) or default.outcome.value}"
    return ""


def _for_the_node(
    failing: Sequence[Finding],
    findings: Sequence[Finding],
    skipped: Sequence[SkippedCheck],
    answer: Answer,
    *,
    cpu_path: bool,
) -> tuple[NodeVerdict, str]:
    if cpu_path and not any(finding.check in DECIDES_WITHOUT_GPU for finding in failing):
        is_unknown = answer[0] is Verdict.UNKNOWN  # then nothing was run
        return NodeVerdict.UNKNOWN, answer[1] if is_unknown else NO_GPU_TRIED
    judged = [
        *failing,
        *(f for f in findings if (f.check in COUNT_AS_WARNINGS and f.severity is Severity.WARN) or f.is_unconfirmed),
    ]
    judged = list(dict.fromkeys(judged))
    against = [finding for finding in judged if finding.blame in REJECTS_A_NODE and not finding.is_unconfirmed]
    if against:
        return NodeVerdict.REJECT, _worst(against, failing)
    disturbed = [finding for finding in findings if finding.check in LEAVES_OPEN]
    if disturbed or judged:
        sentence = _why_open(judged, failing) if judged else ""
        return NodeVerdict.UNKNOWN, sentence or f"{_shown(disturbed[0])}; rerun when the GPU is free"
    verdict, why = answer
    if verdict in (Verdict.UNKNOWN, Verdict.NOT_READY):
        return NodeVerdict.UNKNOWN, why
    unchecked = [check for check in skipped if check.crashed or check.costs is not Unseen.NOTHING]
    if unchecked:
        return NodeVerdict.UNKNOWN, _unseen(unchecked[0])
    return NodeVerdict.ACCEPT, why


def _why_open(judged: Sequence[Finding], failing: Sequence[Finding]) -> str:
    if any(finding.is_unconfirmed for finding in judged):
        return f"{_worst(judged, failing)}; rerun, because one failure does not reject a node"
    if judged[0].blame is Blame.HARNESS:
        return _worst(judged, failing)
    return f"{_worst(judged, failing)}; the cause is the {judged[0].blame.value}, not the node"


def _unseen(check: SkippedCheck) -> str:
    if check.crashed:
        how = "crashed (a defect in preflight)"
    else:
        how = "was not run" if check.outcome is CheckOutcome.NOT_RUN else "was inconclusive"
    return f"the check {check.check} {how}: {first_line(check.reason)}"


def _worst(findings: Sequence[Finding], failing: Sequence[Finding]) -> str:
    first = next((f for f in findings if f.severity is Severity.FAIL), findings[0])
    others = f" (and {counted(len(findings) - 1, 'other finding')})" if len(findings) > 1 else ""
    as_failure = " [a warning; --strict]" if first.severity is Severity.WARN and first in failing else ""
    return f"{_shown(first)}{as_failure}{others}"


def _shown(finding: Finding) -> str:
    return f"{finding.subject}: {first_line(finding.problem)}"


def _ran(case: Case, cpu_path: bool) -> str:
    where = ", no GPU tested" if cpu_path else ""
    nodes = f" of {len(case.nodes)} nodes" if len(case.nodes) > 1 else ""
    return f"{case.world_size} rank{'' if case.world_size == 1 else 's'}{nodes} on {case.backend}{where}"


def _unused_fabric(case: Case, advice: Advice) -> str:
    """Return a clause that says that RDMA ports stay unused.

    Return "" unless the settings make several nodes use sockets.
    """
    is_off = len(case.nodes) > 1 and any(name in SOCKETS for name, _ in advice.env)
    rates = [sum(known_or(port.rate_gbit_s, 0.0) for port in usable_ports(node)) for node in case.nodes]
    if not is_off or not any(rates):
        return ""
    return f"; the traffic used TCP and not the RDMA ports ({min(rates) / 8:g} GB/s per node)"


def _changes(advice: Advice) -> str:
    return ", ".join([*(assignment(*each) for each in advice.env), *(f"unset {name}" for name in advice.unset)])
