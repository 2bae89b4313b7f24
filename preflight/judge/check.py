"""Define a check and its inputs, and run all checks."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from preflight.errors import DispensableFact, NotApplicable, NotRun, UnreadableFact
from preflight.model.bound import Bound
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import (
    Blame,
    CheckDescription,
    CheckOutcome,
    Evidence,
    Finding,
    RanCheck,
    Severity,
    SkippedCheck,
    Unseen,
)

if TYPE_CHECKING:  # what a run adds to the facts; importing it would cost `probe` a tenth of its time
    from preflight.model.baseline import Baseline
    from preflight.model.counters import OutsideEvent
    from preflight.model.gpu_test import Hardware
    from preflight.model.isolation import Isolation
    from preflight.model.known_bugs import KnownBug
    from preflight.model.links import Links
    from preflight.model.lookback import KernelHistory
    from preflight.model.nccl_diagnostics import NcclDiagnosis
    from preflight.model.network_survey import NetworkSurvey
    from preflight.model.perftest import LinkTest
    from preflight.model.policy import Policy
    from preflight.model.storage import StorageSpeed
    from preflight.model.trial import Control, RailTest, TrialResult

BLIND_TO = "Can't see: "
Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs of the checks: the values of each node, the test runs and the options."""

    nodes: tuple[NodeFacts, ...]
    trials: tuple[TrialResult, ...]  # empty for `probe`
    backend: str
    world_size: int  # as requested; 0 for `probe`
    wants_gpus: bool  # False on the CPU path and with `--backend gloo`
    gpus: tuple[int, ...] = ()  # nvml_index of the chosen GPUs; without NVML the place in bus order
    policy: Policy | None = None  # of the site
    baseline: Baseline | None = None  # the speeds of known-good nodes
    baseline_source: str = ""
    fabric: tuple[LinkTest, ...] = ()  # this node's links, measured by ib_write_bw; empty if the user gave none
    links: Links | None = None  # the rates of links; None if speeds are not judged
    hardware: Hardware | Gap | None = None  # tests without NCCL; a Gap if they should have run, None for `probe`
    gpus_by_node: tuple[tuple[int, ...], ...] = ()  # several nodes: `gpus` of each of `nodes`
    rails: tuple[RailTest, ...] | Gap | None = None  # tests of single RDMA ports; Gap and None as for `hardware`
    diagnosis: tuple[NcclDiagnosis, ...] = ()  # of this node's own trials; empty if NCCL was not asked
    storage: StorageSpeed | None = None  # one node: the directory of --checkpoint-dir, if one was given
    between: NetworkSurvey | None = None  # several nodes: the survey of the network paths
    isolation: Isolation | None = None  # several nodes: the search for a node at fault
    outside: tuple[OutsideEvent, ...] = ()  # what the kernel did to processes here while the ranks ran
    before: KernelHistory | Gap | None = None  # the kernel's messages before the run; None if no policy asks for them
    bugs: tuple[KnownBug, ...] = ()  # the rows of data/known_bugs.toml
    control: Control | None = None  # the repetitions, and the workaround under test; None if nothing was repeated
    skip: Mapping[str, str] = field(default_factory=dict)  # the names of checks to skip, each with the reason


@dataclass(frozen=True, slots=True)
class _Check(CheckDescription):
    def finding(
        self,
        severity: Severity,
        subject: str,
        problem: str,
        fix: str,
        *evidence: Evidence,
        blame: Blame | None = None,
        parts: tuple[str, ...] = (),
        workaround: str = "",
    ) -> Finding:
        """Return a problem that this check found.

        The fault domain is the domain of the check, unless `blame` gives another domain. `parts` identify the faulty
        parts, so that later runs recognize these parts.
        """
        # The parts are compared in judge/seen_again.py.
        blamed = blame or self.blame
        return Finding(
            self.name, blamed, severity, subject, problem, fix, evidence, parts=parts, workaround=workaround
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeCheck(_Check):
    """A check of one node at a time. If a value of a node is missing, the check is skipped for this node only."""

    judge: Callable[[NodeFacts, Case], Findings]
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True)
class RunCheck(_Check):
    """A check of the test runs, or a check that compares the nodes with each other."""

    judge: Callable[[Case], Findings]
    bounds: tuple[Bound, ...] = ()


Check = NodeCheck | RunCheck


