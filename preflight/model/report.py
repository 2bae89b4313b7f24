"""The complete result of one run of `preflight check`, and the settings that it advises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from preflight.errors import NotReady
from preflight.model.baseline import Judged
from preflight.model.change import Change
from preflight.model.counters import CounterChange
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Finding, RanCheck, SkippedCheck
from preflight.model.gpu_test import GpuTest, PairTruth
from preflight.model.isolation import NO_ISOLATION, Isolation
from preflight.model.launchers import NODE_COUNTS
from preflight.model.links import Expected
from preflight.model.nccl_diagnostics import NcclDiagnosis
from preflight.model.network_survey import NetworkSurvey
from preflight.model.placement import Origin
from preflight.model.shown import Printable
from preflight.model.storage import NO_DIRECTORY, StorageSpeed
from preflight.model.trial import NO_CONTROL, Comparison, Control, LeftOut, RailTest, TrialResult
from preflight.model.word import Word

PAUSED = "paused"  # key in durations_s: how long the whole run was suspended, if it was
SCHEMA_VERSION = 1
NOT_WORKED_OUT = Gap("not computed")
NOT_TESTED = Gap("not tested")
ONE_NODE = Gap("nothing was tested between nodes")


@dataclass(frozen=True, slots=True)
class NodeEnv:
    """The environment variables of one node, if nodes need different values."""

    host: str
    node_rank: int
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommended settings, variables to remove, timeouts and GPUs.

    Variables in `one_node_only` must not be set for jobs on several nodes.
    """

    # `evidence` names the test run that justifies each change.

    env: tuple[tuple[str, str], ...]
    unset: tuple[str, ...]
    evidence: tuple[tuple[str, str], ...]
    one_node_only: tuple[str, ...]
    pg_timeout_s: int | Gap
    init_timeout_s: int | Gap
    gpus: tuple[str, ...]  # UUIDs, if `--gpus` named a strict subset
    reason: str  # one sentence: why these settings, or why none
    gpu_env: tuple[tuple[str, str], ...] = ()  # selects these GPUs for the job; no trial tested it
    timeout_env: tuple[tuple[str, str], ...] = ()  # the timeouts, for scripts that read them; NCCL does not
    timeout_reason: str = ""  # the derivation of the timeouts
    nodes: tuple[NodeEnv, ...] = ()  # the settings of each node, if they differ; `env` then holds this node's

    def applied_to(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return a copy of `environ` as if the `.env` had been sourced on this node.

        In a job of several nodes the variables in `one_node_only` keep their values.
        """
        several = next(filter(None, map(environ.get, NODE_COUNTS)), "1") != "1"
        left = {name for name in self.one_node_only if several}
        kept = {name: value for name, value in environ.items() if name in left or name not in self.unset}
        own = {name: value for name, value in self.env if name not in left}
        return kept | dict(self.gpu_env) | own | dict(self.timeout_env)


class Verdict(Word):
    """The verdict on whether the job can start."""

    READY = "ready"
    READY_WITH_ENV = "ready_with_env"
    NOT_READY = "not_ready"
    UNKNOWN = "unknown"


class NodeVerdict(Word):
    """The verdict on whether the node is accepted, given with --accept only."""

    ACCEPT = "accept"
    REJECT = "reject"
    UNKNOWN = "unknown"


class RunPhaseEnd(Word):
    """The progress that a phase of the run made before the run ended."""

    COMPLETED = "completed"
    PARTIAL = "partial"  # it was cut short; the report holds its results until then
    NOT_REACHED = "not_reached"
    NOT_NEEDED = "not_needed"  # earlier phases had decided the verdict


@dataclass(frozen=True, slots=True)
class RunPhase:
    """A phase of the run. The report lists the phases in the order in which they run."""

    name: str
    end: RunPhaseEnd
    detail: str  # its result, or what cut it short


class SpeedJudge(Word):
    """The kind of reference by which speeds were judged."""

    POLICY = "policy"  # the site's floors
    BASELINE = "baseline"  # what known-good nodes reach
    LINKS = "links"  # the speeds that the links should reach
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class JudgedBy:
    """A reference with which speeds were compared.

    If there are several references, speeds below one of them are enough to reject the node.
    """

    by: SpeedJudge
    detail: str = field(metadata={"json": "told"})  # the file and its content, or why no speed could be judged


@dataclass(frozen=True, slots=True, repr=False)
class Report(Printable):
    """The complete report of a run."""

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
    phases: tuple[RunPhase, ...] = ()
    checks: tuple[RanCheck, ...] = ()
    expected: tuple[Expected, ...] | Gap = NOT_WORKED_OUT  # of the sizes that were measured
    p2p: tuple[PairTruth, ...] | Gap = NOT_TESTED  # below NCCL: what arrives between two GPUs
    gpu_tests: tuple[GpuTest, ...] | Gap = NOT_TESTED  # below NCCL: GEMMs and host copies of each GPU
    counters: tuple[CounterChange, ...] | Gap = NOT_TESTED  # of errors and bytes, over the run
    judged_by: tuple[JudgedBy, ...] = ()  # about speeds
    beside_baseline: tuple[Judged, ...] = ()  # every repetition as a share of what good nodes reach
    launch: tuple[Origin, ...] = ()  # several nodes: this node's position, with the source of each value
    between: NetworkSurvey | Gap = ONE_NODE  # several nodes: the network paths between them
    storage: StorageSpeed | Gap = NO_DIRECTORY  # one node: the directory of --checkpoint-dir
    rails: tuple[RailTest, ...] = ()  # tests of this node's RDMA ports, one at a time
    nccl_diagnosis: tuple[NcclDiagnosis, ...] = ()  # NCCL 2.31 and later: what its own diagnosis printed, if it was run
    shadow: bool = False  # --shadow: preflight exited with 0; `exit_code` is the code without --shadow
    isolation: Isolation = NO_ISOLATION  # several nodes that fail together, or are slow: which is at fault
    narrowed: str = ""  # the options that left something out: --skip, --tests, --sizes, --collectives
    control: Control = NO_CONTROL  # the runs that show whether a failure depends on the settings
    good_at: str = ""  # --history: when this node was last good (RFC 3339), if it is not now
    changed: tuple[Change, ...] = ()  # what differs since then and may matter, most suspicious first
    parts_tried: tuple[str, ...] = ()  # this node's GPUs by UUID, RDMA ports by GUID; empty if a run was cut short

    @property
    def in_short(self) -> str:
        """Return the verdict in one sentence."""
        return self.headline

    def raise_unless_ready(self, *, allow_unknown: bool = False) -> None:
        """Raise NotReady with the headline, unless the job may start.

        If `allow_unknown` is true, the verdict UNKNOWN raises no exception.
        """
        if self.exit_code != 0 and not (allow_unknown and self.verdict is Verdict.UNKNOWN):
            raise NotReady(self.headline, self.exit_code)
