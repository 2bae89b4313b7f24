"""The messages that the launchers of several nodes exchange as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from preflight.model.facts import NodeFacts
from preflight.model.finding import Finding, RanCheck, SkippedCheck
from preflight.model.network_survey import NetworkSurvey
from preflight.model.run_spec import NodePlace, TrialPlan
from preflight.model.trial import TrialResult

PROTOCOL = 2  # of these records and of the messages around them


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a node that connects to node 0.

    The message identifies the node and the run that the node belongs to.
    """

    # Node 0 reads nothing else from the connection before node 0 has accepted the node.

    protocol: int
    preflight: str  # version
    run_id: str
    nodes: int
    node_rank: int
    host: str
    left_s: float  # before this node's own deadline


@dataclass(frozen=True, slots=True)
class SoloResult:
    """The result of one node alone, before the test runs on all nodes."""

    host: str
    ranks: int
    backend: str
    dialect: str
    is_cpu_path: bool
    problem: str  # what preflight could not do there
    trials: tuple[TrialResult, ...]
    findings: tuple[Finding, ...]
    skipped_checks: tuple[SkippedCheck, ...]
    env: tuple[tuple[str, str], ...]  # the settings that its own ranks need
    inherits_tuning: bool
    netif: str  # the interface to the rendezvous endpoint; "" if that is loopback or not known
    free_bytes_per_rank: int
    gpus: tuple[int, ...]  # nvml_index of those that were chosen
    facts: NodeFacts
    checks: tuple[RanCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class JointPlan:
    """The plan for the test runs that use all nodes. Node 0 sends one plan to each node."""

    place: NodePlace
    trials: TrialPlan
    left_s: float  # before the deadline of the node that has least


@dataclass(frozen=True, slots=True)
class JointPhase:
    """The state of a run on several nodes: the results of the single nodes, and the progress of the test runs."""

    solo_results: Mapping[int, SoloResult]  # by node rank
    has_begun: bool  # whether the common trials have
    network: NetworkSurvey | None  # the survey of the network paths between the nodes


NO_JOINT_PHASE = JointPhase({}, False, None)
