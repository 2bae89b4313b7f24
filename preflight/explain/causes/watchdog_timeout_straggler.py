"""Ranks timed out because another rank did not join the collective.

This cause applies only if nothing else explains the timeout.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.collective_waits import Wait, behind, behind_by_seq
from preflight.explain.endings import STOPPED, silent
from preflight.explain.event import Authority, Event
from preflight.explain.flight_recorder import find_lag
from preflight.explain.log_evidence import LogEvidence, ProcessRow
from preflight.explain.run_ends import RESTART
from preflight.explain.survival import FEW
from preflight.explain.timeout_advice import duration, longer_timeout, parted_at
from preflight.model.explanation import Confidence

FIRST = "look first at rank "
SHORT_MS = (
    10_000  # the first collective alone may connect for longer; a person has written ms for s, or tests the timeout
)
ONLY = "the timeout was only "
ON_RANK_0 = "work on rank 0 only (evaluation, plotting, uploading), "


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a rank did not join the collective in which other ranks timed out.

    Return None if no rank timed out, or if another event explains the timeout.
    """
    # The conclusion names the missing rank if a flight recorder dump or the sequence numbers of collectives show the
    # missing rank.
    if (lag := find_lag(evidence.recordings)) is not None:
        behind_it = (
            f"rank {', '.join(lag.ranks)} enqueued {lag.seq} collectives of group {lag.group}, others {lag.ahead_seq}"
        )
        because, missing = f"the flight recorder: {behind_it}", f"missing on it: {lag.missing}"
        last = f"the last collective is number {lag.seq}; the other ranks went on to {lag.ahead_seq}"
        dumped = tuple(event for rank in lag.ranks[:2] for event in evidence.recorded(rank, last))
        return _claim((*events[:2], *dumped), lag.ranks, because, Confidence.HIGH, missing)
    # torch takes a process down with the same words after an error that is no timeout.
    if not events or (events[0].authority is Authority.ECHO and len(evidence.by_cause) > 1):
        return None
    first = events[0]
    gone = [each for each in evidence.dead_workers() if each.order < first.order and first.steps - each.steps < FEW]
    if gone and not evidence.has(RESTART):
        return None  # the others waited for a process that was gone
    return _from_log(evidence, events)


