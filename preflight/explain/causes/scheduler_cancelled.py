"""A person or the scheduler cancelled the job, or the scheduler stopped the other tasks after one task had failed."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence, earliest
from preflight.explain.run_ends import DEATHS, STOP_ORDER, TASK_EXIT
from preflight.model.explanation import Confidence

ID = "scheduler_cancelled"
HANGUP = "SIGHUP: the job's terminal or connection was closed; start the job with nohup, tmux or a scheduler"
INTERRUPT = "A person stopped the job with Ctrl-C (SIGINT); nothing in the log failed before that"
INTERRUPTED = re.compile(r"KeyboardInterrupt: |SignalException: [^\n]{0,80}got signal: 2\b")
HANGS = ("hang.engine", "hang.stack")
SIGINT = re.compile(r"received SIGINT|Detected KeyboardInterrupt|Keyboard interruption\. Exiting")
LSF = re.compile(r"\bTERM_(?:OWNER|ADMIN|PREEMPT)")
BY_SIGNAL = "by a signal"
TOLD_WITH = 10  # lines
NEAR = 200  # lines between a rank's own error and the cancellation that it led to
VERDICT = "The job was cancelled from outside ({why}); nothing in the log failed before that."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that the job was cancelled before the job succeeded.

    Return None if the scheduler only stopped the job after a process had died.
    """
    # If another error came before the cancellation, the cancellation counts as a consequence. SIGTERM alone does not
    # prove a cancellation, because any program may send this signal.
    if not events:
        return _by_signal(evidence)
    if all(map(evidence.survival.is_after_success, events)):
        return None
    if events[0].authority is not Authority.ECHO and _is_reaction(evidence, events[0]):
        return None
    other = [event for event in evidence.failures() if event.order < events[0].order and _is_error(event)]
    other += _own_errors(evidence, events[0])
    if events[0].authority is Authority.ECHO:
        because = "the launcher says which signal it got, and no error precedes it"
        return Claim(Authority.ECHO, events, Confidence.MEDIUM, because, VERDICT.replace("{why}", HANGUP))
    reason = next(
        (why for words, why in REASONS if words in events[0].text), "by its owner, an administrator or the scheduler"
    )
    is_stated = any(words in events[0].text for words, _ in REASONS)
    if not is_stated and any(_is_told_with(each, events[0]) for each in evidence.of("oom.slurm")):
        return None
    authority = Authority.ECHO if other else Authority.KILLED
    because = (
        "the scheduler reports the end of the job, and no error precedes it"
        if not other
        else "it happened after another error"
    )
    return Claim(authority, events, Confidence.HIGH, because, VERDICT.replace("{why}", reason))


def _is_told_with(memory: Event, cancelled: Event) -> bool:
    """Return whether Slurm's line about a memory limit directly follows its line about the end of the step.

    Slurm reports a memory limit at that place.
    """
    return memory.source == cancelled.source and 0 < memory.line - cancelled.line <= TOLD_WITH


def _by_signal(evidence: LogEvidence) -> Claim | None:
    """Return this cause for Ctrl-C if nothing failed or hung before the key press; else None.

    Ranks that continue after Ctrl-C later time out or lose their peers.

    A SIGTERM is not treated like Ctrl-C, because no log shows who sent the SIGTERM.
    """
    ended = [event for event, error in evidence.echoes if INTERRUPTED.search(f"{error.type}: {error.message}")]
    pressed = earliest((*ended, *(event for event in evidence.of(STOP_ORDER) if SIGINT.search(event.text))))
    if not pressed or len(ended) < len(evidence.echoes) or evidence.successes():
        return None
    raised = (event for event, _ in evidence.exceptions)
    before = (*evidence.failures(), *raised, *evidence.of(*HANGS))
    if any(not _follows(each, pressed[0]) for each in before):
        return None
    frame = next(filter(None, map(evidence.frame, pressed)), None)
    at = f"; it was at {frame.place_and_function}" if frame is not None and frame.is_own else ""
    because = "the process says which signal it got, and no error precedes it"
    return Claim(Authority.UNEXPLAINED_DEATH, pressed, Confidence.MEDIUM, because, f"{INTERRUPT}{at}.", (BY_SIGNAL,))


