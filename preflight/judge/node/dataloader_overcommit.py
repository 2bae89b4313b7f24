from __future__ import annotations

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import fine_size
from preflight.judge.node_limits import is_contained, local_ranks_of, must_have_ranks, nccl_shm_bytes, owner
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import NodeFacts, Overcommit, known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.repairs import shm_room

MEMORY_PER_RANK = Bound(
    4 << 30, "bytes of memory per rank",
    "a rank with torch and a CUDA context takes 2 to 3 GiB, and each of four workers some hundred MiB",
    JUDGMENT,
    "a wrong value has little effect, because the check only warns",
)  # fmt: skip


@node_check(
    "dataloader-memory", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("system", "gpus"), bounds=(MEMORY_PER_RANK,)
)
def dataloader_memory(node: NodeFacts, case: Case) -> Findings:
    """The cgroup's memory limit leaves enough memory for every rank and its data loaders.

    If the limit leaves each rank too little memory, yields a WARN on GPU nodes and an INFO on other nodes.

    Can't see: how many workers a job has, and how large its samples are.
    """
    # If the limit is too small, the kernel kills a DataLoader worker. The rank of this worker then waits for a batch,
    # and all other ranks wait in NCCL.
    limit = known(known(node.system).cgroup_memory_limit_bytes)
    ranks = must_have_ranks(node, case)
    if not isinstance(limit, int) or limit >= ranks * MEMORY_PER_RANK.whole:
        return
    yield dataloader_memory.finding(
        Severity.WARN if case.wants_gpus else Severity.INFO,
        f"{node.host} cgroup memory limit",
        f"{fine_size(limit)} for {ranks} rank{'s' * (ranks > 1)} with their data loaders; if they need more, the "
        "kernel kills a process, and the other ranks then wait in a collective",
        _memory_fix(node, ranks * MEMORY_PER_RANK.whole),
        Evidence("memory limit of the container", fine_size(limit), "cgroup memory.max"),
        Evidence("memory per rank", fine_size(limit // ranks), f"judged by {fine_size(MEMORY_PER_RANK.whole)}"),
        blame=owner(node),
    )


def _memory_fix(node: NodeFacts, need_bytes: int) -> str:
    gib = need_bytes >> 30
    if is_contained(node):
        return (
            f"set `--memory={gib}g` (docker, podman) or `resources.limits.memory: {gib}Gi` (Kubernetes), or use fewer "
            f"`num_workers`. The file `memory.events` counts each oom_kill"
        )
    return (
        f"ask the scheduler for {gib} GiB (Slurm: `--mem={gib}G`), or use fewer `num_workers`. Killed processes are "
        f"in `dmesg | grep oom-kill`"
    )


# Judgement: four workers with two batches of 16 MiB each (PyTorch's prefetch_factor is 2) for a rank.
SHM_PER_RANK = Bound(
    128 << 20, "bytes of /dev/shm per rank",
    "four DataLoader workers keep two batches of 16 MiB each",
    JUDGMENT,
    "a wrong value has little effect, because the check only warns",
)  # fmt: skip


@node_check(
    "dataloader-shm", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("shm", "system", "gpus"), bounds=(SHM_PER_RANK,)
)
def dataloader_shm(node: NodeFacts, case: Case) -> Findings:
    """/dev/shm has room for the batches of data loaders.

    If the space is too small, yields a WARN on GPU nodes and an INFO on other nodes. Yields nothing if the check
    shm-too-small already reports the lack of space.

    Can't see: how many workers a job has, how large its batches are, and other sharing strategies.
    """
    # DataLoader workers pass batches through /dev/shm. If /dev/shm is too small, the workers die of a bus error, and
    # NCCL waits.
    shm = known(node.shm)
    ranks = must_have_ranks(node, case)
    if shm.free_bytes < nccl_shm_bytes(ranks):
        raise NotApplicable("/dev/shm is too small even for NCCL (see shm-too-small)")
    if shm.free_bytes >= ranks * SHM_PER_RANK.whole:
        return
    yield dataloader_shm.finding(
        Severity.WARN if case.wants_gpus else Severity.INFO,
        f"{node.host} /dev/shm",
        f"{fine_size(shm.free_bytes)} of {fine_size(shm.size_bytes)} are free for the batches of "
        f"{ranks} rank{'s' * (ranks > 1)}: a DataLoader worker without room dies of a bus error",
        f"{shm_room(max(1, -(-ranks * SHM_PER_RANK.whole >> 30))).where(is_contained(node))}; or set `num_workers=0`",
        Evidence("free in /dev/shm", fine_size(shm.free_bytes), "statvfs /dev/shm"),
        Evidence(
            "needed in /dev/shm", fine_size(ranks * SHM_PER_RANK.whole), f"{fine_size(SHM_PER_RANK.whole)} a rank"
        ),
        blame=owner(node),
    )


COMMIT_PER_RANK = Bound(
    16 << 30, "bytes of committed memory per rank",
    "if a rank of 4 GiB forks workers, the kernel counts 4 GiB more for each worker",
    JUDGMENT,
    "a wrong value has little effect, because the check only warns",
)  # fmt: skip


@node_check("overcommit", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("system", "gpus"), bounds=(COMMIT_PER_RANK,))
def overcommit(node: NodeFacts, case: Case) -> Findings:
    """The kernel lets a rank fork the workers of its data loaders.

    If vm.overcommit_memory is 2, yields a WARN if little memory is left for GPU ranks, or else an INFO.

    Can't see: how large a rank is when it forks, and how many workers it forks.
    """
    # If vm.overcommit_memory is 2, the kernel never overcommits memory, and a large process can't fork a worker
    # although memory is free.
    system = known(node.system)
    if known(system.overcommit) is not Overcommit.NEVER:
        return
    left = known(system.commit_left_bytes)
    needed = local_ranks_of(node, case) * COMMIT_PER_RANK.whole
    yield overcommit.finding(
        Severity.WARN if case.wants_gpus and left < needed else Severity.INFO,
        f"{node.host} vm.overcommit_memory",
        f"the kernel never overcommits and has {fine_size(left)} left, but each data-loader worker counts as much as "
        f"its rank",
        "run `sysctl vm.overcommit_memory=0`, or use fewer `num_workers`",
        Evidence("vm.overcommit_memory", "2", "/proc/sys/vm/overcommit_memory"),
        Evidence("CommitLimit - Committed_AS", fine_size(left), "/proc/meminfo"),
    )
