"""Threads count as processes: with a small limit a rank can't start its threads or its data loaders' workers."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import is_contained, owner
from preflight.judge.local_ranks import local_ranks_of
from preflight.judge.symptoms import PIDS_TEXTS, seen
from preflight.judge.workaround import proven_severity
from preflight.model.facts import Gap, Limit, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity

# Judgement: CUDA's, NCCL's and torch's threads of a rank, and eight workers with a few each.
PER_RANK = 200


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN below what the ranks and their workers may need, a FAIL where a trial failed from it."""
    limit, source = _tightest(node)
    ranks = local_ranks_of(node, case)
    proofs = seen(case, PIDS_TEXTS)
    if isinstance(limit, Limit) or (limit >= ranks * PER_RANK and not proofs):
        return
    told = "a trial failed when it started a thread or a process" if proofs else f"{ranks} ranks with data loaders "
    told += "" if proofs else f"may need {ranks * PER_RANK}"
    yield Finding(
        check=CHECK.name,
        blame=owner(node),
        severity=proven_severity(case) if proofs else Severity.WARN,
        subject=f"{node.host} {source}",
        problem=f"{limit} processes and threads are allowed: {told}",
        fix=_fix(node, max(4096, ranks * PER_RANK)),
        evidence=(Evidence("limit", str(limit), source), *(proof.evidence() for proof in proofs)),
    )


def _tightest(node: NodeFacts) -> tuple[int | Limit, str]:
    """Return the smaller of both limits; a gap only where neither is a number."""
    nproc = node.limits if isinstance(node.limits, Gap) else node.limits.nproc
    pids = known(node.system).cgroup_pids_limit
    both: tuple[tuple[int | Limit | Gap, str], ...] = ((pids, "cgroup pids.max"), (nproc, "RLIMIT_NPROC"))
    found = [(limit, source) for limit, source in both if isinstance(limit, int)]
    if found:
        return min(found)
    known(pids)  # raises where it could not be read
    return Limit.UNLIMITED, "cgroup pids.max"


def _fix(node: NodeFacts, need: int) -> str:
    if is_contained(node):
        return f"docker/podman: `--pids-limit={need}`; Kubernetes: the kubelet's `podPidsLimit`; or fewer `num_workers`"
    return f"`ulimit -u {need}`, systemd: `TasksMax={need}` in the unit or slice; or fewer `num_workers`"


CHECK = NodeCheck(
    name="pids",
    promise="every rank may start the threads and workers that it needs",
    blame=Blame.HOST,
    reads=("limits", "system", "gpus"),
    blind_to="what else of the limit is in use, and how many workers a job has; RLIMIT_NPROC does not hold for root",
    judge=judge,
)
