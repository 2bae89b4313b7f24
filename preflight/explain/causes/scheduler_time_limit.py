"""The scheduler ended the job at its time limit."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Claim the scheduler's message, unless the job had succeeded and only hung at its exit."""
    if all(map(evidence.survival.is_after_success, events)):
        return None
    verdict = "The scheduler ended the job because its time limit was reached."
    return Claim(events[0].authority, events, Confidence.HIGH, "the log says so explicitly", verdict)


CAUSE = Cause(
    promise="Nothing broke: the time that was asked for ran out. If nothing was printed for long before "
    "that, a hang used it up.",
    signs=(
        Sign("limit.slurm", Authority.KILLED, "the scheduler ended the job at its time limit",
             r"DUE TO TIME ?LIMIT|State ?[=:] ?TIMEOUT|reached its time limit|TIME LIMIT \*\*\*|"
             r"[Jj]ob (?:has )?(?:exceeded|reached) (?:its |the )?(?:time|wall)[ -]?limit|MaxRuntimeExceeded|"
             r"MaxRuntimeInSeconds[^\n]{0,30}exceed"),
        Sign("limit.other", Authority.KILLED, "the scheduler ended the job at its time limit",
             r"TERM_RUNLIMIT|walltime \d{1,9} exceeded limit|job killed: walltime|"
             r'exceeded (?:its )?(?:hard )?wall ?(?:clock|time)|exceeds job hard limit \"h_rt|'
             r"was active (?:on the node )?longer than (?:the )?specified deadline"),
    ),
    judge=judge,
    remedy=fixed(
        "Compare the last line of progress with the time of the cancellation: if progress stopped long "
        "before, a hang used the time up; look for that.",
        "Otherwise ask for more time (sbatch --time=...), or save checkpoints and resume (sbatch "
        "--signal=B:USR1@120 warns two minutes ahead).",
    ),
    needs="state TIMEOUT in the scheduler's accounting",
    confirm_with="sacct -j JOBID --format=JobID,State,Elapsed,Timelimit",
)  # fmt: skip
