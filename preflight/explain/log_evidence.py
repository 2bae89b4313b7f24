"""Everything that the one pass over the logs kept, in bounded memory, for the causes to judge."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from preflight.explain.collective_waits import Waits
from preflight.explain.context_lines import Raised
from preflight.explain.event import Authority, Event
from preflight.explain.flight_recorder import Recording
from preflight.explain.job_progress import NcclStarts, Phase, PhaseRecord, steps_of

KEPT_PER_SIGN = 200
KEPT_RANKS_PER_SIGN = 4096
TAIL_LINES = 30
STEPS_AFTER = 3  # of training, after which a failure was survived


@dataclass(slots=True)
class SourceState:
    """One log while it is read, and what is kept of it."""

    name: str
    size_bytes: int = 0
    lines: int = 0
    note: str = ""
    file_rank: str = ""
    phases: list[PhaseRecord] = field(default_factory=list)  # before its first failures, else at its end
    failed_at: int | None = None  # order of the first line that tells of a failure
    tail: tuple[str, ...] = ()


@dataclass(slots=True)
class LogEvidence:
    """The events, by sign and by cause, and what surrounds them."""

    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    by_cause: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    ranks: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    waits: Waits = field(default_factory=Waits)
    sources: list[SourceState] = field(default_factory=list)
    starts: NcclStarts = field(default_factory=NcclStarts)
    exceptions: list[tuple[Event, Raised]] = field(default_factory=list)
    without_traceback: list[tuple[Event, Raised]] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    world_size: int = 0
    frameworks: Counter[str] = field(default_factory=Counter)
    timeout_options_s: list[float] = field(default_factory=list)
    visible_gpus: str = ""

    def keep(self, event: Event) -> None:
        """Take an event, unless enough of its kind and rank were taken."""
        self.counts[event.sign] += 1
        known = self.ranks[event.sign]
        kept = self.events[event.sign]
        is_new_rank = event.rank not in known and len(known) < KEPT_RANKS_PER_SIGN
        if len(kept) >= KEPT_PER_SIGN and not is_new_rank:
            return
        known.add(event.rank)
        kept.append(event)
        if event.cause:
            self.by_cause[event.cause].append(event)

    def has(self, *signs: str) -> bool:
        """Tell whether any of the signs was seen."""
        return any(self.counts[sign] for sign in signs)

    def of(self, *signs: str) -> tuple[Event, ...]:
        """Return the events of some signs, the earliest first."""
        return earliest(event for sign in signs for event in self.events.get(sign, ()))

    def best(self, cause_id: str) -> tuple[Event, ...]:
        """Return the events of a cause that have the highest authority among them, the earliest first."""
        events = self.by_cause.get(cause_id, [])
        if not events:
            return ()
        top = min(event.authority for event in events)
        return earliest(event for event in events if event.authority == top)

    def failures(self) -> tuple[Event, ...]:
        """Return every event that tells of a failure, the earliest first; not what healthy runs say as well."""
        kept = (event for events in self.by_cause.values() for event in events)
        return earliest(event for event in kept if event.authority is not Authority.SILENCE)

    def timeouts(self) -> tuple[Event, ...]:
        """Return the events that say that somebody waited in vain, the earliest first."""
        return earliest(e for e in self.failures() if e.authority is Authority.TIMEOUT)

    def successes(self) -> tuple[Event, ...]:
        """Return the lines that say that the job reached its end."""
        return self.of("context.success")

    def phase(self, *wanted: Phase) -> PhaseRecord | None:
        """Return the first log's last phase before its first failure that is one of those wanted."""
        firsts = (phase for source in self.sources for phase in source.phases[:1])
        return next((phase for phase in firsts if phase.phase in wanted), None)

    def went_on(self) -> bool:
        """Tell whether training went on after the last line that tells of a failure: whatever it was, it was survived.

        Only the end of a log is looked at, and only where no launcher tells of a death: what a dying process had still
        in its buffers can follow its last words.
        """
        if self.has("context.died", "context.aborted", "context.task_exit"):
            return False
        failed = (*self.failures(), *(event for event, _ in self.exceptions))
        if not failed:
            return False
        last = max(failed, key=lambda event: event.order)
        tail = self.sources[last.source].tail
        after = max((i + 1 for i, line in enumerate(tail) if last.match and last.match in line), default=0)
        return len(steps_of(tail[after:])) >= STEPS_AFTER

    def timeout_ms(self) -> int:
        """Return the longest collective timeout that ended the run, in milliseconds; 0 where the log names none."""
        return max((wait.timeout_ms for wait in self.waits.all()), default=0)


def earliest(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events by time where all carry one clock, else by place: logs are exported in every order."""
    listed = tuple(events)
    clocks = {event.moment.clock for event in listed}
    is_by_time = len(clocks) == 1 and "" not in clocks
    return tuple(sorted(listed, key=lambda e: (e.moment.seconds if is_by_time else 0, e.order)))
