"""The table of processes: the first abnormal line of each process, how the process ended, and what it waited for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from preflight.explain.event import Authority, Event, by_number
from preflight.explain.last_frames import process_of
from preflight.explain.log_evidence import LogEvidence, ProcessRow, earliest
from preflight.explain.run_ends import DEATHS

STOPPED = "-15"  # the exit code of what the launcher stopped
CODE = re.compile(r"exit[ _]?(?:code|status)[ :=]{0,12}(?:of )?(-?\d{1,3})\b|on signal (\d{1,2})\b", re.IGNORECASE)
MOST_RANKS = 4096


def read_endings(evidence: LogEvidence) -> tuple[ProcessRow, ...]:
    """Return a `ProcessRow` for every process in the logs.

    Processes with errors come first, and the process with the earliest error is the first.
    """
    raised = earliest(event for event, _ in (*evidence.frames.values(), *evidence.exceptions, *evidence.echoes))
    own = {id(event) for event, _ in evidence.exceptions}
    failures = evidence.failures()
    signed = {(event.source, event.line) for event in failures}  # a line of which more is known than that it was raised
    first: dict[str, Event] = {}
    for event in earliest((*failures, *(each for each in raised if (each.source, each.line) not in signed))):
        # What a process prints after it lost another one tells whose it is by a rank only: launchers print it, too.
        if event.sign != "peer.sigterm" and (event.rank or event.authority < Authority.ECHO or id(event) in own):
            first.setdefault(_process(event, evidence), event)
    last: dict[str, Event] = {}
    for event in raised:
        last.setdefault(_process(event, evidence), event)
    codes = {rank: code for source in evidence.sources for rank, code in source.table.items()}
    for event in evidence.of(*DEATHS):
        if event.rank and (match := CODE.search(event.text)) is not None:
            codes.setdefault(event.rank, match[1] or f"-{match[2]}")
    waited = {event.rank: f"{at.call} at {at.place}" for event, at in reversed(evidence.waited())}
    waited |= {wait.rank: wait.shown for wait in reversed(evidence.waits.all()) if wait.op}
    with_logs = {source.file_rank for source in evidence.sources} | evidence.empty_logs
    known = {str(rank) for rank in range(min(evidence.world_size, MOST_RANKS))} | with_logs | {*codes, *waited}
    rows = []
    for process in dict.fromkeys((*first, *(f"rank {rank}" for rank in by_number(known) if rank))):
        rank = process.removeprefix("rank ") if process.startswith("rank ") else ""
        of_rank = (codes.get(rank, ""), waited.get(rank, ""), rank in with_logs)
        if process:
            rows.append(ProcessRow(process, rank, first.get(process), last.get(process), *of_rank))
    return tuple(rows)


def silent(rows: Iterable[ProcessRow]) -> tuple[str, ...]:
    """Return the ranks of `rows` that report no error and no wait, sorted by number."""
    return by_number(row.rank for row in rows if row.rank.isdigit() and row.first is None and not row.waited_for)


def are_in_order(rows: Iterable[ProcessRow]) -> bool:
    """Return whether the order in time of the first errors in `rows` is known.

    The order is known if all errors are in one log, or if all time stamps have the same format.
    """
    firsts = [row.first for row in rows if row.first is not None]
    clocks = {event.moment.clock for event in firsts}
    return len({event.source for event in firsts}) < 2 or (len(clocks) == 1 and "" not in clocks)


def _process(event: Event, evidence: LogEvidence) -> str:
    """Return the process that printed a line; "" if nothing distinguishes the process from others."""
    if event.rank:
        return f"rank {event.rank}"
    prefix = process_of(event.text).strip(" ()")
    alone = evidence.sources[event.source].name if evidence.sources[1:] else ""
    return prefix if "pid=" in prefix else alone
