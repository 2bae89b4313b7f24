"""A report of `preflight stuck` says why the job hung, before timeouts and lost connections followed."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy
from preflight.explain.event import UNKNOWN, Authority, Event, Moment
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

ID = "found_by_stuck"
TOO_LONG = (
    "Start with this step, because it took longer than the timeout. Make the step shorter, or run it on all ranks. If "
    "the step needs this time, compute a timeout with `preflight timeout`."
)
LIVE = ("Wait", "End the job", "    ")  # steps for a job that still runs


def judge(evidence: LogEvidence, _events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion of a `preflight stuck` report.

    Return None if there is no report, or if the job succeeded.
    """
    if not evidence.stuck or evidence.successes():
        return None
    source, found = evidence.stuck[0]
    events = tuple(
        Event("stuck.found", ID, Authority.MISMATCH, source, 1, 0, found.rank, UNKNOWN, Moment(), text)
        for text in (found.what, *found.evidence)
    )
    at = f" at {found.clock} UTC" if found.clock else ""
    because = "`preflight stuck` read the ranks while the job hung"
    if found.works:
        verdict, confidence = (
            f"The other ranks waited for a rank that was still busy{at}: {found.what}.",
            Confidence.MEDIUM,
        )
    else:
        verdict, confidence = f"{found.what}, while the job hung{at and ','}{at}.", Confidence.HIGH
    return Claim(Authority.MISMATCH, events, confidence, because, verdict)


def remedy(evidence: LogEvidence, _claim: Claim) -> Remedy:
    """Return the repair steps in the `preflight stuck` report.

    Timeouts and lost connections need no steps, because they are only consequences of the hang.
    """
    found = [answer for _, answer in evidence.stuck[:1]]
    steps = (step for answer in found for step in answer.steps if not step.startswith(LIVE))
    if any(answer.works for answer in found):
        return Remedy(TOO_LONG)
    return Remedy("Start with this rank, because the other ranks only waited for it until they timed out.", *steps)


CAUSE = Cause(
    promise="Before the job failed, `preflight stuck` found the rank for which the others waited.",
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="`preflight stuck` names the same rank if the job hangs again",
    confirm_with="preflight stuck -v   # if it hangs again",
    outranks=(
        "watchdog_timeout_straggler", "checkpoint_save_timeout", "data_preprocessing_on_rank0_timeout",
        "heartbeat_monitor", "hang_no_error", "remote_peer_died", "store_wait_timeout", "rendezvous_failed",
        "scheduler_cancelled", "scheduler_time_limit", "jax_coordination_timeout", "collective_mismatch",
    ),
)  # fmt: skip
