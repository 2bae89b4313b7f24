from __future__ import annotations

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import fine_size
from preflight.judge.gpus_of_node import NO_GPU
from preflight.judge.node_limits import is_contained, must_have_ranks, owner
from preflight.judge.outside_cause import limit_blame
from preflight.judge.pci_fabric import carries_traffic
from preflight.judge.symptoms import MEMLOCK, NOFILE, PIDS, symptoms_of
from preflight.judge.workarounds import proven_severity
from preflight.model import repairs
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, Limit, NetifKind, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.hca import Nic, NicKind
from preflight.model.parsing import version_tuple
from preflight.model.units import counted

LOW_BYTES = Bound(
    1 << 30, "bytes that a process may lock",
    "with many peers, NCCL registers some hundred MiB per rank; NVIDIA recommends an unlimited memlock",
    JUDGMENT,
    "too low: a limit that is too small for a larger job gets no warning; too high: a sufficient limit gets a warning",
)  # fmt: skip


@node_check(
    "memlock",
    blame=Blame.HOST,
    unseen=Unseen.NOTHING,
    reads=("limits", "netifs", "nics", "hca_ports", "system"),
    bounds=(LOW_BYTES,),
)
def memlock(node: NodeFacts, case: Case) -> Findings:
    """The locked-memory limit is high enough for RDMA.

    Yields a FAIL if a test run failed because of the limit, or a WARN if other settings avoid the failure. If no test
    run failed but the limit is below 1 GiB, yields a WARN if there is an RDMA adapter, else an INFO.

    Can't see: limits that a job's own service manager sets, and adapters that /sys does not show.
    """
    # InfiniBand and RoCE must lock the memory that they use, and the usual default limit is far too small.
    allowed = known(node.limits).memlock_bytes
    proofs = symptoms_of(case, MEMLOCK)
    if not (case.wants_gpus or proofs):
        raise NotApplicable(NO_GPU)
    if isinstance(allowed, Limit) or (allowed >= LOW_BYTES.whole and not proofs):
        return
    ipoib = (netif for netif in known_or(node.netifs, ()) if netif.kind is NetifKind.IPOIB and netif.is_up)
    adapters = [*(netif.name for netif in ipoib), *(nic.name for nic in _rdma(node))]
    if proofs:
        severity, why = proven_severity(case), "and a trial failed because RDMA could not lock enough"
    elif adapters:
        severity, why = Severity.WARN, f"but RDMA over {adapters[0]} needs more"
    else:
        severity, why = Severity.INFO, "but InfiniBand and RoCE need more. Sockets, NVLink and /dev/shm do not"
    yield memlock.finding(
        severity,
        f"{node.host} RLIMIT_MEMLOCK",
        f"only {fine_size(allowed)} of memory can be locked, {why}",
        repairs.MEMLOCK.where(is_contained(node)),
        Evidence("RLIMIT_MEMLOCK", fine_size(allowed), "getrlimit"),
        *(Evidence("RDMA adapter or IPoIB interface", name, "/sys/class") for name in adapters),
        *(proof.evidence() for proof in proofs),
        blame=owner(node),
    )


def _rdma(node: NodeFacts) -> tuple[Nic, ...]:
    """Return the adapters that NCCL would use, including EFA, which registers memory like other adapters."""
    nics = () if isinstance(node.hca_ports, Gap) else known_or(node.nics, ())
    return tuple(nic for nic in nics if nic.kind is not NicKind.OTHER and carries_traffic(node, nic.name))


AT_REST = Bound(
    200, "open files before the first connection",
    "Python, torch and CUDA hold about this many files open; the number is rounded up",
    JUDGMENT,
    "a wrong value has little effect, because the check only warns",
)  # fmt: skip
PER_PEER = Bound(
    4, "open files per peer",
    "each peer needs some sockets or segments of shared memory; the number is rounded up",
    JUDGMENT,
    "a wrong value has little effect, because the check only warns",
)  # fmt: skip
COMFORTABLE = Bound(
    4096, "open files, on several nodes",
    "a job of some hundred ranks needs this many open files, including its data files",
    JUDGMENT,
    "a wrong value has little effect, because the finding is only an INFO",
)  # fmt: skip


@node_check(
    "nofile",
    blame=Blame.HOST,
    unseen=Unseen.NOTHING,
    reads=("limits", "system"),
    bounds=(AT_REST, PER_PEER, COMFORTABLE),
)
def nofile(node: NodeFacts, case: Case) -> Findings:
    """Every rank may open as many file descriptors as it needs.

    Yields a FAIL if a test run failed because of the limit, or a WARN if other settings avoid the failure. Otherwise,
    yields a WARN if the limit is too small for this run. On several nodes, yields an INFO if the limit is below 4096.

    Can't see: the hard limit, and the files that the job itself opens.
    """
    # A rank opens several file descriptors for each peer, so with a small limit a large job fails at its start.
    allowed = known(node.limits).nofile
    if isinstance(allowed, Limit):
        return
    proofs = symptoms_of(case, NOFILE)
    needed = AT_REST.whole + PER_PEER.whole * case.world_size
    if proofs:
        severity, why = proven_severity(case), "and a trial failed with 'Too many open files'"
    elif allowed < needed:
        severity, why = Severity.WARN, f"but each of the {case.world_size} ranks may need {needed}"
    elif len(case.nodes) > 1 and allowed < COMFORTABLE.whole:
        severity, why = Severity.INFO, "but a job with many nodes and data loaders needs thousands"
    else:
        return
    yield nofile.finding(
        severity,
        f"{node.host} RLIMIT_NOFILE",
        f"the limit of open files is {allowed}, {why}",
        "start the container with `--ulimit nofile=65536:65536` (docker, podman)"
        if is_contained(node)
        else "run `ulimit -n $(ulimit -Hn)` before the job; to make this limit permanent, put `* - nofile 65536` into "
        "/etc/security/limits.d/",
        Evidence("RLIMIT_NOFILE (soft)", str(allowed), "getrlimit"),
        *(proof.evidence() for proof in proofs),
        blame=limit_blame(case) if proofs else owner(node),
    )


