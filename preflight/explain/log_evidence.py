"""The evidence that one pass over the logs collects for the causes, in bounded memory."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from preflight.explain import run_ends
from preflight.explain.collective_waits import Waits
from preflight.explain.context_lines import Raised, read_exception
from preflight.explain.event import Authority, Event, Moment
from preflight.explain.flight_recorder import Recording
from preflight.explain.job_progress import NcclStarts, PhaseRecord
from preflight.explain.last_frames import LastFrame
from preflight.explain.last_run import Earlier
from preflight.explain.line_prefix import read_moment
from preflight.explain.stuck_answer import StuckAnswer
from preflight.explain.survival import Survival, of_the_job
from preflight.explain.unusual_lines import UnusualLine
from preflight.explain.work_steps import shows_work
from preflight.model.job_phases import Phase

FIRST_LINES, CLEARLY_LINES = 30, 50
LAST_LINES = 10
KEPT_PER_SIGN = 200
KEPT_RANKS_PER_SIGN = 4096
TAIL_LINES = 30
RECORDED = "recorder.entry"
SIGNALS = {number.value: number.name for number in signal.Signals}
NODE_ENDED = "peer.rendezvous"
PHASE = "phase: "  # with what the job does


@dataclass(slots=True)
class SourceState:
    """The state of reading one log, and the data collected from this log."""

    name: str
    size_bytes: int = 0
    lines: int = 0
    note: str = ""
    is_whole: bool = True  # read to its end
    file_rank: str = ""
    earlier: Earlier = field(default_factory=Earlier)  # runs in the same log, which were not read
    phases: list[PhaseRecord] = field(default_factory=list)  # before its last failures, else at its end
    failed_at: int | None = None  # order of the first line of its last failures
    failed_steps: int = 0  # the steps of work that it had reported by then
    tail: tuple[str, ...] = ()
    table: dict[str, str] = field(default_factory=dict)  # exit code by rank, of torchrun's table of failures
    steps: int = 0  # of its work, counted for a while after each alarm
    prepared: int = 0  # steps of data preparation after the last alarm


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """The information in the logs about one process.

    A negative exit code in `code` is a signal. `waited_for` is "" if the process did not wait.
    """

    # `first` is the first abnormal line that the process itself wrote. `raised` is the last line of the first
    # traceback. A launcher reports `code`. `waited_for` is the collective in which the process waited.

    process: str  # "rank 3", else the prefix of a worker's lines or the name of its log
    rank: str
    first: Event | None
    raised: Event | None
    code: str
    waited_for: str
    has_log: bool  # a file of its own, which may be empty

    @property
    def how_it_ended(self) -> str:
        """Return how the process ended, such as "KeyError, exit code 1", "SIGKILL" or "no error in its log".

        Return "" if the logs do not show how the process ended.
        """
        words = []
        if self.raised is not None and (error := read_exception(self.raised.text)) is not None:
            words.append(error.type.rpartition(".")[2])
        if self.code.startswith("-"):
            words.append(SIGNALS.get(int(self.code[1:]), f"signal {self.code[1:]}"))
        elif self.code:
            words.append(f"exit code {self.code}")
        if self.first is None and self.has_log:
            words.append("no error in its log")
        return ", ".join(words)


@dataclass(slots=True)
class LogEvidence:
    """All data from the logs that help to find the cause, such as the events by pattern and by cause."""

    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    by_cause: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    ranks: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    waits: Waits = field(default_factory=Waits)
    sources: list[SourceState] = field(default_factory=list)
    starts: NcclStarts = field(default_factory=NcclStarts)
    exceptions: list[tuple[Event, Raised]] = field(default_factory=list)
    echoes: list[tuple[Event, Raised]] = field(default_factory=list)  # raised because of another rank
    without_traceback: list[tuple[Event, Raised]] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    dumps: dict[str, int] = field(default_factory=dict)  # the number of each recording's source
    stuck: list[tuple[int, StuckAnswer]] = field(default_factory=list)  # each with the number of its source
    unusual: Callable[[frozenset[tuple[int, int]]], tuple[UnusualLine, ...]] = lambda _quoted: ()  # without quoted ones
    frames: dict[tuple[int, int], tuple[Event, LastFrame]] = field(default_factory=dict)  # by the exception's place
    versions: dict[str, str] = field(default_factory=dict)  # of libraries, as they print them
    world_size: int = 0
    empty_logs: set[str] = field(default_factory=set)  # ranks whose log exists and holds nothing
    frameworks: Counter[str] = field(default_factory=Counter)
    launchers: set[str] = field(default_factory=set)
    timeout_options_s: list[float] = field(default_factory=list)
    visible_gpus: str = ""
    survival: Survival = field(default_factory=lambda: Survival({}, (), (), ()))
    processes: tuple[ProcessRow, ...] = ()  # once it is settled (endings.py)

    def keep(self, event: Event) -> bool:
        """Record an event, and return whether the event was recorded.

        If enough events of the same kind were recorded before, only an event of a new rank is recorded.
        """
        self.counts[event.sign] += 1
        known = self.ranks[event.sign]
        kept = self.events[event.sign]
        is_new_rank = event.rank not in known and len(known) < KEPT_RANKS_PER_SIGN
        if len(kept) >= KEPT_PER_SIGN and not is_new_rank:
            return False
        known.add(event.rank)
        kept.append(event)
        if event.cause:
            self.by_cause[event.cause].append(event)
        return True

    def forget_traceback(self, source: int, line: int) -> None:
        """Remove the traceback event in line `line` of log number `source`.

        The method is called if Python ignored the exception of this traceback.
        """
        kept = self.events[run_ends.TRACEBACK]
        kept[:] = [event for event in kept if (event.source, event.line) != (source, line)]

    def settle(self) -> None:
        """Drop the events that the run survived.

        Call this method once, after every log was read.
        """
        # If only Python warnings or torchrun's lines about another node remain, the remaining events are dropped, too,
        # because nothing ended the run.
        steps = {number: source.steps for number, source in enumerate(self.sources)}
        deaths = self.of(*run_ends.DEATHS)
        restarts, readies = self.of(run_ends.RESTART), self.of(run_ends.READY)
        starts = self.of(run_ends.START)
        worked = {number for number, source in enumerate(self.sources) if source.phases or shows_work(source.tail)}
        self.events[run_ends.SUCCESS] = of_the_job(self.of(run_ends.SUCCESS), deaths, starts, worked)
        stops = self.of(run_ends.TOLD_TO_STOP)
        successes, lefts = self.of(run_ends.SUCCESS), self.of(run_ends.LEFT)
        prepared = {number: source.prepared for number, source in enumerate(self.sources)}
        self.survival = Survival(steps, successes, deaths, restarts, readies, starts, stops, lefts, prepared)
        for sign, events in self.events.items():
            if sign in run_ends.ALARMS:
                self.events[sign] = list(filter(self._is_left, events))
            else:
                self.events[sign] = [e for e in events if e.authority is Authority.SILENCE or self._is_left(e)]
        for cause, events in self.by_cause.items():
            self.by_cause[cause] = [e for e in events if e.authority is Authority.SILENCE or self._is_left(e)]
        for raised in (self.exceptions, self.echoes, self.without_traceback):
            raised[:] = [(event, error) for event, error in raised if self._is_left(event)]
        self.frames = {place: each for place, each in self.frames.items() if self._is_left(each[0])}
        if all(map(self._proves_nothing, self.alarms())):
            for kept in (*self.events.values(), *self.by_cause.values()):
                kept[:] = [event for event in kept if not self._proves_nothing(event)]

    @property
    def last_without_traceback(self) -> list[tuple[Event, Raised]]:
        """The exceptions without a traceback among the last lines of a log."""
        return [one for one in self.without_traceback if self.sources[one[0].source].lines - one[0].line < LAST_LINES]

    def _proves_nothing(self, event: Event) -> bool:
        """Return whether an event is a Python warning, or reports the end of another node after ranks had exited."""
        lefts = (left for left in self.of(run_ends.LEFT) if left.source == event.source)
        has_left = any(0 < event.line - left.line < CLEARLY_LINES for left in lefts)
        return event.is_warning or (event.sign == NODE_ENDED and has_left)

    def _is_left(self, event: Event) -> bool:
        return not self.survival.survived(event)

    def has(self, *signs: str) -> bool:
        """Return whether an event with one of the names `signs` occurred.

        An event that the run survived does not count.
        """
        return any(self.events.get(sign) for sign in signs)

    def of(self, *signs: str) -> tuple[Event, ...]:
        """Return the events with one of the names `signs`, the earliest first."""
        return earliest(event for sign in signs for event in self.events.get(sign, ()))

    def best(self, cause_id: str) -> tuple[Event, ...]:
        """Return the events of the cause `cause_id` that are closest to the root cause, the earliest first."""
        events = self.by_cause.get(cause_id, [])
        if not events:
            return ()
        top = min(event.authority for event in events)
        return earliest(event for event in events if event.authority == top)

    def failures(self) -> tuple[Event, ...]:
        """Return every event that reports a failure, the earliest first.

        Texts that healthy runs also print do not count.
        """
        kept = (event for events in self.by_cause.values() for event in events)
        return earliest(event for event in kept if event.authority is not Authority.SILENCE)

    def timeouts(self) -> tuple[Event, ...]:
        """Return the events that report a timeout, the earliest first."""
        return earliest(e for e in self.failures() if e.authority is Authority.TIMEOUT)

    def alarms(self) -> tuple[Event, ...]:
        """Return every line that reports a failure, a death, an exception or an order to stop, the earliest first."""
        raised = (event for event, _ in (*self.exceptions, *self.echoes))
        return earliest((*self.failures(), *self.of(*run_ends.ALARMS), *raised))

    def dead_workers(self) -> tuple[Event, ...]:
        """Return the lines in which a launcher or an engine reports that one of its processes is gone."""
        return self.of("peer.actor", "peer.child")

    def successes(self) -> tuple[Event, ...]:
        """Return the lines that report that the job completed, the earliest first."""
        return self.of(run_ends.SUCCESS)

    def raised(self) -> list[tuple[Event, Raised]]:
        """Return the exceptions in the job's logs, the earliest exception first, each with its log event.

        Exceptions of the script that starts the job are left out.
        """
        # An exception is the script's if the exception is in the first lines of its log, far before the first exception
        # of a rank.
        places = {event.order: place for place, event in enumerate(earliest(event for event, _ in self.exceptions))}
        raised = sorted(self.exceptions, key=lambda one: places[one[0].order])
        first = next((event for event, _ in raised if event.rank.isdigit()), None)

        def is_script_s(event: Event) -> bool:
            if first is None or event.rank or event.source != first.source:
                return False
            if event.line - self.sources[event.source].earlier.lines > FIRST_LINES:
                return False
            return first.line - event.line > CLEARLY_LINES

        return [(event, error) for event, error in raised if not is_script_s(event)]

    def frame(self, event: Event) -> LastFrame | None:
        """Return the last frame of the traceback that ends at `event`, or None if there is no traceback."""
        framed = self.frames.get((event.source, event.line))
        return framed[1] if framed is not None else None

    def waited(self) -> tuple[tuple[Event, LastFrame], ...]:
        """Return (last line, last frame) for each traceback that ends in a collective call in the user's own code."""
        return tuple(each for each in self.frames.values() if each[1].call and each[1].is_own)

    def of_phase(self, phase: PhaseRecord | None) -> tuple[Event, ...]:
        """Return the log line of `phase` as an event to quote, or () if `phase` is None."""
        if phase is None:
            return ()
        source = next(number for number, source in enumerate(self.sources) if phase in source.phases)
        sign = f"{PHASE}{phase.phase.value}"
        moment = read_moment(phase.text)
        return (Event(sign, "", Authority.SILENCE, source, phase.line, 0, "", "", moment, phase.text.strip()[-400:]),)

    def phase(self, *wanted: Phase) -> PhaseRecord | None:
        """Return the phase of the first log whose phase is in `wanted`, or None if there is no such log.

        A log's phase is the activity of the job before the first failure in the log.
        """
        firsts = (phase for source in self.sources for phase in source.phases[:1])
        return next((phase for phase in firsts if phase.phase in wanted), None)

    def recorded(self, rank: str, text: str) -> tuple[Event, ...]:
        """Return `text`, a problem found in the flight recorder dump of `rank`, as an event to quote.

        Return () if there is no dump of `rank`.
        """
        found = (self.dumps[each.source] for each in self.recordings if each.rank == rank and each.source in self.dumps)
        return tuple(
            Event(RECORDED, "", Authority.SILENCE, source, 1, 0, rank, "", Moment(), text) for source in list(found)[:1]
        )

    def timeout_ms(self) -> int:
        """Return the longest timeout of the collectives that timed out, in milliseconds.

        Return 0 if the log shows no timeout.
        """
        return max((wait.timeout_ms for wait in self.waits.all()), default=0)


def earliest(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the events, the earliest first.

    If a time stamp is missing, or if the formats of the time stamps differ, sort the events by position in the logs.
    """
    listed = tuple(events)
    clocks = {event.moment.clock for event in listed}
    is_by_time = len(clocks) == 1 and "" not in clocks
    return tuple(sorted(listed, key=lambda e: (e.moment.seconds if is_by_time else 0, e.order)))
