"""An ordinary Python error on one rank, unrelated to communication."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.context_lines import Raised
from preflight.explain.event import Authority, Event, by_number
from preflight.explain.last_frames import TOP_LEVEL
from preflight.explain.log_evidence import CLEARLY_LINES, LAST_LINES, LogEvidence
from preflight.explain.run_ends import DEATHS, TASK_EXIT
from preflight.explain.signatures import find
from preflight.explain.survival import is_after
from preflight.model.explanation import Confidence

ID = "not_nccl"
QUEUE = " at shm_broadcast.py"  # vLLM's engine waits there for its workers; the line does not say which was late
OWN = "A rank stopped with a Python error{place}. The error is in the program, not in the communication: {text}"
WAITED = (
    "A rank timed out waiting{place} for another process or a service. The log of the other side has the cause: {text}"
)
TIMED_OUT = "TimeoutError"
ASSERTION, BUILD, MISSING = "own.assertion", "own.build", "own.missing"
LONGEST = 160
CLEARLY_S = 3.0  # by so much, or by CLEARLY_LINES, an exception precedes what is no consequence of it


def judge(evidence: LogEvidence, own_events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that the user's program failed, with its first exception or last error.

    Return None if the program had no error, or caught its exception and then succeeded.
    """
    last_success = max((event.order for event in evidence.successes()), default=-1)
    is_failed = bool(evidence.failures())
    raised = [
        (event, error)
        for event, error in evidence.raised()
        if (is_failed or event.order > last_success) and not evidence.survival.is_after_stop(event)
    ]
    if (known := _known(evidence, raised)) is not None:
        return known
    if not raised and (refused := own_events) and (refused[0].sign == BUILD or not _went_on(evidence, refused[-1])):
        is_check = refused[0].sign == ASSERTION
        stopped = "ended itself" if is_check else "stopped before it began"
        verdict = f"The program {stopped}: {refused[0].text.strip()[-160:]}"
        confidence = Confidence.MEDIUM if is_check else Confidence.HIGH
        return Claim(Authority.OWN_ERROR, refused, confidence, "the line states the error", verdict)
    if not raised:
        return _by_last_line(evidence) or _by_exit(evidence) or _by_weak_echo(evidence)
    event, error = raised[0]
    same = _same(raised, error)
    verdict = OWN.replace("A rank", who_raised(evidence, same)).replace("{place}", place_of(evidence, event))
    verdict = verdict.replace("{text}", f"{error.type}: {error.message}".rstrip(": ")[:LONGEST])
    because = "the traceback ends with an error, which is not a timeout or a lost connection" + (
        f"; {len(same)} ranks show the same" if len(same) > 1 else ""
    )
    authority = Authority.EXCEPTION if _is_named_otherwise(evidence, event) else Authority.OWN_ERROR
    return Claim(authority, tuple(same), Confidence.MEDIUM, because, verdict)


def _went_on(evidence: LogEvidence, refused: Event) -> bool:
    """Return whether the job continued, or failed in another way, after a shell refused to start a program.

    If so, the refusal was not the job's end.
    """
    is_last = any(is_after(death, refused) for death in evidence.of(*DEATHS))
    if not is_last and evidence.sources[refused.source].lines - refused.line > CLEARLY_LINES:
        return True
    return any(
        event.cause != ID and event.order > refused.order and event.authority <= Authority.MISMATCH
        for event in evidence.failures()
    )


def _known(evidence: LogEvidence, own: list[tuple[Event, Raised]]) -> Claim | None:
    """Return this cause for an exception that signatures.toml explains, or None if there is no such exception.

    If the program itself raised exceptions, only the first of these is examined. Otherwise, two other kinds are
    examined: exceptions that look secondary, and exceptions without a traceback near the log's end.
    """
    if not own and evidence.successes():
        return None
    for event, error in own[:1] or [*evidence.echoes, *evidence.last_without_traceback]:
        found = find([event.text], evidence.versions, names=True)
        if found is None:
            continue
        same = _same(own, error) or [event]
        text = f"{error.type}: {error.message}".rstrip(": ")[:LONGEST]
        verdict = f"{who_raised(evidence, same)} stopped{place_of(evidence, event)}: {found.says}. {text}"
        return claim_of_known(evidence, own, same, error, "the message says what failed", verdict)
    return None