def node_check(
    name: str, *, blame: Blame, unseen: Unseen, reads: tuple[str, ...], bounds: tuple[Bound, ...] = ()
) -> Callable[[Callable[[NodeFacts, Case], Findings]], NodeCheck]:
    """Return a decorator that turns a generator function into a check of one node.

    The generator yields problems, and its docstring must end with a paragraph "Can't see: ...".
    """
    # `blame` is the usual fault domain of a problem. `unseen` is the effect on the verdict if the check is
    # inconclusive. `reads` names the values that the check reads. `bounds` has the thresholds of the check. The first
    # paragraph of the generator's docstring says what is true if the check finds no problem. The last paragraph, after
    # "Can't see:", says what the check does not prove. If the generator yields nothing, the check passes. The generator
    # raises NotApplicable if there is nothing to check, and NotRun if a measurement is missing because it was not made.
    # The generator raises UnreadableFact if a value is missing, or DispensableFact if a node can be accepted without
    # this value. Problems that were yielded before an exception are kept.

    def check_of(judge: Callable[[NodeFacts, Case], Findings]) -> NodeCheck:
        promise, blind_to = _documented(judge)
        return NodeCheck(name, promise, blame, reads, blind_to, unseen, judge, bounds)

    return check_of


def run_check(
    name: str, *, blame: Blame, unseen: Unseen, reads: tuple[str, ...], bounds: tuple[Bound, ...] = ()
) -> Callable[[Callable[[Case], Findings]], RunCheck]:
    """Return a decorator that turns a generator function into a check of a run. See `node_check` for arguments."""

    def check_of(judge: Callable[[Case], Findings]) -> RunCheck:
        promise, blind_to = _documented(judge)
        return RunCheck(name, promise, blame, reads, blind_to, unseen, judge, bounds)

    return check_of


def _documented(judge: Callable[..., Findings]) -> tuple[str, str]:
    """Return what a check verifies and what it can't see, from the docstring of `judge`."""
    documentation = inspect.getdoc(judge) or ""  # `python -OO` leaves none
    paragraphs = [" ".join(paragraph.split()).removesuffix(".") for paragraph in documentation.split("\n\n")]
    promise, blind_to = paragraphs[0], paragraphs[-1].removeprefix(BLIND_TO)
    return promise if promise[1:2].isupper() else promise[:1].lower() + promise[1:], blind_to  # NVML stays NVML


def all_checks() -> tuple[Check, ...]:
    """Return all checks in the packages `node` and `run`, sorted by name."""
    return _checks_in("node", "run")


def fact_checks() -> tuple[Check, ...]:
    """Return the checks that need no test run, sorted by name.

    Other checks are not imported, so that `probe` answers quickly.
    """
    return _checks_in("node")


def _checks_in(*folders: str) -> tuple[Check, ...]:
    packages = [importlib.import_module(f"{__package__}.{folder}") for folder in folders]
    files = [file for each in packages for file in pkgutil.iter_modules(each.__path__, f"{each.__name__}.")]
    values = [value for file in files for value in vars(importlib.import_module(file.name)).values()]
    return tuple(sorted((each for each in values if isinstance(each, Check)), key=lambda check: check.name))


class CheckResults(NamedTuple):
    """The results of checks, with the problems found, the inconclusive checks, and how each check ended."""

    findings: tuple[Finding, ...]
    skipped: tuple[SkippedCheck, ...]
    ran: tuple[RanCheck, ...]

    def of_classes(self, classes: Sequence[Blame]) -> CheckResults:
        """Return the results with only the problems in the fault domains `classes` or in preflight itself."""
        kept = tuple(each for each in self.findings if each.blame in classes or each.blame is Blame.HARNESS)
        return self._replace(findings=kept)


def run_checks(checks: tuple[Check, ...], case: Case) -> CheckResults:
    """Run `checks` on `case`, and return the problems found and how each check ended.

    An unexpected exception is recorded as a defect of the check and does not end the run.
    """
    findings: list[Finding] = []
    skipped: list[SkippedCheck] = []
    ran: list[RanCheck] = []
    for check in checks:
        ended = [_run(check, subject, judge, findings, skipped) for subject, judge in _calls(check, case)]
        ran.append(together(check, ended))
    return CheckResults(tuple(findings), tuple(skipped), tuple(ran))


def _run(
    check: Check, subject: str, judge: Callable[[], Findings], findings: list[Finding], skipped: list[SkippedCheck]
) -> Ended:
    """Run a check on one node or on the whole run, and return how the check ended.

    If the check raises an exception, the findings from before the exception are kept.
    """

    def skip(reason: str, outcome: CheckOutcome, costs: Unseen, *, crashed: bool = False) -> Ended:
        reason = reason or "no reason was given"
        skipped.append(SkippedCheck(check.name, check.blame, reason, crashed, outcome, costs))
        return outcome, reason

    before = len(findings)
    try:
        findings += judge()  # an iterator: findings before an exception are kept
        ended = (CheckOutcome.PASSED, "")
    except NotApplicable as error:
        ended = (CheckOutcome.NOT_APPLICABLE, f"{subject}{error}")
    except NotRun as error:
        ended = skip(f"{subject}{error}", CheckOutcome.NOT_RUN, check.unseen)
    except UnreadableFact as error:
        costs = Unseen.NOTHING if isinstance(error, DispensableFact) else check.unseen
        ended = skip(f"{subject}{error}", CheckOutcome.COULD_NOT_LOOK, costs)
    except Exception as error:  # noqa: BLE001  one check's defect must not end the others
        reason = f"{subject}{type(error).__name__}: {error}"
        ended = skip(reason, CheckOutcome.COULD_NOT_LOOK, Unseen.ANSWER, crashed=True)
    return (CheckOutcome.FOUND, "") if len(findings) > before else ended


