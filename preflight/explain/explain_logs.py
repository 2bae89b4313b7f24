"""Build an explanation from logs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from preflight.explain.cause import Claim, all_causes
from preflight.explain.cause_ranking import OTHERWISE, WHY, Ranked, is_before_another_run, rank_causes, timeline
from preflight.explain.endings import STOPPED, are_in_order, read_endings, silent
from preflight.explain.event import Authority, Event
from preflight.explain.flight_recorder import Recording
from preflight.explain.job_progress import is_full_bar
from preflight.explain.known_bugs import known_bug_of, surroundings
from preflight.explain.last_words import MEANS, NUMBERS, last_words, looks_like_prose, to_fetch
from preflight.explain.launchers import options_of_engines, with_launcher
from preflight.explain.line_prefix import read_moment
from preflight.explain.log_evidence import PHASE, LogEvidence, ProcessRow, SourceState, earliest
from preflight.explain.log_scanner import Scanner
from preflight.explain.run_ends import DEATH, EXCEPTION, STOP_ORDER
from preflight.explain.run_verdict import errors, is_whole, run_verdict
from preflight.explain.signatures import KnownMessage, find
from preflight.explain.stuck_answer import StuckAnswer
from preflight.explain.timeout_advice import useless_advice, when_ranks_parted
from preflight.explain.unusual_lines import body_of
from preflight.model.explanation import (
    EXIT_CODES,
    SCHEMA_VERSION,
    Confidence,
    Consequence,
    ExplainVerdict,
    Explanation,
    NamedCause,
    ProcessEnd,
    Quote,
    SourceRead,
)
from preflight.model.nccl_diagnostics import unusual
from preflight.model.units import capitalized, counted

IF_IT_HANGS = (
    "If the job hangs, run `py-spy dump --pid PID` on each rank, and get the end of every rank's log. If the log was "
    "cut, get the whole log."
)
LEFT_OUT = "The readable part of this log shows no failure, but the end of the log is missing."
AFTER_ERRORS = (
    "This log shows errors and no end of the job. Either the job continued after the errors, or the log was cut."
)
OPEN_END = "This log shows no failure and no end of the job. Either the job is still running, or the log was cut."
PROSE = "This does not look like a log. Give preflight the output of the job."
# What torchrun, DeepSpeed and SGLang print if a SIGTERM ends them, or a rank whose launcher had sent it none.
SIGTERM = re.compile(
    r"Received (?:15|Signals\.SIGTERM) death signal|got signal: 15\b|SIGTERM received\. signum=|return code = -15\b|"
    r"terminated with signal SIGTERM|Main process received SIGTERM|"
    r"`Termination signal` is detected"
)
WHO_SENT_IT = (
    "A scheduler, a time limit, a person or the program that started the job sent it. sacct -j JOBID, kubectl "
    "describe pod or journalctl may show which."
)
MAPPED = re.compile(r"(?:Map|Filter|[Tt]okeni\w{1,10})[^\n]{0,80}\(num_proc=(\d{1,4})\)")
PEER_DIED = "remote_peer_died"
UNUSUAL = "healthy runs print no such line"
LAST = "the last line of the log"
EVIDENCE = 6
TIMELINE = 12
DIAGNOSED = 3  # notes
PROCESSES = 256
FEW_SILENT = 8
TEXT = 200
LONG_PREFIXES = 60  # characters
LATE_MS = 10_000  # the watchdog looks once a second or so
TIMEOUT_CAUSES = frozenset(
    {"watchdog_timeout_straggler", "checkpoint_save_timeout", "data_preprocessing_on_rank0_timeout"}
)
NCCL_LOG = (
    "export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log   # writes one file per process: interfaces, paths, "
    "warnings"
)
KERNEL = 'sudo dmesg -T | grep -i -e xid -e oom -e amdgpu -e "killed process"   # on every host, after the failure'
CAPTURE = (
    NCCL_LOG,
    "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # flight recorder: shows where each rank "
    "was",
    "torchrun --log-dir logs --redirects 3 --tee 3 ...   # writes one log per rank, with standard error",
    KERNEL,
)
CAPTURE_OF_ENGINE = (
    "py-spy dump --pid PID   # on each worker of the hanging engine; shows where the worker waits",
    "export VLLM_LOGGING_LEVEL=DEBUG   # SGLang: --log-level debug; every worker then logs each step that it starts",
    NCCL_LOG,
    KERNEL,
)


@dataclass(frozen=True, slots=True)
class Log:
    """A log: its name, and its bytes in pieces that may end at any byte.

    Call `note` and `is_whole` only after all bytes are read.
    """

    # `note()` says what was left out of the log. `is_whole()` says whether the log was read to its end.

    name: str
    chunks: Iterable[bytes]
    note: Callable[[], str] = str
    is_whole: Callable[[], bool] = lambda: True


def explain(
    logs: Iterable[Log],
    recordings: Iterable[Recording] = (),
    refused: Mapping[str, str] | None = None,
    stuck: Iterable[StuckAnswer] = (),
    empty: Iterable[str] = (),
) -> Explanation:
    """Read every log once, and return the explanation of why the run ended.

    `recordings` are flight recorder dumps, and `refused` maps each unreadable file to the reason.
    """
    # `stuck` are reports of `preflight stuck`. `empty` has the ranks whose logs are empty.
    causes = all_causes()
    scanner = Scanner(causes)
    for log in logs:
        source = scanner.read(log.name, log.chunks)
        source.note, source.is_whole = log.note(), log.is_whole()  # known once it was read
    evidence = scanner.evidence
    evidence.sources.extend(SourceState(name, note=note) for name, note in (refused or {}).items())
    for recording in recordings:
        evidence.dumps[recording.source] = len(evidence.sources)
        evidence.recordings.append(recording)
        evidence.sources.append(SourceState(recording.source, recording.size_bytes))
    for seen in stuck:
        evidence.stuck.append((len(evidence.sources), seen))
        evidence.sources.append(SourceState(seen.name, seen.size_bytes, 1))
    evidence.empty_logs.update(empty)
    evidence.settle()
    evidence.processes = read_endings(evidence)
    named, consequences = rank_causes(evidence, causes)
    verdict = run_verdict(evidence, is_named=bool(named))
    rows = evidence.processes if verdict not in (ExplainVerdict.HEALTHY, ExplainVerdict.UNFINISHED) else ()
    is_unsure = bool(named) and named[0].claim.confidence is Confidence.LOW
    known = known_bug_of(evidence, named[0].cause.id, named[0].claim.confidence) if named else None
    steps = (f"If it is this bug: {known[0].do}. How sure: {known[0].how_sure}.",) if known else ()
    steps = (*_maybe_another_run(evidence, named[0].claim), *steps) if named else ()
    return Explanation(
        schema_version=SCHEMA_VERSION,
        verdict=verdict,
        exit_code=EXIT_CODES[verdict],
        summary=" ".join((_summary(verdict, named, evidence), *(known[1:] if known else ()))),
        causes=tuple(_named(r, evidence, steps if r is named[0] else ()) for r in named),
        consequences=tuple(_consequence(r, evidence) for r in consequences),
        timeline=_timeline(evidence, named),
        notes=(*_notes(evidence, named), *_what_to_do(verdict, evidence)),
        capture_next=_capture(evidence) if verdict is ExplainVerdict.NOT_ENOUGH_EVIDENCE or is_unsure else (),
        unusual=_unusual(evidence, verdict, named),
        processes=_processes(rows, evidence),
        processes_in_order=are_in_order(rows),
        sources=tuple(SourceRead(s.name, s.size_bytes, s.lines, s.note) for s in evidence.sources),
    )


def _capture(evidence: LogEvidence) -> tuple[str, ...]:
    if evidence.frameworks["engine"]:
        return CAPTURE_OF_ENGINE
    is_gloo = evidence.has("watchdog.gloo") and not evidence.has("watchdog.caught")
    return CAPTURE[2:] if is_gloo else CAPTURE  # the variables are NCCL's


def _summary(verdict: ExplainVerdict, named: tuple[Ranked, ...], evidence: LogEvidence) -> str:
    match verdict:
        case ExplainVerdict.CAUSE_NAMED:
            return capitalized(named[0].claim.verdict)
        case ExplainVerdict.HEALTHY:
            what = "the last run" if any(source.earlier.lines for source in evidence.sources) else "this log"
            return f"Nothing in {what} failed; the job reached its end."
        case _ if not evidence.alarms() and any(looks_like_prose(source.tail) for source in evidence.sources):
            return PROSE
        case ExplainVerdict.UNFINISHED:
            is_cut = not is_whole(evidence)
            return LEFT_OUT if is_cut else AFTER_ERRORS if errors(evidence) else OPEN_END
        case ExplainVerdict.NOT_ENOUGH_EVIDENCE:
            return _what_is_missing(evidence)


def _what_is_missing(evidence: LogEvidence) -> str:
    if (got := _terminated(evidence)) is not None:
        return (
            f"The job got SIGTERM from outside (line {got.line}) before anything failed; the log does not name the "
            "sender."
        )
    if evidence.alarms():
        return "The run failed, but the log does not show enough to name a cause."
    is_empty = not any(source.lines for source in evidence.sources)
    held = "is empty or unreadable, so it does not show" if is_empty else "does not show"
    return f"The log {held} how the run ended."


def _timeline(evidence: LogEvidence, named: tuple[Ranked, ...]) -> tuple[Quote, ...]:
    if not named:
        return _quotes(last_words(evidence), evidence, TIMELINE)
    return (*_phase(evidence, named), *_quotes(timeline(evidence, named), evidence, TIMELINE))


def _what_to_do(verdict: ExplainVerdict, evidence: LogEvidence) -> tuple[str, ...]:
    match verdict:
        case ExplainVerdict.NOT_ENOUGH_EVIDENCE:
            return (*_known_lines(evidence), *((WHO_SENT_IT,) if _terminated(evidence) else ()), *to_fetch(evidence))
        case ExplainVerdict.UNFINISHED:
            return (*_data_workers(evidence), IF_IT_HANGS)
        case ExplainVerdict.CAUSE_NAMED | ExplainVerdict.HEALTHY:
            return ()


def _known_lines(evidence: LogEvidence) -> Iterator[str]:
    """Yield the meaning and the remedy of each unusual line that contains a known message.

    The log does not prove that one of these messages ended the run.
    """
    for each in evidence.unusual(frozenset()):
        if found := find([each.text], evidence.versions, names=True):
            where = f"line {each.line}" + (f" of {evidence.sources[each.source].name}" if evidence.sources[1:] else "")
            yield f"If {where} ended the run: {found.says}. What helps: {found.remedy}"


def _unusual(evidence: LogEvidence, verdict: ExplainVerdict, named: tuple[Ranked, ...]) -> tuple[Quote, ...]:
    """Return the log lines that no healthy run prints, except the lines that the best cause quotes.

    Return () if a cause is proved or if the run was healthy. If the run may continue, return only lines that the
    program marks as errors.
    """
    if verdict is ExplainVerdict.HEALTHY:
        return ()
    if named and named[0].claim.confidence is not Confidence.LOW and named[0].cause.id != PEER_DIED:
        return ()
    quoted = frozenset((event.source, event.line) for ranked in named[:1] for event in ranked.claim.events)
    names = [source.name for source in evidence.sources]
    found = errors(evidence) if verdict is ExplainVerdict.UNFINISHED else evidence.unusual(quoted)
    return tuple(
        Quote(names[each.source], each.line, "", "", read_moment(each.text).text, _without_prefixes(each.text), UNUSUAL)
        for each in found
    )


def _without_prefixes(text: str) -> str:
    """Return a line of a log, without its prefixes if the prefixes are very long.

    With very long prefixes, a page would show nothing but the prefixes.
    """
    body = body_of(text).strip()
    return f"… {body}"[: TEXT * 2] if len(text) - len(body) > LONG_PREFIXES else text[: TEXT * 2]


def _terminated(evidence: LogEvidence) -> Event | None:
    """Return the line that reports a SIGTERM from outside, if nothing failed before that line; else None."""
    all_stopped = {row.code for row in evidence.processes if row.code} == {STOPPED}
    stopped = evidence.of("peer.sigterm") if all_stopped else ()
    got = earliest((*stopped, *(each for each in evidence.of(STOP_ORDER, DEATH) if SIGTERM.search(each.text))))
    failed = [each for each in evidence.failures() if each not in stopped] + [each for each, _ in evidence.exceptions]
    return got[0] if got and all(event.order > got[0].order for event in failed) else None


def _data_workers(evidence: LogEvidence) -> Iterator[str]:
    """Yield a recommendation if a log ends while several processes prepare a data set."""
    for source in evidence.sources:
        found = MAPPED.search(source.tail[-1]) if source.tail else None
        if found is not None and not is_full_bar(source.tail[-1]):
            yield (
                f"The log ends while {found[1]} processes prepare the data set; one of them may have died or may "
                "hang without an error. Set num_proc=1 (map_num_proc=1, preprocessing_num_workers=1): the preparation "
                'then works or shows its error. sudo dmesg -T | grep -i -e "killed process" -e oom shows whether '
                "memory ran out."
            )


def _is_timeout(named: tuple[Ranked, ...]) -> bool:
    return bool(named) and named[0].cause.id in TIMEOUT_CAUSES


@functools.cache
def _meanings() -> dict[str, str]:
    return {sign.name: sign.means for cause in all_causes() for sign in cause.signs}


def _notes(evidence: LogEvidence, named: tuple[Ranked, ...]) -> tuple[str, ...]:
    notes = list(useless_advice(evidence)) if _is_timeout(named) or evidence.timeout_options_s else []
    if _is_timeout(named):
        notes = [*when_ranks_parted(evidence), *notes]
    waits = (w for w in evidence.waits.all() if w.timeout_ms)
    frozen = [w for w in waits if w.ran_for_ms > max(w.timeout_ms * 1.2, w.timeout_ms + LATE_MS)]
    if frozen:
        notes.append(
            f"A collective with a timeout of {frozen[0].timeout_ms} ms waited {frozen[0].ran_for_ms} ms, so the "
            "whole process was paused (swapping, a suspended container, or Python's lock)."
        )
    if (nan := evidence.of("context.nan")) and not evidence.sources[nan[0].source].note:
        notes.append(f"The loss is nan since line {nan[0].line}: {nan[0].text.strip()[-TEXT // 2 :]}")
    return (*_earlier_runs(evidence), *notes, *_diagnosed(evidence, named))


def _earlier_runs(evidence: LogEvidence) -> Iterator[str]:
    several = [source for source in evidence.sources if source.earlier.lines]
    for source in several[:1]:
        lines = source.earlier.lines
        who = f"{source.name} has" if len(several) == 1 else f"{len(several)} logs have"
        begins = f"line {lines + 1}" if len(several) == 1 else f"line {lines + 1} of {source.name}"
        yield (
            f"{who} several runs. Only the last run, from {begins}, is explained. To explain the run before it: "
            f"head -n {lines} FILE | preflight explain -"
        )


def _maybe_another_run(evidence: LogEvidence, claim: Claim) -> Iterator[str]:
    if is_before_another_run(evidence, claim):
        source = evidence.sources[claim.events[0].source]
        yield (
            f"The first lines of {source.name} are printed again at line {source.earlier.again}. If another run begins "
            f"there, explain only the lines from {source.earlier.again} on (tail -n +{source.earlier.again})."
        )


def _diagnosed(evidence: LogEvidence, named: tuple[Ranked, ...]) -> Iterator[str]:
    """Yield the findings of NCCL's own diagnostics that the named causes do not quote."""
    signs = [name for name in evidence.events if name == "context.diag" or name.endswith(".diagnosed")]
    quoted = {event.order for ranked in named for event in ranked.claim.events}
    told = (unusual(event.text) for event in evidence.of(*signs) if event.order not in quoted)
    for text in list(dict.fromkeys(filter(None, told)))[:DIAGNOSED]:
        yield f"NCCL's own diagnostics: {text.partition(' in comm 0x')[0]}."