def claim_of_known(
    evidence: LogEvidence, raised: list[tuple[Event, Raised]], same: Sequence[Event], error: Raised, because: str,
    verdict: str, detail: tuple[str, ...] = (),
) -> Claim:  # fmt: skip
    """Return the conclusion from an exception whose message is known.

    `same` has the log lines with this exception.
    """
    # If the same rank raised other exceptions, or if a library named the failure before, the message proves less.
    others = {other.type for event, other in raised if event.rank == same[0].rank} - {error.type}
    authority = Authority.EXCEPTION if _is_named_otherwise(evidence, same[0]) else Authority.OWN_ERROR
    return Claim(authority, tuple(same), Confidence.MEDIUM if others else Confidence.HIGH, because, verdict, detail)


def place_of(evidence: LogEvidence, event: Event) -> str:
    """Return the place in the user's code that raised `event`, such as " at train.py:44 (training_step)".

    Return "" if the log does not show the place.
    """
    frame = evidence.frame(event)
    return f" at {frame.place_and_function}" if frame is not None and frame.is_own else ""


def who_raised(evidence: LogEvidence, same: list[Event]) -> str:
    """Return the ranks of `same` as text: "A rank", "Rank 1", "Only rank 1 of 8", "Ranks 1, 2" or "All 8 ranks".

    If there are more than four ranks, the text names four ranks and the number of remaining ranks.
    """
    ranks = by_number(event.rank for event in same if event.rank)
    known = max(evidence.world_size, sum(row.has_log or bool(row.code) for row in evidence.processes))
    if not ranks:
        return "A rank"
    if len(ranks) == 1:
        return f"Only rank {ranks[0]} of {known}" if known > 1 else f"Rank {ranks[0]}"
    if len(ranks) == known:
        return f"All {known} ranks"
    return f"Ranks {', '.join(ranks[:4])}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def _is_named_otherwise(evidence: LogEvidence, raised: Event) -> bool:
    """Return whether a library reports a failure before an exception, or at about the same time.

    If so, the exception only forwards the failure that the library reports.
    """
    named = (event for event in evidence.failures() if event.authority <= Authority.SETUP and event.cause != ID)
    return any(not _is_clearly_before(raised, event) for event in named)


def _is_clearly_before(raised: Event, event: Event) -> bool:
    if raised.moment.clock and raised.moment.clock == event.moment.clock:
        return event.moment.seconds - raised.moment.seconds >= CLEARLY_S
    return raised.source == event.source and event.line - raised.line >= CLEARLY_LINES


def _by_last_line(evidence: LogEvidence) -> Claim | None:
    """Return this cause for an exception whose traceback is not in the log; else None.

    The exception counts only if a process died, or if the log ends soon after the exception.
    """
    if evidence.successes():
        return None
    is_dead = bool(evidence.failures()) or evidence.has(*DEATHS)
    for event, error in evidence.without_traceback:
        if is_dead or evidence.sources[event.source].lines - event.line < LAST_LINES:
            text = f"{error.type}: {error.message}".rstrip(": ")[:LONGEST]
            because = "the error is not a timeout or a lost connection, and its traceback is not in the log"
            verdict = OWN.replace("{place}", "").replace("{text}", text)
            return Claim(Authority.UNEXPLAINED_DEATH, (event,), Confidence.LOW, because, verdict)
    return None


def _by_weak_echo(evidence: LogEvidence) -> Claim | None:
    """Return this cause for an exception that looks secondary but may be the program's own.

    Return None if there is no exception of this kind, or if the job succeeded.
    """
    weak = [
        (event, error) for event, error in evidence.echoes if error.is_weak and QUEUE not in place_of(evidence, event)
    ]
    if not weak or evidence.successes():
        return None
    event, error = weak[0]
    text = f"{error.type}: {error.message}".rstrip(": ")[:LONGEST]
    because = "the log has only this error, but an error outside this log may have caused it"
    words, detail = (WAITED, (TIMED_OUT,)) if error.type.endswith(TIMED_OUT) else (OWN, ())
    verdict = words.replace("{place}", place_of(evidence, event)).replace("{text}", text)
    return Claim(Authority.SILENCE, (event,), Confidence.LOW, because, verdict, detail)


