"""The result of a check: a problem, who has to act, the evidence and the fix."""

from __future__ import annotations

from dataclasses import dataclass, field

from preflight.model.repairs import SOURCE_ENV
from preflight.model.word import Word


class Severity(Word):
    """The severity of a problem. FAIL means not ready. WARN and INFO do not stop a job."""

    FAIL = "fail"
    WARN = "warn"
    INFO = "info"


class Blame(Word):
    """The party that has to solve a problem. Only HOST, GPU and FABRIC may reject a node."""

    APPLICATION = "application"
    CONFIGURATION = "configuration"
    CONTAINER = "container"
    HOST = "host"
    GPU = "gpu"
    FABRIC = "fabric"
    HARNESS = "harness"


class CheckOutcome(Word):
    """The five ways in which a check ends."""

    PASSED = "passed"  # what it verifies holds
    FOUND = "found"
    COULD_NOT_LOOK = "could_not_look"  # a fact could not be read, or the check itself broke
    NOT_APPLICABLE = "not_applicable"  # this machine has nothing that it could judge
    NOT_RUN = "not_run"  # the trial or test that it judges was not run


class Unseen(Word):
    """The effect on the verdict if a check was inconclusive, or if its measurement was not run."""

    NOTHING = "nothing"  # only a line on the page: its findings reject no node, or other checks find the same
    ACCEPTANCE = "acceptance"  # the node is not accepted, because a finding of this check could reject it
    ANSWER = "answer"  # ready or not is unknown, because the site's policy requires the check


REJECTS_A_NODE = frozenset({Blame.HOST, Blame.GPU, Blame.FABRIC})


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observed value, and the place where it was read or measured."""

    what: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with its subject, fix and evidence."""

    check: str
    blame: Blame = field(metadata={"json": "class"})
    severity: Severity
    subject: str
    problem: str
    fix: str
    evidence: tuple[Evidence, ...]
    waived: str = ""  # until when and why the site's policy lets it pass
    is_unconfirmed: bool = field(default=False, metadata={"json": "unconfirmed"})  # observed once: rejects no node
    parts: tuple[str, ...] = ()  # the faulty parts: GPUs by UUID, pairs of them (UUID+UUID), RDMA ports by GUID
    workaround: str = ""  # what lets jobs run until `fix` is done; "" if there is none

    @property
    def workaround_apart(self) -> str:
        """Return the workaround, or "" if the workaround only says to source the settings."""
        return "" if SOURCE_ENV in self.workaround else self.workaround


@dataclass(frozen=True, slots=True)
class CheckDescription:
    """A check, as `preflight checks` lists it."""

    name: str
    promise: str
    blame: Blame = field(metadata={"json": "class"})
    reads: tuple[str, ...]
    blind_to: str
    unseen: Unseen


@dataclass(frozen=True, slots=True)
class CheckList:
    """The document that `preflight checks --json` writes."""

    checks: tuple[CheckDescription, ...]


@dataclass(frozen=True, slots=True)
class RanCheck:
    """A check, and its outcome."""

    check: str
    blame: Blame = field(metadata={"json": "class"})
    promise: str  # what holds if it passed
    outcome: CheckOutcome = CheckOutcome.NOT_RUN
    reason: str = ""  # why it was inconclusive, does not apply or was not run


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """A check that was inconclusive or was not run, and the reason.

    A skipped check never counts as passed.
    """

    check: str
    blame: Blame = field(metadata={"json": "class"})
    reason: str
    crashed: bool  # the check itself failed: a defect of preflight, not of the machine
    outcome: CheckOutcome = CheckOutcome.COULD_NOT_LOOK  # or NOT_RUN
    costs: Unseen = Unseen.ACCEPTANCE