PER_RANK = Bound(
    200, "threads per rank",
    "a rank has threads of CUDA, NCCL and torch, and eight workers with a few threads each",
    JUDGMENT,
    "a wrong value has little effect, because the check only warns",
)  # fmt: skip


@node_check("pids", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("limits", "system", "gpus"), bounds=(PER_RANK,))
def pids(node: NodeFacts, case: Case) -> Findings:
    """The limit of processes lets every rank start the threads and workers that it needs.

    Yields a FAIL if a test run failed because of the limit, or a WARN if other settings avoid the failure. If no test
    run failed, yields a WARN if the ranks and workers may need more than the limit.

    Can't see: what else counts toward the limit, and how many workers a job has; RLIMIT_NPROC does not apply to root.
    """
    # The limit of processes also counts threads. If the limit is too small, a rank can't start its threads or its data
    # loaders' workers.
    limit, source = _tightest(node)
    ranks = must_have_ranks(node, case)
    proofs = symptoms_of(case, PIDS)
    if isinstance(limit, Limit) or (limit >= ranks * PER_RANK.whole and not proofs):
        return
    if proofs:
        severity, why = proven_severity(case), "and a trial failed when it started a thread or a process"
    else:
        need = ranks * PER_RANK.whole
        severity, why = Severity.WARN, f"but {counted(ranks, 'rank')} with data loaders may need {need}"
    yield pids.finding(
        severity,
        f"{node.host} {source}",
        f"the limit of processes and threads is {limit}, {why}",
        _pids_fix(node, max(4096, ranks * PER_RANK.whole)),
        Evidence("limit of processes", str(limit), source),
        *(proof.evidence() for proof in proofs),
        blame=limit_blame(case) if proofs else owner(node),
    )


def _tightest(node: NodeFacts) -> tuple[int | Limit, str]:
    """Return (limit, source) for the smaller of two process limits, the cgroup's and the user's.

    If neither limit is set, the limit is UNLIMITED. Raise UnreadableFact if RLIMIT_NPROC is not a number and the
    cgroup's limit could not be read.
    """
    nproc = node.limits if isinstance(node.limits, Gap) else node.limits.nproc
    pids = known(node.system).cgroup_pids_limit
    both: tuple[tuple[int | Limit | Gap, str], ...] = ((pids, "cgroup pids.max"), (nproc, "RLIMIT_NPROC"))
    found = [(limit, source) for limit, source in both if isinstance(limit, int)]
    if found:
        return min(found)
    known(pids)  # raises where it could not be read
    return Limit.UNLIMITED, "cgroup pids.max"


def _pids_fix(node: NodeFacts, need: int) -> str:
    if is_contained(node):
        container = f"`--pids-limit={need}` (docker, podman) or the kubelet's `podPidsLimit` (Kubernetes)"
        return f"set {container}, or use fewer `num_workers`"
    return f"run `ulimit -u {need}`, set `TasksMax={need}` in systemd's unit or slice, or use fewer `num_workers`"


CURED_IN = (2, 28)


@node_check("stack-unlimited", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("limits", "software", "system"))
def stack_unlimited(node: NodeFacts, case: Case) -> Findings:
    """NCCL's threads have as much stack as they need.

    With an unlimited stack limit, yields a WARN if NCCL is older than 2.28, and an INFO if its version is unknown.

    Can't see: an NCCL that is linked into torch or loaded from LD_LIBRARY_PATH.
    """
    # If the stack limit is unlimited, glibc gives new threads only 2 MB, which NCCL before 2.28 exceeded.
    if not case.wants_gpus:
        raise NotApplicable(NO_GPU)
    if not isinstance(known(node.limits).stack_bytes, Limit):
        return
    nccl = _nccl(node)
    if not isinstance(nccl, Gap) and version_tuple(nccl) >= CURED_IN:
        return
    yield stack_unlimited.finding(
        Severity.INFO if isinstance(nccl, Gap) else Severity.WARN,
        f"{node.host} RLIMIT_STACK",
        "the stack limit is unlimited, so glibc gives NCCL's threads only 2 MB; NCCL before 2.28 may then crash at "
        "init",
        "run `ulimit -s 8192` before the job, or use NCCL 2.28 or newer",
        Evidence("RLIMIT_STACK", "unlimited", "getrlimit"),
        Evidence(
            "NCCL", f"unknown: {nccl.reason}" if isinstance(nccl, Gap) else nccl, "the wheel installed with torch"
        ),
        blame=owner(node),
    )


def _nccl(node: NodeFacts) -> str | Gap:
    if isinstance(node.software, Gap):
        return node.software
    return node.software.torch if isinstance(node.software.torch, Gap) else node.software.torch.nccl
