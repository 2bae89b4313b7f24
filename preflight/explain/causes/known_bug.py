"""The log has a line that a known bug of a released version prints.

data/known_bugs.toml lists the known bugs.
"""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.known_bugs import Effect, KnownBug, Sureness
from preflight.system.known_bugs import load_known_bugs

ID = "known_bug"
BUGS = {f"bug.{bug.id}": bug for bug in load_known_bugs() if bug.cause == ID}


def judge(evidence: LogEvidence, _events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that the run failed because of a known bug, or return None.

    The confidence is lower if the log does not show the library's version.
    """
    # The log must have the line that the bug prints, and the library's version must have the bug. For a bug that makes
    # a job hang, the log must also have a timeout.
    timeouts = evidence.timeouts()
    for event in evidence.of(*BUGS):
        bug = BUGS[event.sign]
        version = evidence.versions.get(bug.component, "")
        if (version and not bug.has(version)) or (bug.effect is Effect.HANGS and not timeouts):
            continue
        is_sure = (bool(version) or not bug.span) and bug.sure is not Sureness.REPORTED
        because = f"the line matches the bug, and {_about(bug, version)}; {bug.how_sure}"
        proof: tuple[Event, ...] = (event,)
        authority = Authority.SETUP
        if bug.effect is Effect.HANGS:
            proof, authority = (event, timeouts[0]), Authority.REFINED_TIMEOUT
        known = f"{bug.component} {version}".strip()
        verdict = f"A known bug of {known}: {bug.says} ({bug.address})."
        return Claim(authority, proof, Confidence.HIGH if is_sure else Confidence.MEDIUM, because, verdict)
    return None


def _about(bug: KnownBug, version: str) -> str:
    if not bug.span:
        return "no version was stated"
    return f"the log has {version}" if version else f"the log does not show the version; the bug is in {bug.span}"


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair step for the known bug: read the public thread about the bug."""
    bug = BUGS[claim.events[0].sign]
    return Remedy(f"Read {bug.address} for news since our last look ({bug.looked.partition(',')[0]}).")


CAUSE = Cause(
    promise="This version of a library has a bug that others reported. An update or a setting avoids it.",
    signs=tuple(
        Sign(
            sign,
            Authority.SILENCE if bug.effect is Effect.HANGS else Authority.SETUP,
            f"a line of a known bug of {bug.component}",
            bug.line,
        )
        for sign, bug in BUGS.items()
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the error does not occur with another version, or with the setting",
    confirm_with="run the same job with the version or the setting that the step names",
    outranks=("watchdog_timeout_straggler", "hang_no_error", "segfault_worker"),
)
