"""The whole outcome of one run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from preflight.model.advice import Advice
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Finding, SkippedCheck
from preflight.model.placement import Origin
from preflight.model.trial import Comparison, LeftOut, TrialResult

SCHEMA_VERSION = 1


class Verdict(Enum):
    """The answer for the job."""

    READY = "ready"
    READY_WITH_ENV = "ready_with_env"
    NOT_READY = "not_ready"
    UNKNOWN = "unknown"


class NodeVerdict(Enum):
    """The answer for the node, given with --accept only."""

    ACCEPT = "accept"
    REJECT = "reject"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Report:
    """What was asked, seen, tried, found and advised."""

    schema_version: int
    preflight_version: str
    created_at: str  # ISO 8601, UTC
    verdict: Verdict
    node_verdict: NodeVerdict | Gap
    exit_code: int
    headline: str  # the verdict in one sentence
    simulated: bool
    backend: str
    profile: str
    world_size: int
    nodes: tuple[NodeFacts, ...]
    trials: tuple[TrialResult, ...]
    comparisons: tuple[Comparison, ...]
    left_out: tuple[LeftOut, ...]
    findings: tuple[Finding, ...]
    skipped_checks: tuple[SkippedCheck, ...]
    problems: tuple[str, ...]  # what preflight itself could not do
    advice: Advice
    durations_s: tuple[tuple[str, float], ...]
    launch: tuple[Origin, ...] = ()  # several nodes: where this one stands, and who said so