def _from_log(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    waits = [wait for wait in evidence.waits.all() if wait.op or wait.last_enqueued != -2]
    if ranks := _named(events):
        return _claim(events, ranks, "the library names the rank that did not join", Confidence.HIGH)
    if ranks := behind(waits) or behind_by_seq(waits):
        has = "have lower sequence numbers" if ranks[1:] else "has a lower sequence number"
        return _claim(events, ranks, f"{_who(ranks)} {has} than the others", Confidence.MEDIUM)
    timeout_ms = min((wait.timeout_ms for wait in waits if wait.timeout_ms), default=SHORT_MS)
    if timeout_ms < SHORT_MS:
        verdict = f"The timeout of the collectives was only {timeout_ms:,} ms, which is too short for any job."
        because = "the log gives the timeout of the collective"
        return Claim(Authority.TIMEOUT, events, Confidence.HIGH, because, verdict, (f"{ONLY}{timeout_ms:,} ms",))
    if ranks := _silent(evidence.processes):
        because = f"the other ranks report the timeout; the output of {_who(ranks)} has no error"
        return _claim(events, ranks, because, Confidence.MEDIUM, place=_place(evidence))
    because = "the log has only timeouts, which do not show why a rank is missing"
    return _claim(events, (), because, Confidence.LOW, *_at(waits), place=_place(evidence))


def _place(evidence: LogEvidence) -> str:
    """Return the line of the user's own code that waited, from the first traceback that contains such a line."""
    return next((f" ({at.call} at {at.place})" for _, at in evidence.waited()), "")


def _claim(
    events: tuple[Event, ...],
    ranks: tuple[str, ...],
    because: str,
    confidence: Confidence,
    *detail: str,
    place: str = "",
) -> Claim:
    is_engine = bool(events) and all(event.sign == "watchdog.engine" for event in events)
    if ranks and is_engine:
        verdict = f"The engine waited for {_who(ranks)}, which did not answer in time."
    elif ranks:
        verdict = f"The other ranks waited for {_who(ranks)}, which did not join a collective in time{place}."
    elif is_engine:
        verdict = "The engine timed out waiting for a worker. The log does not show which worker, or why."
    else:
        verdict = (
            f"Ranks waited for each other in a collective{place} until the timeout. The log does not show which "
            "rank was late."
        )
    return Claim(
        Authority.TIMEOUT, events, confidence, because, verdict, (*detail, *(f"{FIRST}{rank}" for rank in ranks[:1]))
    )


def _who(ranks: Sequence[str]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(ranks[:8])}"


def _named(events: tuple[Event, ...]) -> tuple[str, ...]:
    """Return the ranks that torch's own desync report names as missing."""
    named = [event.match for event in events if event.sign == "watchdog.desync"]
    return tuple(dict.fromkeys(text[text.index("[") + 1 : text.index("]")] for text in named if "didn't join" in text))


def _silent(rows: tuple[ProcessRow, ...]) -> tuple[str, ...]:
    """Return the ranks without an error, or () if there are too many of these ranks.

    The job's size and the names of the logs show which ranks exist.
    """
    missing, ranks = silent(rows), [row for row in rows if row.rank.isdigit()]
    # Those whose output is here, or which the launcher ended, may be as many as those that gave up.
    is_sure = not silent(row for row in ranks if not row.has_log and row.code != STOPPED)
    most = len(ranks) - len(missing) - (0 if is_sure else 1)
    return missing if len(missing) <= most else ()


def remedy(evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a late rank: examine this rank, and enable more logging for the next run."""
    if any(event.sign == "watchdog.engine" for event in claim.events[:1]):
        return Remedy(
            "While it hangs, run `py-spy dump --pid PID` on each worker of the engine to see where it waits.",
            "First look for a worker that still compiles, loads or downloads. In the first run of a model, these "
            "steps may take longer than the engine waits.",
            "If all workers wait in a collective, run `preflight check` on the same GPUs to test the paths between "
            "them.",
        )
    if any(text.startswith(ONLY) for text in claim.detail):
        return Remedy(
            "Give a longer timeout: dist.init_process_group(..., timeout=datetime.timedelta(minutes=10)), torch's "
            "default for NCCL. `preflight timeout` computes the timeout for your job.",
        )
    late = next((text.removeprefix(FIRST) for text in claim.detail if text.startswith(FIRST)), "")
    look = (
        _look_at(evidence, late),
        f"Common reasons are {'' if late not in ('', '0') else ON_RANK_0}fewer batches on one rank, a slow "
        "disk, or late loading. Give all ranks the same number of batches, or use model.join().",
    )
    if any(event.sign == "watchdog.gloo" for event in claim.events[:1]) or evidence.recordings:
        return Remedy(*look, *longer_timeout(evidence))
    return Remedy(
        *look,
        "Next time, set the two variables that --env-out writes. Torch then records each rank's collectives in "
        "/tmp/nccl_trace_rank_*; give these files to `preflight explain`.",
        *longer_timeout(evidence),
        env=(("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"), ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")),
    )


def _look_at(evidence: LogEvidence, rank: str) -> str:
    """Return the first repair step: read the last lines of the late rank.

    The step names the rank, the rank's log, and the time at which the waiting began, if the logs show these.
    """
    parted = parted_at(evidence)
    log = next((f" ({source.name})" for source in evidence.sources if rank and source.file_rank == rank), "")
    when = f"at {parted[0]}, when" if parted else "when"
    less = "" if parted else " (the time of the first timeout minus the timeout)"
    who = f"rank {rank}" if rank else "the late rank"
    return (
        f"To find what delayed {who}, read the rank's last lines{log} {when} the waiting began{less}. If "
        f"the rank still runs, `py-spy dump --pid PID` shows its line of code."
    )


def _at(waits: list[Wait]) -> tuple[str, ...]:
    return tuple(
        f"waited in {wait.shown}; the ranks diverged {duration(wait.timeout_ms)} before the first line below: check "
        "the logs at that time"
        for wait in [wait for wait in waits if wait.op][:1]
    )


CAUSE = Cause(
    promise="All processes must join each collective. Here one process did not, and the others timed out waiting.",
    signs=(
        Sign("watchdog.caught", Authority.TIMEOUT, "a collective did not finish in time",
             r"Watchdog caught collective|WorkNCCL\(|Watchdog caught"),
        # Of torch 2.6 and later; what was raised follows and is read by itself.
        Sign("watchdog.async", Authority.ECHO, "a collective was aborted for an error",
             r"Collective WorkNCCL\([^\n]{0,240}raised the following async exception"),
        Sign("watchdog.status", Authority.TIMEOUT, "the rank reports its last collectives",
             r"last enqueued (?:NCCL )?work|Timeout at NCCL work|failure detected by watchdog"),
        Sign("watchdog.failed", Authority.TIMEOUT, "a collective did not finish in time",
             r"collective operation timeout|timed out in blocking wait|before timing out"),
        Sign("watchdog.frame", Authority.TIMEOUT, "the stack of a collective that did not finish in time",
             r"frame #\d{1,2}: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout\("),
        Sign("watchdog.engine", Authority.TIMEOUT, "the engine's own watchdog timed out waiting",
             r"Scheduler watchdog timeout|[Ww]atchdog timeout \(|RPC call to \w{1,60} timed out|"
             r"RayChannelTimeoutError|"
             r"timeout waiting for[^\n]{0,30} (?:worker|rank)|[Tt]imed out waiting for (?:the )?(?:model|worker|"
             r"rank) "),
        Sign("watchdog.teardown", Authority.ECHO, "torch ends the process after a timeout or an error",
             r"Some NCCL operations have failed|To avoid (?:data|this) inconsistency"),
        Sign("watchdog.received_dump", Authority.TIMEOUT, "another rank timed out",
             r"Received a dump signal due to a collective timeout|Observed flight recorder dump signal"),
        Sign("watchdog.desync", Authority.TIMEOUT, "torch names the missing rank",
             r"\[\d{1,6}\] (?:finished collective|joined but didn't finish)[^\n]{0,80}|"
             r"the lagging/dead/mismatched ranks that caused the desync"),
        Sign("watchdog.monitored", Authority.TIMEOUT, "a barrier timed out waiting",
             r"Ranks? [\d, ]{1,60}failed to pass monitoredBarrier|monitoredBarrier[^\n]{0,60}timed? ?out|"
             r"waiting for remainder of ranks for more than"),
        Sign("watchdog.gloo", Authority.TIMEOUT, "an exchange of Gloo timed out waiting for another rank",
             r"Timed out waiting \d{1,12}ms for (?:recv|send) operation to complete"),
        Sign("watchdog.ras", Authority.TIMEOUT, "NCCL's RAS service counts different collectives on the ranks",
             r"Communicator ranks have different collective operation counts|"
             r"Rank \d{1,7} has (?:launched up to operation \d{1,12} --|not launched any operations)"),
    ),
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="the flight recorder names the collective that the late rank did not join, or the rank's stack "
    "shows where the rank is",
    confirm_with="preflight stuck   # on the job's nodes during the hang; `preflight check` tests the machine",
)  # fmt: skip
