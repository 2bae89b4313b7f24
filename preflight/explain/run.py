"""Logs in, an explanation out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from preflight.explain.cause import Sign, all_causes
from preflight.explain.event import Event
from preflight.explain.flight_recorder import Recording
from preflight.explain.phases import Phase
from preflight.explain.prefix import read_moment
from preflight.explain.ranking import Ranked, rank, timeline, why_consequence
from preflight.explain.scan import Scanner
from preflight.explain.seen import Seen, SourceState
from preflight.explain.timeouts import parting, useless_advice
from preflight.model.explanation import (
    EXIT_CODES,
    SCHEMA_VERSION,
    Consequence,
    ExplainVerdict,
    Explanation,
    NamedCause,
    Quote,
    SourceRead,
)

EVIDENCE = 6
TIMELINE = 12
TEXT = 200
TIMEOUT_CAUSES = frozenset(
    {"watchdog_timeout_straggler", "checkpoint_save_timeout", "data_preprocessing_on_rank0_timeout"}
)
CAPTURE = (
    "export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log   # one file per process: interfaces, paths, warnings",
    "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # flight recorder: which rank stood where",
    "torchrun --log-dir logs --redirects 3 --tee 3 ...   # one log per rank, standard error too",
    'sudo dmesg -T | grep -i -e xid -e oom -e "killed process"   # on every host, right after the failure',
)


@dataclass(frozen=True, slots=True)
class Log:
    """A log by name, as pieces of bytes that may end anywhere; after reading, `note()` says what was left out."""

    name: str
    chunks: Iterable[bytes]
    note: Callable[[], str] = str


def explain_text(text: str, name: str = "log") -> Explanation:
    """Explain a log that is at hand as text."""
    return explain([Log(name, [text.encode("utf-8", "surrogateescape")])])


def explain(
    logs: Iterable[Log], recordings: Iterable[Recording] = (), refused: Mapping[str, str] | None = None
) -> Explanation:
    """Read every log once and say what ended the run; `refused` holds files that could not be read, and why."""
    causes = all_causes()
    scanner = Scanner(causes)
    for log in logs:
        source = scanner.read(log.name, log.chunks)
        source.note = log.note()
    seen = scanner.seen
    seen.sources.extend(SourceState(name, note=note) for name, note in (refused or {}).items())
    seen.recordings.extend(recordings)
    named, consequences = rank(seen, causes)
    means = {sign.name: sign.means for cause in causes for sign in cause.signs}
    return _explanation(seen, named, consequences, means)


def _explanation(
    seen: Seen, named: tuple[Ranked, ...], consequences: tuple[Ranked, ...], means: dict[str, str]
) -> Explanation:
    verdict = _verdict(seen, named)
    return Explanation(
        schema_version=SCHEMA_VERSION,
        verdict=verdict,
        exit_code=EXIT_CODES[verdict],
        summary=_summary(verdict, named, seen),
        causes=tuple(_named(r, seen, means) for r in named),
        consequences=tuple(_consequence(r, seen, means) for r in consequences),
        timeline=(*_phase(seen, named), *_quotes(timeline(seen, named), seen, means, TIMELINE)),
        notes=_notes(seen, named),
        capture_next=CAPTURE if verdict is ExplainVerdict.NOT_ENOUGH_EVIDENCE or _is_unsure(named) else (),
        sources=tuple(SourceRead(s.name, s.size_bytes, s.lines, s.note) for s in seen.sources),
    )


def _verdict(seen: Seen, named: tuple[Ranked, ...]) -> ExplainVerdict:
    if named:
        return ExplainVerdict.CAUSE_NAMED
    if seen.failures() and not seen.successes():
        return ExplainVerdict.NOT_ENOUGH_EVIDENCE
    works = (
        seen.successes()
        or seen.phase(Phase.TRAINING, Phase.SAVING)
        or seen.has("context.collective", "context.nccl_step")
    )
    return ExplainVerdict.HEALTHY if works else ExplainVerdict.NOT_ENOUGH_EVIDENCE


def _summary(verdict: ExplainVerdict, named: tuple[Ranked, ...], seen: Seen) -> str:
    match verdict:
        case ExplainVerdict.CAUSE_NAMED:
            text = named[0].claim.verdict
            return text[0].upper() + text[1:]
        case ExplainVerdict.HEALTHY:
            return "Nothing in this log failed" + ("; the job reached its end." if seen.successes() else ".")
        case ExplainVerdict.NOT_ENOUGH_EVIDENCE:
            return "The log does not hold enough to name a cause."


def _is_unsure(named: tuple[Ranked, ...]) -> bool:
    return bool(named) and named[0].claim.confidence.value == "low"


def _notes(seen: Seen, named: tuple[Ranked, ...]) -> tuple[str, ...]:
    is_timeout = bool(named) and named[0].cause.id in TIMEOUT_CAUSES
    frozen = [w for w in seen.waits.all() if w.timeout_ms and w.ran_for_ms > w.timeout_ms * 1.2]
    notes = [*parting(seen), *useless_advice(seen)] if is_timeout else list(useless_advice(seen))
    if not is_timeout and not seen.timeout_options_s:
        notes = []
    if frozen:
        notes.append(
            f"A wait of {frozen[0].ran_for_ms} ms under a timeout of {frozen[0].timeout_ms} ms: "
            "the whole process stood still "
            "(swapping, a suspended container, or Python's lock)."
        )
    return tuple(notes)


def _named(ranked: Ranked, seen: Seen, means: dict[str, str]) -> NamedCause:
    cause, claim = ranked.cause, ranked.claim
    remedy = cause.remedy(seen, claim)
    because = "; ".join((claim.because, *(d for d in claim.detail if not d.isdigit() and d != "deadlock")))
    return NamedCause(
        cause=cause.id,
        verdict=claim.verdict[0].upper() + claim.verdict[1:],
        confidence=claim.confidence,
        because=f"{because}. What would confirm it: {cause.needs}",
        evidence=_quotes(claim.events, seen, means, EVIDENCE),
        remedy="\n".join(remedy.steps),
        confirm_with=cause.confirm_with,
        env=remedy.env,
    )


def _consequence(ranked: Ranked, seen: Seen, means: dict[str, str]) -> Consequence:
    events = ranked.claim.events
    ranks = tuple(dict.fromkeys(event.rank for event in events if event.rank))
    is_sign = bool(events) and bool(ranked.cause.signs) and events[0].sign in means
    return Consequence(
        cause=ranked.cause.id,
        what=means[events[0].sign] if is_sign else ranked.claim.verdict.rstrip("."),
        why=why_consequence(ranked.claim),
        ranks=ranks[:64],
        evidence=_quotes(events, seen, means, 2),
    )


def _phase(seen: Seen, named: tuple[Ranked, ...]) -> tuple[Quote, ...]:
    """Return what the job was doing before a timeout, where the log tells."""
    if not named or named[0].cause.id not in TIMEOUT_CAUSES:
        return ()
    source = next((source for source in seen.sources if source.phases), None)
    if source is None:
        return ()
    phase = source.phases[0]
    means = f"the job is {phase.phase.value}"
    return (Quote(source.name, phase.line, "", "", read_moment(phase.text).text, phase.text.strip()[-TEXT:], means),)


def _quotes(events: Iterable[Event], seen: Seen, means: dict[str, str], limit: int) -> tuple[Quote, ...]:
    """Return the first `limit` lines; a line that carries several signs once."""
    by_line = {(event.source, event.line): event for event in reversed(tuple(events))}
    return tuple(_quote(event, seen, means) for event in list(reversed(by_line.values()))[:limit])


def _quote(event: Event, seen: Seen, means: dict[str, str]) -> Quote:
    name = seen.sources[event.source].name if event.source < len(seen.sources) else ""
    return Quote(
        name,
        event.line,
        event.rank,
        event.host,
        event.moment.text,
        event.text,
        means.get(event.sign, "the program's own error"),
    )


def signs() -> tuple[Sign, ...]:
    """Return every sign of every cause."""
    return tuple(sign for cause in all_causes() for sign in cause.signs)
