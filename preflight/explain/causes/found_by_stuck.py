"""`preflight stuck` found what held up the job before timeouts and lost connections followed."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy
from preflight.explain.event import UNKNOWN, Authority, Event, Moment
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

ID = "found_by_stuck"
LIVE = ("Wait", "End the job", "    ")  # steps for a job that still runs


def judge(evidence: LogEvidence, _events: tuple[Event, ...]) -> Claim | None:
    """Claim the finding of `stuck`, unless the job continued to its end."""
    if not evidence.stuck or evidence.successes():
        return None
    source, found = evidence.stuck[0]
    events = tuple(
        Event("stuck.found", ID, Authority.MISMATCH, source, 1, 0, found.rank, UNKNOWN, Moment(), text)
        for text in (found.what, *found.evidence)
    )
    at = f", at {found.clock} UTC" if found.clock else ""
    because = "`preflight stuck` read the ranks while the job hung"
    return Claim(
        Authority.MISMATCH,
        events,
        Confidence.HIGH,
        because,
        f"{found.what}, while the job hung{at} (`preflight stuck`).",
    )


def remedy(evidence: LogEvidence, _claim: Claim) -> Remedy:
    """Start with the finding of `stuck`; it caused the timeouts and lost connections."""
    found = [step for _, answer in evidence.stuck[:1] for step in answer.steps]
    steps = (step for step in found if not step.startswith(LIVE))
    return Remedy("Start there: the other ranks only waited for it until they timed out.", *steps)


CAUSE = Cause(
    promise="`preflight stuck` found which rank held up the others before the job failed.",
    judge=judge,
    remedy=remedy,
    infers=True,
    needs="nothing: `preflight stuck` read it while it happened",
    confirm_with="preflight stuck -v, if it hangs again",
    outranks=(
        "watchdog_timeout_straggler", "checkpoint_save_timeout", "data_preprocessing_on_rank0_timeout",
        "heartbeat_monitor", "hang_no_error", "remote_peer_died", "store_wait_timeout", "rendezvous_failed",
        "scheduler_cancelled", "scheduler_time_limit", "jax_coordination_timeout", "collective_mismatch",
    ),
)  # fmt: skip
