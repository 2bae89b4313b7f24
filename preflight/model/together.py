"""What the launchers of several nodes tell each other: records that cross hosts as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.facts import NodeFacts
from preflight.model.finding import Finding, SkippedCheck
from preflight.model.isolation import Way
from preflight.model.run import Measure, OwnEnv, StageLimits
from preflight.model.trial import Candidate, TrialResult

PROTOCOL = 1  # of these records and of the messages around them


@dataclass(frozen=True, slots=True)
class Hello:
    """Who calls. Nothing else is read of a caller before this has been found to fit."""

    protocol: int
    preflight: str  # version
    run_id: str
    nodes: int
    node_rank: int
    host: str
    left_s: float  # before this node's own deadline


@dataclass(frozen=True, slots=True)
class Alone:
    """What one node found by itself, before the common trials."""

    host: str
    ranks: int
    backend: str
    dialect: str
    is_cpu_path: bool
    problem: str  # what preflight could not do there
    trials: tuple[TrialResult, ...]
    findings: tuple[Finding, ...]
    skipped_checks: tuple[SkippedCheck, ...]
    env: tuple[tuple[str, str], ...]  # what it needs to work by itself
    inherits_tuning: bool
    netif: str  # through which it reached the meeting, "" where that was loopback or is not known
    free_bytes_per_rank: int
    gpus: tuple[int, ...]  # nvml_index of those that were chosen
    facts: NodeFacts


@dataclass(frozen=True, slots=True)
class Common:
    """What all nodes do together, as one of them is told it."""

    nodes: int
    world_size: int
    first_rank: int
    store_host: str
    candidates: tuple[Candidate, ...]
    own_env: tuple[OwnEnv, ...]
    screen_all: bool
    measures: tuple[Measure, ...]
    duel_measures: tuple[Measure, ...]
    duel_turns: int
    limits: StageLimits
    left_s: float  # before the deadline of the node that has least
    node_sizes: tuple[int, ...] = ()  # ranks of each node; for node 0 only
    ways: tuple[Way, ...] = ()  # between the nodes; for node 0 only