def _named(ranked: Ranked, evidence: LogEvidence, before: tuple[str, ...]) -> NamedCause:
    cause, claim = ranked.cause, ranked.claim
    remedy = cause.remedy(evidence, claim)
    known = find((event.text for event in claim.events[:20]), evidence.versions, surroundings(evidence))
    first = (*before, *((_known_remedy(known, evidence),) if known else ()))
    engines = {*evidence.launchers, *map(str.lower, evidence.versions)}
    own = [row.step for row in options_of_engines(cause.id, engines)]
    written = (*first, *remedy.steps)
    # The engine's most important option comes second, behind what proves the cause.
    steps = with_launcher(
        (*written[:1], *own[:1], *written[1:], *own[1:]), evidence.launchers, sets_variables=bool(remedy.env)
    )
    because = "; ".join((claim.because, *(d for d in claim.detail if not d.isdigit() and d != "deadlock")))
    return NamedCause(
        cause=cause.id,
        verdict=capitalized(claim.verdict),
        confidence=claim.confidence,
        because=f"{because}. The cause is confirmed if {cause.confirmed_if}",
        evidence=_proof(claim, evidence),
        remedy="\n".join(steps),
        confirm_with=remedy.confirm_with or cause.confirm_with,
        env=remedy.env,
    )


