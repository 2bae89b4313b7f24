"""Rank the causes that the logs support: separate the main cause from its consequences."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from preflight.explain.cause import Cause, Claim
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence, earliest
from preflight.explain.run_ends import DEATHS
from preflight.explain.survival import is_after
from preflight.explain.work_steps import shows_work
from preflight.model.explanation import Confidence

WHY = {
    Authority.REFINED_TIMEOUT: "this timeout follows from the cause above",
    Authority.TIMEOUT: "this timeout follows from the cause above",
    Authority.ECHO: "connections break when the process at the other end stops",
    Authority.SILENCE: "it occurs in healthy runs too",
    Authority.UNEXPLAINED_DEATH: "a process that fails is often ended by a signal",
}
WARNING = re.compile(r"\[W\d{3,4} ")
OTHERWISE = "it came after the cause, or usually follows from it"
ONLY_WARNED = "a warning names this cause, and nothing else shows why the run failed"
MAYBE_EARLIER = "the log states the cause, but another run may begin after these lines"


@dataclass(frozen=True, slots=True)
class Ranked:
    """A cause, and the `Claim` with the evidence for this cause."""

    cause: Cause
    claim: Claim


def rank_causes(evidence: LogEvidence, causes: Iterable[Cause]) -> tuple[tuple[Ranked, ...], tuple[Ranked, ...]]:
    """Return the likely causes, the best first, and the consequences of the best cause.

    The best cause has the evidence closest to the root cause.
    """
    # The causes are sorted by `Authority`, which says how close the evidence is to the root cause. If two causes have
    # equal authority, the earlier cause comes first. A cause that lists another cause in `outranks` precedes that
    # cause.
    asked = ((cause, evidence.best(cause.id)) for cause in causes)
    judged = ((cause, cause.judge(evidence, events)) for cause, events in asked if events or cause.infers)
    claims = [Ranked(cause, claim) for cause, claim in judged if claim is not None]
    claims = [r for r in claims if not _is_noise_of_the_end(evidence, r.claim)]
    # A program goes on after a warning: it counts, as likely, where nothing else tells why the run failed.
    claims = [r for r in claims if not r.claim.is_warning] or [_not_sure(r, ONLY_WARNED) for r in claims]
    claims = [_not_sure(r, MAYBE_EARLIER) if _may_be_of_earlier_run(evidence, r.claim) else r for r in claims]
    first = {event.order: place for place, event in enumerate(earliest(e for r in claims for e in r.claim.events[:1]))}
    claims.sort(
        key=lambda r: (r.claim.authority, first.get(r.claim.events[0].order, 0) if r.claim.events else -1, r.cause.id)
    )
    outranked = {name for r in claims for name in r.cause.outranks}
    leading = [r for r in claims if r.cause.id not in outranked] or claims[:1]
    if not leading:
        return (), ()
    best = leading[0]
    named = [best] + [r for r in leading[1:] if _may_be_it_too(best.claim, r.claim)]
    # A claim that rests on the very lines of the best one says the same less precisely.
    proof = {event.order for event in best.claim.events}
    others = (r for r in claims if r not in named and any(event.order not in proof for event in r.claim.events))
    return tuple(named), tuple(others)


def _is_only_warned(evidence: LogEvidence, claim: Claim) -> bool:
    """Return whether a cause has only warnings as evidence, and the logs of the warnings end with normal work.

    If so, the run may still continue.
    """
    return all(
        WARNING.search(event.text) and shows_work(evidence.sources[event.source].tail) for event in claim.events
    ) and not evidence.of(*DEATHS)


def is_before_another_run(evidence: LogEvidence, claim: Claim) -> bool:
    """Return whether all events of a claim come before a line at which another run of the log may begin."""
    return bool(claim.events) and all(
        event.line < evidence.sources[event.source].earlier.again for event in claim.events
    )


def _may_be_of_earlier_run(evidence: LogEvidence, claim: Claim) -> bool:
    is_proved = claim.confidence is Confidence.HIGH and claim.authority is not Authority.HARDWARE
    return is_proved and is_before_another_run(evidence, claim)


def _not_sure(ranked: Ranked, because: str) -> Ranked:
    return replace(ranked, claim=replace(ranked.claim, confidence=Confidence.MEDIUM, because=because))


def _may_be_it_too(best: Claim, other: Claim) -> bool:
    """Return whether the conclusion `other` may name another cause of the failure, in addition to the best cause.

    The events of `other` must come before the best cause, unless the best cause is not proved. Events after a proved
    cause are consequences of this cause.
    """
    if other.authority > Authority.TRANSPORT or not other.events:
        return False
    is_proven = best.confidence is not Confidence.LOW and bool(best.events)
    return not is_proven or is_after(best.events[0], other.events[0])


def _is_noise_of_the_end(evidence: LogEvidence, claim: Claim) -> bool:
    """Return whether the only evidence for a cause is harmless messages at the end of the job.

    Messages after the job's success are harmless, and so are warnings that end no job.
    """
    if claim.authority is Authority.ECHO and _is_only_warned(evidence, claim):
        return True
    is_late = claim.authority >= Authority.TIMEOUT or claim.authority is Authority.REFINED_TIMEOUT
    return is_late and bool(claim.events) and all(map(evidence.survival.is_after_success, claim.events))


def timeline(evidence: LogEvidence, named: tuple[Ranked, ...]) -> tuple[Event, ...]:
    """Return the first event of each kind, in order of time.

    The events are all failures in the log and the evidence for the first cause in `named`.
    """
    chosen: dict[str, Event] = {}
    for event in earliest((*evidence.failures(), *(named[0].claim.events if named else ()))):
        chosen.setdefault(event.sign, event)
    return tuple(chosen.values())
