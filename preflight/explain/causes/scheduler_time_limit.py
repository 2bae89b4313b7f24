"""The scheduler ended the job at its time limit."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

NEAR = 30  # lines between a rank's own error and the end of the ranks that waited for it


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that the job reached its time limit.

    Return None if the job had already succeeded.
    """
    if all(map(evidence.survival.is_after_success, events)):
        return None
    verdict = "The scheduler ended the job because its time limit was reached."
    authority = Authority.ECHO if _had_failed(evidence, events[0]) else events[0].authority
    return Claim(authority, events, Confidence.HIGH, "the log states the cause", verdict)


def _had_failed(evidence: LogEvidence, limit: Event) -> bool:
    """Return whether a rank had failed shortly before, and the job did no step of work after that."""
    own = (event for event in evidence.failures() if event.authority is Authority.OWN_ERROR)
    return any(
        event.source == limit.source and 0 < limit.line - event.line < NEAR and event.steps == limit.steps
        for event in (*own, *(event for event, _ in evidence.exceptions))
    )


CAUSE = Cause(
    promise="The job used all of its requested time. If the job printed nothing for a long time before the end, it "
    "may have hung.",
    signs=(
        Sign("limit.slurm", Authority.KILLED, "the scheduler ended the job at its time limit",
             r"DUE TO TIME ?LIMIT|State ?[=:] ?TIMEOUT|reached its time limit|TIME LIMIT \*\*\*|"
             r"[Jj]ob (?:has )?(?:exceeded|reached) (?:its |the )?(?:time|wall)[ -]?limit|MaxRuntimeExceeded|"
             r"MaxRuntimeInSeconds[^\n]{0,30}exceed"),
        Sign("limit.other", Authority.KILLED, "the scheduler ended the job at its time limit",
             r"TERM_RUNLIMIT|walltime \d{1,9} exceeded limit|job killed: walltime|"
             r'exceeded (?:its )?(?:hard )?wall ?(?:clock|time)|exceeds job hard limit \"h_rt|'
             r"was active (?:on the node )?longer than (?:the )?specified deadline|job\.exception type=timeout"),
    ),
    judge=judge,
    remedy=fixed(
        "Compare the time of the last progress line with that of the cancellation. If progress stopped long before, "
        "look for the cause of a hang.",
        "If not, ask for more time (sbatch --time=...), or write checkpoints and resume (sbatch "
        "--signal=B:USR1@120 warns two minutes ahead).",
    ),
    confirmed_if="the scheduler's accounting shows state TIMEOUT",
    confirm_with="sacct -j JOBID --format=JobID,State,Elapsed,Timelimit",
)  # fmt: skip