def _known_remedy(found: KnownMessage, evidence: LogEvidence) -> str:
    """Return the remedy of a known message, with the version that no longer needs the remedy."""
    row, has = found.row, evidence.versions.get(found.row.library, "")
    needless = f" {row.library} {row.fixed} and newer do not need this step" if row.fixed else ""
    here = f"; this log has {has}." if needless and has else "." if needless else ""
    return f"{found.remedy}{'.' if needless else ''}{needless}{here}"


def _consequence(ranked: Ranked, evidence: LogEvidence) -> Consequence:
    events = ranked.claim.events
    ranks = tuple(dict.fromkeys(event.rank for event in events if event.rank))
    sign_means = _meanings().get(events[0].sign) if events and ranked.cause.signs else None
    return Consequence(
        cause=ranked.cause.id,
        what=sign_means or ranked.claim.verdict.rstrip("."),
        why=WHY.get(ranked.claim.authority, OTHERWISE),
        ranks=ranks[:64],
        evidence=_quotes(events, evidence, 2),
    )


def _processes(rows: tuple[ProcessRow, ...], evidence: LogEvidence) -> tuple[ProcessEnd, ...]:
    """Return the table of processes.

    Ranks that are known only from the job's size are omitted, unless there are few of them.
    """
    missing = silent(rows)
    told = [row for row in rows if row.first or row.code or row.has_log or len(missing) <= FEW_SILENT]
    return tuple(
        ProcessEnd(
            row.process, row.rank, _quote(row.first, evidence) if row.first else None, row.how_it_ended, row.waited_for
        )
        for row in told[:PROCESSES]
    )


