"""What a check is, what it may look at, and how all of them are run."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from preflight.errors import UnreadableFact
from preflight.model.finding import Blame, CheckDescription, Finding, RanCheck, SkippedCheck

if TYPE_CHECKING:
    from preflight.model.baseline import Baseline
    from preflight.model.between import Between
    from preflight.model.facts import Gap, NodeFacts
    from preflight.model.gpu_test import Hardware
    from preflight.model.isolation import Isolation
    from preflight.model.links import Links
    from preflight.model.policy import Policy
    from preflight.model.rail import RailTest
    from preflight.model.storage import StorageSpeed
    from preflight.model.trial import TrialResult


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that checks may look at: the facts of each node, the trials, and what was asked for."""

    nodes: tuple[NodeFacts, ...]
    trials: tuple[TrialResult, ...]  # empty for `probe`
    backend: str
    world_size: int  # asked for; 0 for `probe`
    wants_gpus: bool  # False on the CPU path and where `--backend gloo` was given
    gpus: tuple[int, ...] = ()  # nvml_index of the chosen GPUs; without NVML the place in bus order
    policy: Policy | None = None  # the site's own
    baseline: Baseline | None = None  # what known-good nodes reach
    baseline_source: str = ""
    links: Links | None = None  # what links can carry; None where speeds are not judged
    hardware: Hardware | Gap | None = None  # the tests below NCCL; a Gap where they should have run, None for `probe`
    gpus_by_node: tuple[tuple[int, ...], ...] = ()  # several nodes: the same for each of `nodes`
    rails: tuple[RailTest, ...] | Gap | None = None  # RDMA ports by themselves; as for `hardware`
    storage: StorageSpeed | None = None  # the checkpoint directory of one node, where one was given
    between: Between | None = None  # several nodes: what they learnt of the ways between them
    isolation: Isolation | None = None  # what groups of these nodes showed


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """A check of one node at a time; a fact that this node lacks skips it for this node only."""

    name: str
    promise: str  # what holds when the check is silent
    blame: Blame
    reads: tuple[str, ...]  # the facts that it looks at
    blind_to: str  # what it can't see
    judge: Callable[[NodeFacts, Case], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class RunCheck:
    """A check of the run as a whole: its trials, or its nodes against each other."""

    name: str
    promise: str
    blame: Blame
    reads: tuple[str, ...]
    blind_to: str
    judge: Callable[[Case], Iterator[Finding]]


Check = NodeCheck | RunCheck


def all_checks() -> tuple[Check, ...]:
    """Return the CHECK of every file in this package and in `run`, by name."""
    return _by_name((*_checks_of(__package__), *_checks_of(f"{__package__}.run")))


def fact_checks() -> tuple[Check, ...]:
    """Return the checks that need no run, and import no others: `probe` is to answer at once."""
    return _by_name(_checks_of(__package__))


def _checks_of(name: str) -> Iterator[Check]:
    package = importlib.import_module(name)
    for found in pkgutil.iter_modules(package.__path__, f"{name}."):
        if not found.ispkg and hasattr(module := importlib.import_module(found.name), "CHECK"):
            yield module.CHECK


def _by_name(checks: Iterable[Check]) -> tuple[Check, ...]:
    return tuple(sorted(checks, key=lambda check: check.name))


def describe(check: Check) -> CheckDescription:
    """Return what a list of checks shows."""
    return CheckDescription(check.name, check.promise, check.blame, check.reads, check.blind_to)


def ran_checks(checks: tuple[Check, ...]) -> tuple[RanCheck, ...]:
    """Return what a report says of the checks that had their turn."""
    return tuple(RanCheck(check.name, check.blame, check.promise) for check in checks)


def run_checks(checks: tuple[Check, ...], case: Case) -> tuple[tuple[Finding, ...], tuple[SkippedCheck, ...]]:
    """Return what the checks found, and which could not look and why.

    A check that raises UnreadableFact lacked a fact; any other exception is its own defect and is marked as such.
    """
    findings: list[Finding] = []
    skipped: list[SkippedCheck] = []
    for check in checks:
        for subject, judge in _calls(check, case):
            try:
                findings += judge()  # an iterator: what it found before a fact was missing stands
            except UnreadableFact as error:
                skipped.append(SkippedCheck(check.name, check.blame, f"{subject}{error}", crashed=False))
            except Exception as error:  # noqa: BLE001  one check's defect must not end the others
                reason = f"{subject}{type(error).__name__}: {error}"
                skipped.append(SkippedCheck(check.name, check.blame, reason, crashed=True))
    return tuple(findings), tuple(skipped)


def _calls(check: Check, case: Case) -> Iterator[tuple[str, Callable[[], Iterator[Finding]]]]:
    match check:
        case RunCheck():
            yield "", partial(check.judge, case)
        case NodeCheck():
            for i, node in enumerate(case.nodes):
                own = replace(case, gpus=case.gpus_by_node[i]) if case.gpus_by_node else case
                yield f"{node.host}: " if len(case.nodes) > 1 else "", partial(check.judge, node, own)