def _follows(event: Event, signal: Event) -> bool:
    return event.source == signal.source and event.order > signal.order


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a cancelled job: find out who ended the job, and why the job hung before."""
    if BY_SIGNAL in claim.detail:
        return Remedy(
            "If you stopped the job because it hung, start it again. While the job hangs, run `preflight stuck` on "
            "its node to see where each rank waits.",
            "If no person stopped the job, a scheduler, a time limit or a lost terminal stopped it. Check sacct -j "
            "JOBID, "
            "kubectl describe pod or journalctl. Start the job under tmux or nohup.",
        )
    if any(LSF.search(event.text) for event in claim.events):
        return Remedy(
            "Ask LSF who ended the job, and when: bhist -l JOBID.",
            "If the job was ended because it hung, let it hang longer with NCCL_DEBUG=INFO, then run `preflight "
            "explain` on that log.",
            confirm_with="bhist -l JOBID",
        )
    return Remedy(
        "Ask the scheduler who cancelled it: sacct -j JOBID --format=JobID,State,ExitCode,Reason,Comment; scontrol "
        "show job JOBID.",
        "If the job was preempted, write checkpoints and let Slurm requeue it (sbatch --requeue --signal=B:USR1@120).",
        "If you cancelled the job because it hung, let it hang longer with NCCL_DEBUG=INFO, then run `preflight "
        "explain` "
        "on that log.",
    )


def _is_reaction(evidence: LogEvidence, cancelled: Event) -> bool:
    """Return whether a process of the job had died before the cancellation.

    The scheduler then stops the other processes with the same message.
    """
    deaths = (event for event in evidence.of(*DEATHS) if event.source == cancelled.source)
    return "***" in cancelled.text and any(event.order < cancelled.order for event in deaths)


def _own_errors(evidence: LogEvidence, cancelled: Event) -> list[Event]:
    """Return the exceptions of a rank itself just before the cancellation.

    If one task fails, srun stops the other tasks.
    """
    failed = evidence.has(TASK_EXIT)
    return [
        event
        for event, _ in evidence.exceptions
        if event.source == cancelled.source
        and event.order < cancelled.order
        and (failed or cancelled.line - event.line < NEAR)
    ]


def _is_error(event: Event) -> bool:
    """Return whether an event before the cancellation is a failure.

    A lost connection is a failure; a SIGTERM is not.
    """
    return event.cause != ID and (event.authority < Authority.ECHO or event.sign == "peer.closed")


REASONS = (
    ("PREEMPTION", "preempted by another job"),
    ("NODE FAILURE", "a node failed"),
    ("Node failure", "a node failed"),
    ("JOB REQUEUE", "put back into the queue"),
    ("preempt", "preempted by another job"),
    ("interrupted by ctrl-C", "Ctrl-C"),
)

CAUSE = Cause(
    promise="A person or a program ended the job on purpose.",
    signs=(
        Sign("cancelled.slurm", Authority.KILLED, "the scheduler cancelled the job",
             r"CANCELLED (?:AT|by) [^\n]{0,30} ?(?:\*\*\*|DUE TO (?:PREEMPTION|NODE FAILURE)|ON )|"
             r"\*\*\* JOB [^\n]{1,120}DUE to SIGNAL|"
             r"CANCELLED AT \S{10,24} \*\*\*|DUE TO (?:PREEMPTION|NODE FAILURE|JOB REQUEUE)|job has been cancel|"
             r"srun: error: Node failure on|requested job terminate|"
             r"State ?[=:] ?(?:CANCELLED|PREEMPTED|NODE_FAIL)|TERM_OWNER|TERM_ADMIN|TERM_PREEMPT|qdel|"
             r"[Jj]ob (?:was |is )?(?:cancelled|canceled|preempted)|job\.exception type=(?:cancel|preempt)"),
        Sign("cancelled.signal", Authority.ECHO, "the launcher received a signal to stop from outside",
             r"Received (?:1|Signals\.SIGHUP) death signal|got signal: 1\b"),
    ),
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="the scheduler's accounting shows state CANCELLED",
    confirm_with="sacct -j JOBID --format=JobID,State,ExitCode,Reason",
)  # fmt: skip