def _phase(evidence: LogEvidence, named: tuple[Ranked, ...]) -> tuple[Quote, ...]:
    """Return the line that names the job's activity before a timeout; () if no log names an activity."""
    phase = next((source.phases[0] for source in evidence.sources if source.phases), None)
    is_quoted = any(event.sign.startswith(PHASE) for ranked in named[:1] for event in ranked.claim.events)
    return () if is_quoted or not _is_timeout(named) else _quotes(evidence.of_phase(phase), evidence, 1)


def _proof(claim: Claim, evidence: LogEvidence) -> tuple[Quote, ...]:
    """Return the quotes that support a cause. Lines that differ only in numbers become one quote.

    This quote has the first line and the number of similar lines. If ranks called different collectives, all lines are
    kept, because the numbers in the lines matter.
    """
    if claim.authority is Authority.MISMATCH:
        return _quotes(claim.events, evidence, EVIDENCE)
    alike: dict[tuple[str, str], list[Event]] = {}
    for event in {(event.source, event.line): event for event in reversed(claim.events)}.values():
        alike.setdefault((event.sign, NUMBERS.sub("#", event.text)), []).insert(0, event)
    firsts = {id(events[0]): len(events) - 1 for events in alike.values()}
    kept = [event for event in claim.events if id(event) in firsts]
    return tuple(
        replace(quote, means=f"{quote.means} (and {counted(firsts[id(event)], 'similar line')})")
        if firsts[id(event)]
        else quote
        for event, quote in zip(kept, _quotes(kept, evidence, len(kept)), strict=False)
    )[:EVIDENCE]


def _quotes(events: Iterable[Event], evidence: LogEvidence, limit: int) -> tuple[Quote, ...]:
    """Return the first `limit` lines. A line that matches several patterns appears once."""
    by_line = {(event.source, event.line): event for event in reversed(tuple(events))}
    return tuple(_quote(event, evidence) for event in list(reversed(by_line.values()))[:limit])


def _quote(event: Event, evidence: LogEvidence) -> Quote:
    name = evidence.sources[event.source].name
    known = _meanings().get(event.sign)
    if event.sign.startswith(PHASE):
        known = f"the job is {event.sign.removeprefix(PHASE)}"
    own = event.sign == EXCEPTION and any(event is raised for raised, _ in evidence.exceptions)
    otherwise = "the program's own error" if own else MEANS.get(event.sign, LAST)
    means = known or otherwise
    return Quote(name, event.line, event.rank, event.host, event.moment.text, event.text, means, event.match)