def _by_exit(evidence: LogEvidence) -> Claim | None:
    """Return this cause if a task failed while other tasks waited until the scheduler's time limit; else None."""
    limits = evidence.best("scheduler_time_limit")
    exits = [event for event in evidence.of(TASK_EXIT) if limits and event.order < limits[0].order]
    if not exits or evidence.successes():
        return None
    who = f"Rank {exits[-1].rank}" if exits[-1].rank else "A task"
    verdict = f"{who} ended early with an error. The other ranks waited for it until the scheduler's time limit."
    because = "the rank failed before the time limit, and the log has no communication error before that limit"
    return Claim(Authority.KILLED, (exits[-1], *limits[:1]), Confidence.MEDIUM, because, verdict)


def _same(raised: list[tuple[Event, Raised]], error: Raised) -> list[Event]:
    return [event for event, other in raised if other.type == error.type][:64]


def remedy(evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for an error of the program.

    If the log shows the line of the user's code that failed, the steps start from this line.
    """
    frame = evidence.frame(claim.events[0]) if claim.events else None
    if claim.detail == (TIMED_OUT,):
        return Remedy(
            "Read the log of the process that did not answer: each worker of the engine, or the service.",
            "If the error happens again, run `preflight stuck` on every node before the time limit, to see where each "
            "process waits.",
        )
    if claim.events and claim.events[0].sign == MISSING:
        return Remedy(
            "Run `command -v PROGRAM` or `ls -l FILE` for the name in the line, where the job runs: on that node, in "
            "its container, from its working directory.",
            "If the name exists on one node only, install it on all nodes, or put it on shared storage.",
        )
    if claim.events and claim.events[0].sign == ASSERTION:
        return Remedy(
            "Compare what the line asks for with the program's arguments, its input and the number of its processes.",
            "Run the same command with the smallest input and the fewest processes that it allows.",
        )
    if find([event.text for event in claim.events[:1]], evidence.versions, names=True) is not None:
        return Remedy("If the error returns, run one process alone (--nproc-per-node 1) for a shorter log.")
    if frame is None or not frame.is_own:
        return Remedy(
            "Read the traceback of that rank from the end. The error is in the program, its arguments or its data.",
            "For a shorter traceback, run one process (without torchrun, or with --nproc-per-node 1).",
            "For a separate traceback of each rank, use torchrun --log-dir logs --redirects 3 --tee 3.",
        )
    shown = f": {frame.source}" if frame.source else ""
    within = "" if frame.function == TOP_LEVEL else f", in {frame.function}"
    return Remedy(
        f"Open {frame.file} at line {frame.line}{within}{shown}",
        f"python -m pdb -c continue {frame.file.rsplit('/', 1)[-1]} ... in one process stops there and shows the "
        "values. If one process works, the data or arguments of the failed rank differ.",
    )


CAUSE = Cause(
    promise="The program has an error. The communication library only noticed that a process had ended.",
    signs=(
        Sign(MISSING, Authority.OWN_ERROR, "the program to run does not exist",
             r"(?:torchrun|deepspeed|accelerate|mpirun|python\d?(?:\.\d{1,2})?): "
             r"(?:command not found|can't open file)|^bash: (?:line \d{1,5}: )?orted: command not found|"
             r"(?:prterun|mpirun|mpiexec|orterun) was unable to find the specified executable|"
             r"execvp error on file \S{1,200} \((?:Permission denied|No such file)|"
             r"slurmstepd: error: execve\(\): [^\n]{1,200}: (?:No such file|Permission denied)"),
        Sign(BUILD, Authority.OWN_ERROR, "the program could not compile a part of itself",
             r"Making C\+\+ dataset helpers module failed"),
        Sign(ASSERTION, Authority.OWN_ERROR, "the program found a condition of its own broken",
             r"Assert(?:ion)? [Ff]ailed: [^\n]{9,160}|INTERNAL ASSERT FAILED at |"
             r"[Ll]oss is (?:nan|inf)[,;.]? [Ss]topping training\b"),
    ),
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="a run of one process ends with the same traceback",
    confirm_with="run the same command on one GPU",
)  # fmt: skip
