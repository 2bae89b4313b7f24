"""Find the known bug that fits the symptom, the versions and the machine in a log.

This module handles the bugs that print no line of their own.
"""
# The bugs that this module handles appear only as a timeout of all ranks or as a crash. All versions and machine data
# in the log must fit the bug. The other bugs are in causes/known_bug.py and signatures.py.

from __future__ import annotations

import re

from preflight.explain.effects import EFFECTS
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.known_bugs import BugFit, Effect, KnownBug, Surroundings, fitting
from preflight.system.known_bugs import load_known_bugs

GRACE = re.compile(r"GB(?:10|200|300)|aarch64")


def surroundings(evidence: LogEvidence) -> Surroundings:
    """Return the versions, the machine and the number of ranks that the log shows."""
    words = {event.match for event in evidence.of("context.machine")}
    return Surroundings(
        {name: (version,) for name, version in evidence.versions.items()},
        "aarch64" if any(map(GRACE.search, words)) else "",
        tuple(sorted(words - {"aarch64"})),
        evidence.world_size,
    )


def known_bug_of(evidence: LogEvidence, cause: str, confidence: Confidence) -> tuple[KnownBug, str] | None:
    """Return the known bug that fits the log best and a sentence about the bug, or None if no bug fits.

    The bug must have the same effect as the cause that was found, whose id is `cause`.
    """
    # The result is also None for a hang whose cause has high `confidence`.
    effect = EFFECTS.get(cause)
    if effect is None or (effect is Effect.HANGS and confidence is Confidence.HIGH):
        return None
    around = surroundings(evidence)
    for bug, fit in fitting(load_known_bugs(), around):
        if bug.effect is not effect or bug.line or not (bug.alike or bug.gpus) or not bug.span or bug.where:
            continue
        lacks = bug.not_known(around)
        if fit is BugFit.YES or (lacks == (f"the version of {bug.component}",) and (bug.architecture or bug.gpus)):
            return bug, _sentence(bug, around)
    return None


def _sentence(bug: KnownBug, around: Surroundings) -> str:
    version = bug.version_in(around)
    if version == bug.component:
        version += f" {bug.span} (the log does not show the version)"
    return f"This may be a known bug of {version}: {bug.says} ({bug.address})."
