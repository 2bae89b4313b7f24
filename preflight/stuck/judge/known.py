"""Known bugs of the loaded library versions that may explain why a job hangs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preflight.model.gap import Gap, known_or
from preflight.model.known_bugs import BugFit, Effect, KnownBug, Surroundings, fitting
from preflight.model.stuck import KnownHang, StuckVerdict
from preflight.model.stuck_evidence import JobSoftware, NodeEvidence
from preflight.stuck.judge.rank_place import JobState

MOST = 3


def known_hangs(job: JobState, verdict: StuckVerdict, bugs: Sequence[KnownBug]) -> tuple[KnownHang, ...]:
    """Return at most MOST known bugs that may explain why the job hangs.

    Bugs that a stack shows come first. If `verdict` is NOT_STUCK, the result is ().
    """
    if verdict is StuckVerdict.NOT_STUCK or not job.nodes:
        return ()
    around = surroundings(job)
    calls = [call for node in job.nodes for call in _calls(node)]
    waits = bool(job.waiting) and (verdict is StuckVerdict.STUCK or all(place.spins for place in job.waiting))
    alike = waits and not any(place.is_gone or place.works for place in job.places)
    found = [
        KnownHang(
            bug.id,
            bug.version_in(around),
            bug.says,
            bug.do,
            bug.how_sure,
            bug.address,
            bug.where,
            is_shown,
            bug.not_known(around),
        )
        for bug, fit in fitting(bugs, around)
        if bug.effect is Effect.HANGS
        and ((is_shown := bug.shows_in(calls)) or (alike and bug.alike and _is_exact(bug, fit, around)))
    ]
    return tuple(sorted(found, key=lambda each: not each.is_shown))[:MOST]


def _is_exact(bug: KnownBug, fit: BugFit, around: Surroundings) -> bool:
    """Return whether the bug is known to fit this job exactly.

    The bug must be limited to some versions. All facts on which the bug depends must be known and must fit.
    """
    return fit is BugFit.YES and bool(bug.span) and not bug.not_known(around)


def surroundings(job: JobState) -> Surroundings:
    """Return the values on which known bugs depend: library versions, architecture, GPUs, ranks and nodes."""
    software = [node.software for node in job.nodes if isinstance(node.software, JobSoftware)]
    versions: dict[str, tuple[str, ...]] = {}
    for each in software:
        for name, several in each.versions.items():
            versions[name] = tuple(dict.fromkeys((*versions.get(name, ()), *several)))
    looked_at = len(job.nodes)
    nodes = looked_at if job.world_size <= len(job.places) else looked_at + 1  # at least
    return Surroundings(
        versions,
        next((each.architecture for each in software if each.architecture), ""),
        tuple(dict.fromkeys(gpu for each in software for gpu in each.gpus)),
        max(job.world_size, len(job.places)),
        nodes,
    )


def _calls(node: NodeEvidence) -> Iterable[str]:
    """Yield every call on a stack of the ranks, as `function (file)`."""
    for rank in node.ranks:
        for stack in known_or(rank.process.stacks, ()):
            yield from (f"{frame.function} ({frame.file})" for frame in stack.frames)


def mapped_twice(job: JobState) -> Iterable[str]:
    """Yield a text for each library that a node's ranks have loaded in two versions."""
    for node in job.nodes:
        if not isinstance(node.software, Gap) and node.software.twice:
            yield f"{node.host}: {node.software.twice}"
