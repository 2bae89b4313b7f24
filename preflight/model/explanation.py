"""The result of `preflight explain` for a failed or hung run."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.shown import Printable
from preflight.model.word import Word

SCHEMA_VERSION = 1


class ExplainVerdict(Word):
    """The possible results of an explanation."""

    CAUSE_NAMED = "cause_named"
    HEALTHY = "healthy"
    NOT_ENOUGH_EVIDENCE = "not_enough_evidence"  # something failed, and the log does not say what
    UNFINISHED = "unfinished"  # nothing failed so far, and nothing says that the run ended


class Confidence(Word):
    """How strongly the log proves a cause."""

    HIGH = "high"  # the log states the cause
    MEDIUM = "medium"  # it follows from what the log says
    LOW = "low"  # it fits, and so would other things


EXIT_CODES = {
    ExplainVerdict.HEALTHY: 0,
    ExplainVerdict.CAUSE_NAMED: 1,
    ExplainVerdict.NOT_ENOUGH_EVIDENCE: 3,
    ExplainVerdict.UNFINISHED: 3,
}


@dataclass(frozen=True, slots=True)
class Quote:
    """A line of a log, with its origin. `time`, `rank` and `host` are empty if the line does not name them."""

    source: str
    line: int
    rank: str
    host: str
    time: str
    text: str
    means: str
    match: str = ""  # the part of the line that shows it


@dataclass(frozen=True, slots=True)
class NamedCause:
    """A cause of a failure: its name, one sentence, its evidence and the steps to take."""

    cause: str
    verdict: str  # one sentence
    confidence: Confidence
    because: str  # what the confidence rests on
    evidence: tuple[Quote, ...]
    remedy: str  # one step a line
    confirm_with: str
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How one process ended, according to the logs.

    The process is a rank, or a worker that a line prefix or the name of its log identifies.
    """

    process: str  # "rank 3"
    rank: str
    first: Quote | None  # its own first abnormal line; None: no log has one
    ended: str  # "KeyError, exit code 1"; "" if no log says how
    waited_for: str  # "ALLREDUCE number 7"; "" if no log says that it waited


@dataclass(frozen=True, slots=True)
class Consequence:
    """An event in the log that follows from the cause, and the reason why it follows."""

    cause: str
    what: str
    why: str
    ranks: tuple[str, ...]
    evidence: tuple[Quote, ...]


@dataclass(frozen=True, slots=True)
class SourceRead:
    """One log, and how much of the log was read. `note` names the part that could not be read."""

    name: str
    size_bytes: int
    lines: int
    note: str


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Printable):
    """The result of `preflight explain`: what ended the run."""

    schema_version: int
    verdict: ExplainVerdict
    exit_code: int
    summary: str  # one sentence
    causes: tuple[NamedCause, ...]  # best first
    consequences: tuple[Consequence, ...]
    timeline: tuple[Quote, ...]
    notes: tuple[str, ...]
    capture_next: tuple[str, ...]  # what to switch on so that the next failure leaves more evidence
    sources: tuple[SourceRead, ...]
    unusual: tuple[Quote, ...] = ()  # lines that no healthy run prints, if no cause is proved; they name no cause
    processes: tuple[ProcessEnd, ...] = ()  # in the order of their first abnormal lines; then those without one
    processes_in_order: bool = False  # whether that is the order in time: there is one log, or one clock

    @property
    def in_short(self) -> str:
        """Return the verdict and the summary in one sentence."""
        return f"{self.verdict}: {self.summary}"
