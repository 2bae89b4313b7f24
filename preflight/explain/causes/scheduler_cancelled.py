"""Somebody, or the scheduler, cancelled the job; or the scheduler stopped the rest after one task had failed."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fixed
from preflight.explain.event import Authority
from preflight.explain.seen import Seen
from preflight.model.explanation import Confidence

ID = "scheduler_cancelled"
VERDICT = "The job was cancelled from outside ({why}); nothing in the log failed before that."


def judge(seen: Seen) -> Claim | None:
    """Claim a cancellation before which nothing failed; else it is how the scheduler stopped the rest."""
    events = seen.best(ID)
    if not events:
        return None
    other = [e for e in seen.failures() if e.cause != ID and e.authority < Authority.ECHO and e.order < events[0].order]
    reason = next(
        (why for words, why in REASONS if words in events[0].text), "by its owner, an administrator or the scheduler"
    )
    authority = Authority.ECHO if other else Authority.KILLED
    because = "the scheduler says so, and no error precedes it" if not other else "it came after another error"
    return Claim(authority, events, Confidence.HIGH, because, VERDICT.replace("{why}", reason))


REASONS = (
    ("PREEMPTION", "preempted by another job"),
    ("NODE FAILURE", "a node failed"),
    ("preempted", "preempted by another job"),
)

CAUSE = Cause(
    id=ID,
    promise="Somebody or something ended the job on purpose.",
    signs=(
        Sign(
            "cancelled.slurm",
            r"CANCELLED (?:AT|by) [^\n]{0,30} ?(?:\*\*\*|DUE TO (?:PREEMPTION|NODE FAILURE|to SIGNAL)|ON )|"
            r"CANCELLED AT \S{10,24} \*\*\*|DUE TO PREEMPTION|DUE TO NODE FAILURE|job has been cancel|"
            r"TERM_OWNER|TERM_ADMIN|TERM_PREEMPT|qdel|[Jj]ob (?:was )?(?:cancelled|canceled|preempted)",
            Authority.KILLED,
            "the scheduler cancelled the job",
        ),
    ),
    judge=judge,
    remedy=fixed(
        "Ask the scheduler who: sacct -j JOBID --format=JobID,State,ExitCode,Reason,Comment; scontrol show job JOBID.",
        "Preempted jobs: save checkpoints and let it requeue (sbatch --requeue --signal=B:USR1@120).",
        "If you cancelled it because it hung: run preflight explain on the log of a run that hung "
        "longer, with NCCL_DEBUG=INFO.",
    ),
    needs="the scheduler's accounting",
    confirm_with="sacct -j JOBID --format=JobID,State,ExitCode,Reason",
)