def _calls(check: Check, case: Case) -> Iterator[tuple[str, Callable[[], Findings]]]:
    if check.name in case.skip:
        yield "", partial(_skipped, case.skip[check.name])
        return
    if isinstance(check, RunCheck):
        yield "", partial(check.judge, case)
        return
    for i, node in enumerate(case.nodes):
        own = replace(case, gpus=case.gpus_by_node[i]) if case.gpus_by_node else case
        yield f"{node.host}: " if len(case.nodes) > 1 else "", partial(check.judge, node, own)


def _skipped(why: str) -> Findings:
    raise NotRun(why)


def probe_exit_code(checked: CheckResults, *, strict: bool, is_cut_short: bool = False) -> int:
    """Return the exit code of `preflight probe`: 1 if a check failed, 3 if the probe is incomplete, or else 0.

    If `strict` is true, a warning counts as a failure.
    """
    # The exit code is 3 if a check crashed, if time ran out (`is_cut_short`), or if preflight itself failed.
    failing = [f for f in checked.findings if f.severity is Severity.FAIL or (strict and f.severity is Severity.WARN)]
    if any(finding.blame is not Blame.HARNESS for finding in failing):
        return 1
    return 3 if failing or is_cut_short or any(check.crashed for check in checked.skipped) else 0


Ended = tuple[CheckOutcome, str]  # with the reason
# Of several nodes the first of these decides: a pass on one says nothing of another.
BY_WEIGHT = (
    CheckOutcome.FOUND, CheckOutcome.COULD_NOT_LOOK, CheckOutcome.NOT_RUN, CheckOutcome.PASSED,
    CheckOutcome.NOT_APPLICABLE,
)  # fmt: skip


def together(check: CheckDescription, ended: Sequence[Ended]) -> RanCheck:
    """Combine the results of one check on several nodes into one result.

    `ended` has (outcome, reason) for each node. The combined result has the most important outcome, and the reasons of
    the nodes that had this outcome.
    """
    # BY_WEIGHT sorts the outcomes by importance.
    outcomes = [outcome for outcome, _ in ended]
    outcome = next((each for each in BY_WEIGHT if each in outcomes), CheckOutcome.NOT_RUN)
    reason = "; ".join(dict.fromkeys(reason for each, reason in ended if each is outcome and reason))
    return RanCheck(check.name, check.blame, check.promise, outcome, reason or ("" if ended else "no node was read"))


def found_by(ran: Sequence[RanCheck], findings: Sequence[Finding]) -> tuple[RanCheck, ...]:
    """Return `ran` with the outcome FOUND for each check that found a problem. Other entries stay as they are."""
    named = {finding.check for finding in findings}
    return tuple(replace(each, outcome=CheckOutcome.FOUND, reason="") if each.check in named else each for each in ran)


def of_several_nodes(by_host: Sequence[tuple[str, Sequence[RanCheck]]]) -> tuple[RanCheck, ...]:
    """Combine the results of several nodes into one result for each check.

    `by_host` has the results of each host. The combined result has the most important outcome, with the hosts that had
    this outcome and their reasons.
    """
    # BY_WEIGHT sorts the outcomes by importance.
    ended: dict[str, list[tuple[str, RanCheck]]] = {}
    for host, checks in by_host:
        for each in checks:
            ended.setdefault(each.check, []).append((host, each))
    return tuple(
        replace(merged, reason=reason)
        for several in ended.values()
        for merged in [min((each for _, each in several), key=lambda each: BY_WEIGHT.index(each.outcome))]
        for reason in ["; ".join(f"{h}: {e.reason}" for h, e in several if e.outcome is merged.outcome and e.reason)]
    )


def not_run(checks: Sequence[CheckDescription], why: str) -> tuple[RanCheck, ...]:
    """Return the entries of a report for checks that never started. `why` is the reason."""
    return tuple(RanCheck(each.name, each.blame, each.promise, CheckOutcome.NOT_RUN, why) for each in checks)
