"""The result of a check: a problem, who has to act, the evidence and the fix."""

from __future__ import annotations

from dataclasses import dataclass, field

from preflight.model.repairs import SOURCE_ENV
from preflight.model.word import Word


class Severity(Word):
    """The severity of a finding: FAIL means not ready; WARN and INFO do not stop a job."""

    FAIL = "fail"
    WARN = "warn"
    INFO = "info"


class Blame(Word):
    """The party that has to act. Only HOST, GPU and FABRIC may reject a node."""

    APPLICATION = "application"
    CONFIGURATION = "configuration"
    CONTAINER = "container"
    HOST = "host"
    GPU = "gpu"
    FABRIC = "fabric"
    HARNESS = "harness"


class CheckOutcome(Word):
    """The five ways in which a check ends."""

    PASSED = "passed"  # it looked, and its promise holds
    FOUND = "found"
    COULD_NOT_LOOK = "could_not_look"  # a fact could not be read, or the check itself broke
    NOT_APPLICABLE = "not_applicable"  # there is nothing here that it could look at
    NOT_RUN = "not_run"  # what it judges did not take place


class Unseen(Word):
    """The effect on the verdict if a check was inconclusive, or if the measurement that it judges was not run."""

    NOTHING = "nothing"  # it says so on the page; what the check finds never rejects a node, or others see it too
    ACCEPTANCE = "acceptance"  # a node is not accepted: what the check may find rejects it
    ANSWER = "answer"  # the site's policy asked for it: ready or not is not known


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
    is_unconfirmed: bool = field(default=False, metadata={"json": "unconfirmed"})  # seen once: it rejects no node
    parts: tuple[str, ...] = ()  # GPUs by UUID, pairs of them (UUID+UUID) and RDMA ports by GUID that it accuses
    workaround: str = ""  # what lets jobs run until `fix` is done; "" if there is none

    @property
    def workaround_apart(self) -> str:
        """Return the workaround for a page whose headline has the settings to source; "" if it is to source them."""
        return "" if SOURCE_ENV in self.workaround else self.workaround


@dataclass(frozen=True, slots=True)
class CheckDescription:
    """A check, as a list of checks describes it."""

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
    """A check, and how it ended."""

    check: str
    blame: Blame = field(metadata={"json": "class"})
    promise: str  # what holds where it passed
    outcome: CheckOutcome = CheckOutcome.NOT_RUN
    reason: str = ""  # why it was inconclusive, does not apply or was not run


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """A check that was inconclusive or was not run, and the reason.

    It is never the same as a check that found nothing.
    """

    check: str
    blame: Blame = field(metadata={"json": "class"})
    reason: str
    crashed: bool  # the check itself failed: a defect of preflight, not of the machine
    outcome: CheckOutcome = CheckOutcome.COULD_NOT_LOOK  # or NOT_RUN
    costs: Unseen = Unseen.ACCEPTANCE
