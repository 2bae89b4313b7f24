"""Decide whether a run was healthy, is unfinished or failed, from the ends of its logs."""

from __future__ import annotations

import re

from preflight.explain.event import Event
from preflight.explain.last_frames import FRAME
from preflight.explain.log_evidence import LogEvidence, SourceState
from preflight.explain.run_ends import DONE, LEFT, READY, RESTART, START, TOLD_TO_STOP
from preflight.explain.survival import is_after
from preflight.explain.unusual_lines import UnusualLine
from preflight.explain.work_steps import shows_work
from preflight.model.explanation import ExplainVerdict

WARNED = re.compile(r"[A-Za-z]{2}Warning: |\[W\d{3,4} |\bWARNING\b")  # a program goes on after these
BROKEN_OFF = 4  # lines
LAST_WORDS = 6  # lines: Python's warnings of what a process left behind follow its end


def run_verdict(evidence: LogEvidence, *, is_named: bool) -> ExplainVerdict:
    """Return the verdict on the run: cause named, healthy, not enough evidence, or unfinished.

    Alarming events that the run survived do not count. A run can be healthy only if every other alarming event came
    after the run's success.
    """
    if is_named:
        return ExplainVerdict.CAUSE_NAMED
    if any(not evidence.survival.is_after_success(event) for event in evidence.alarms()):
        return ExplainVerdict.NOT_ENOUGH_EVIDENCE
    if evidence.successes() or _left_after_the_work(evidence) or _was_stopped(evidence):
        return ExplainVerdict.HEALTHY if is_whole(evidence) else ExplainVerdict.UNFINISHED
    if _breaks_off(evidence):
        return ExplainVerdict.NOT_ENOUGH_EVIDENCE
    works = (
        any(source.phases or source.steps or _goes_on(source) for source in evidence.sources)
        or evidence.starts.steps
        or evidence.has(DONE, READY, RESTART)
        or any(WARNED.search(line) for source in evidence.sources for line in source.tail)
        or evidence.frameworks["engine"]
    )
    if works and _all_left(evidence) and not errors(evidence) and is_whole(evidence):
        return ExplainVerdict.HEALTHY
    return ExplainVerdict.UNFINISHED if works else ExplainVerdict.NOT_ENOUGH_EVIDENCE


def _breaks_off(evidence: LogEvidence) -> bool:
    """Return whether a log ends within a traceback, or with a line that no healthy run prints."""
    lines = (line for source in evidence.sources for line in source.tail[-BROKEN_OFF:])
    return any(map(FRAME.search, lines)) or any(_is_last(each, evidence) for each in evidence.unusual(frozenset()))


def is_whole(evidence: LogEvidence) -> bool:
    """Return whether every log was read to its end."""
    return all(source.is_whole for source in evidence.sources)


def _goes_on(source: SourceState) -> bool:
    """Return whether the end of a log shows that the job works, or that NCCL starts."""
    return shows_work(source.tail) or any("NCCL INFO" in line for line in source.tail)


def _is_last(unusual: UnusualLine, evidence: LogEvidence) -> bool:
    """Return whether there is only one log, and the error line `unusual` is the last line of this log.

    Healthy runs do not print this line.
    """
    return unusual.is_error and not evidence.sources[1:] and unusual.line == evidence.sources[0].lines


def _left_after_the_work(evidence: LogEvidence) -> bool:
    """Return whether a log reports that the work was done and ends with processes that exit on their own."""
    done, left = evidence.of(DONE), evidence.of(LEFT)
    if not done or not left or done[-1].source != left[-1].source or not is_after(left[-1], done[-1]):
        return False
    return evidence.sources[left[-1].source].lines - left[-1].line < BROKEN_OFF


def _all_left(evidence: LogEvidence) -> bool:
    """Return whether each log ends with processes that exit on their own.

    Rank 0 must be one of these processes.
    """
    left = [event for event in evidence.of(LEFT) if _is_near_the_end(event, evidence)]
    return {e.source for e in left} == set(range(len(evidence.sources))) and any(e.rank in ("0", "") for e in left)


def _is_near_the_end(event: Event, evidence: LogEvidence) -> bool:
    """Return whether only a few lines follow the event in the event's log.

    None of these lines may report work or a start.
    """
    source = evidence.sources[event.source]
    after = source.lines - event.line
    if after >= LAST_WORDS or (after and shows_work(source.tail[-after:])):
        return False
    return not any(each.source == event.source and each.line > event.line for each in evidence.of(START, READY))


def _was_stopped(evidence: LogEvidence) -> bool:
    """Return whether a server that was ready got a signal to stop."""
    ready, told = evidence.of(READY), evidence.of(TOLD_TO_STOP)
    return bool(ready and told) and is_after(told[-1], ready[0])


def errors(evidence: LogEvidence) -> tuple[UnusualLine, ...]:
    """Return the unusual lines that the program marks as errors.

    Errors in a log before a server became ready are left out.
    """
    readies = evidence.of(READY)

    def is_survived(each: UnusualLine) -> bool:
        return any(ready.source == each.source and ready.line > each.line for ready in readies)

    return tuple(each for each in evidence.unusual(frozenset()) if each.is_error and not is_survived(each))
