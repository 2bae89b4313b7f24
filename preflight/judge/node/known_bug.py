from __future__ import annotations

from collections.abc import Iterator

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import chosen_gpus, name_of
from preflight.model.facts import Gap, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Finding, Severity, Unseen
from preflight.model.known_bugs import BugFit, Effect, KnownBug, Surroundings, fitting
from preflight.model.trial import Outcome

TABLE = "preflight/data/known_bugs.toml"
MOST = 8  # that are named in the evidence
SHOWN = {
    Outcome.HANG: Effect.HANGS,
    Outcome.CRASH: Effect.CRASHES,
    Outcome.INIT_ERROR: Effect.FAILS,
    Outcome.WRONG_DATA: Effect.WRONG_DATA,
}


@node_check(
    "known-bug", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("software", "system", "driver", "gpus")
)
def known_bug(node: NodeFacts, case: Case) -> Findings:
    """These versions of NCCL, torch, driver and kernel have no known bug that a short check can miss.

    Yields one INFO for the bug that fits best, with the other bugs as evidence. The verdict does not change.

    Can't see: a bug that is not in the table, a version that only the job loads, and a job that is larger than the
    check.
    """
    # A bug that needs hours or more ranks does not occur in a check. If a test run failed, bugs of these GPUs that fail
    # in the same way count too.
    if not case.wants_gpus:
        raise NotApplicable("no GPU is used, and the known bugs are in NCCL and the software below it")
    known(known(node.software).torch)  # without torch nothing says which NCCL the job loads
    around = surroundings(node, case)
    failures = {SHOWN[trial.outcome] for trial in case.trials if trial.outcome in SHOWN}
    found = [bug for bug, fit in fitting(case.bugs, around) if _counts(bug, fit, around, failures)]
    if found:
        yield _finding(node, found, around, failures)


def surroundings(node: NodeFacts, case: Case) -> Surroundings:
    """Return the software versions, architecture, GPUs, ranks and nodes that decide which known bugs apply."""
    versions: dict[str, tuple[str, ...]] = {}
    loaded = tuple(dict.fromkeys(trial.nccl for trial in case.trials if trial.nccl))
    software = node.software
    if not isinstance(software, Gap) and not isinstance(software.torch, Gap):
        versions["torch"] = (software.torch.version,)
        loaded = loaded or tuple(filter(None, (known_or(software.torch.nccl, ""),)))
    versions |= {"NCCL": loaded} if loaded else {}
    if not isinstance(node.driver, Gap):
        versions |= {"driver": (node.driver.version,)} if not isinstance(node.driver.version, Gap) else {}
    system = node.system
    architecture, kernel = "", ""
    if not isinstance(system, Gap):
        architecture, kernel = known_or(system.architecture, ""), known_or(system.kernel, "")
    versions |= {"kernel": (kernel,)} if kernel else {}
    names = () if isinstance(node.gpus, Gap) else tuple(dict.fromkeys(name_of(g) for g in chosen_gpus(node, case)))
    return Surroundings(versions, architecture, names, case.world_size, len(case.nodes))


def _counts(bug: KnownBug, fit: BugFit, around: Surroundings, failures: set[Effect]) -> bool:
    """Return whether to report a bug that fits.

    Report the bug if a short check can miss it, or if a trial failed as the bug predicts. All facts on which the bug
    depends must be known.
    """
    if bug.not_known(around) or not bug.span:
        return False
    is_precise = bool(bug.architecture or bug.gpus)  # half of all releases have crashed somewhere
    return bug.warns or (bug.effect in failures and fit is BugFit.YES and is_precise)


def _finding(node: NodeFacts, bugs: list[KnownBug], around: Surroundings, failures: set[Effect]) -> Finding:
    bug = bugs[0]
    here = "a trial failed in the same way" if bug.effect in failures else "the bug did not occur here"
    fixed = f", fixed in {bug.fixed}" if bug.fixed else ""
    condition = f", if {bug.where}" if bug.where else ""
    more = f" ({len(bugs) - 1} more with -v)" if bugs[1:] else ""
    return known_bug.finding(
        Severity.INFO,
        f"{node.host} {bug.version_in(around)}",
        f"this version has a known bug{fixed}: {bug.says}{condition}; {here}{more}",
        bug.do,
        *_evidence(bugs, around),
    )


def _evidence(bugs: list[KnownBug], around: Surroundings) -> Iterator[Evidence]:
    for bug in bugs[:MOST]:
        condition = f", if {bug.where}" if bug.where else ""
        told = f"{bug.says}{condition}; {bug.do}; how sure: {bug.how_sure} ({bug.source})"
        yield Evidence(bug.version_in(around), told, TABLE)
