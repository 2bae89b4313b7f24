"""A rank holds several descriptors per peer; with a small limit a big job runs out of them at start."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import is_contained, owner
from preflight.judge.symptoms import NOFILE_TEXTS, seen
from preflight.judge.workaround import proven_severity
from preflight.model.facts import Limit, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

AT_REST = 200  # what python, torch and CUDA hold before the first connection, rounded up
PER_PEER = 4  # sockets or segments per peer, rounded up
COMFORTABLE = 4096


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN below what this run needs, an INFO on several nodes below some thousands, a FAIL with proof."""
    nofile = known(node.limits).nofile
    if isinstance(nofile, Limit):
        return
    proofs = seen(case, NOFILE_TEXTS)
    needed = AT_REST + PER_PEER * case.world_size
    if proofs:
        severity, told = proven_severity(case), "a trial failed with 'Too many open files'"
    elif nofile < needed:
        severity, told = Severity.WARN, f"{case.world_size} ranks may need {needed} each"
    elif len(case.nodes) > 1 and nofile < COMFORTABLE:
        severity, told = Severity.INFO, "enough for this run; a job of many nodes and data loaders needs thousands"
    else:
        return
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=severity,
        subject=f"{node.host} RLIMIT_NOFILE",
        problem=f"a process may open {nofile} files: {told}",
        fix="docker/podman: `--ulimit nofile=65536:65536`"
        if is_contained(node)
        else "`ulimit -n $(ulimit -Hn)` before the job; for good `* - nofile 65536` in /etc/security/limits.d/",
        evidence=(Evidence("RLIMIT_NOFILE (soft)", str(nofile), "getrlimit"), *(proof.evidence() for proof in proofs)),
    )


CHECK = NodeCheck(
    name="nofile",
    promise="every rank may open the descriptors that it needs",
    blame=Blame.HOST,
    reads=("limits", "system"),
    blind_to="the hard limit, and what the job itself opens",
    judge=judge,
)
