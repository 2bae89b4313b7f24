"""NVSHMEM or DeepEP failed. With these libraries, GPUs write to the memory of other GPUs over RDMA."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy, Sign, fill_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

START = "NVSHMEM could not start on {who}{host}: its transport between the GPUs is not set up."
TEAMS = "nvshmem_team_split"
SPLIT = "NVSHMEM has another number of processes than the job, so DeepEP could not divide them ({who}{host})."
TIMEOUT = "The expert-parallel exchange (DeepEP over NVSHMEM) of {who}{host} timed out waiting for data."


def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Return the conclusion that NVSHMEM or DeepEP failed at start or timed out.

    `events` are the errors of these libraries, the earliest first.
    """
    # A later illegal access or lost peer is a consequence.
    is_start = events[0].sign == "nvshmem.start"
    because = "the library states the cause"
    words = SPLIT if TEAMS in events[0].text else START if is_start else TIMEOUT
    verdict = fill_in(words, events)
    return Claim(events[0].authority, events, Confidence.HIGH, because, verdict)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for NVSHMEM.

    If NVSHMEM did not start, the steps check permissions and kernel modules. Otherwise the steps check versions and
    links.
    """
    versions = (
        "Build DeepEP (or the engine) against the NVSHMEM that is loaded: pip list | grep -i nvshmem. Older DeepEP "
        "releases do not work with NVSHMEM 3.5.19 and newer."
    )
    if TEAMS in claim.events[0].text:
        return Remedy(
            "NVSHMEM_DEBUG=INFO prints how many processes (PEs) NVSHMEM has. This must be the number of ranks of the "
            "job: all ranks must use the unique id of one rank, and their own rank number.",
            "A library that started NVSHMEM before DeepEP keeps its own, smaller world: start DeepEP first, or without "
            "that library.",
            versions,
        )
    if claim.events[0].sign == "nvshmem.start":
        return Remedy(
            "Load the kernel module on every host: sudo modprobe nvidia_peermem; lsmod | grep peermem",
            "IBGDA needs two driver options and a reboot after setting them: NVreg_EnableStreamMemOPs=1 and "
            'NVreg_RegistryDwords="PeerMappingOverride=1;".',
            "Containers: --privileged, or /dev/infiniband with --cap-add=IPC_LOCK and --ulimit memlock=-1; Kubernetes: "
            "the same in the pod's securityContext.",
            versions,
        )
    return Remedy(
        versions,
        "Check the links of all nodes with `ibstat`, and run `ib_write_bw` between them. Rails must reach each other.",
        "To confirm, run once without expert parallelism, or with DeepEP's low-latency mode off.",
    )


CAUSE = Cause(
    promise="With DeepEP and NVSHMEM, GPUs write into each other's memory over the network to exchange the data of "
    "experts. That exchange failed.",
    signs=(
        Sign("nvshmem.timeout", Authority.OWN_ERROR, "the exchange between experts timed out waiting",
             r"DeepEP (?:dispatch|combine|error|timeout)[^\n]{0,60}time?out|DeepEP timeout check failed|DeepEP error: |"
             r"(?:dispatch|combine) (?:forwarder|NVL|RDMA|CPU)[^\n]{0,40}timeout|"
             r"deep_?ep[^\n]{0,60}(?:timed? ?out|CUDA error|failed)|(?:nvshmem|NVSHMEM)[^\n]{0,60}(?:timed? ?out)|"
             r"ibgda[^\n]{0,60}(?:cqe|CQE|poll)[^\n]{0,40}(?:error|fail|timeout)"),
        Sign("nvshmem.start", Authority.OWN_ERROR, "NVSHMEM could not start",
             r"init failed for transport: |nvshmem (?:initialization|detect topo|setup|init) failed|"
             r"nvshmem\w{0,40}[^\n]{0,40}(?:init|setup|bootstrap)[^\n]{0,40}failed|"
             r"neither nv_peer_mem,? or nvidia_peermem|building transport map failed|"
             r"ibgda\w{0,20}\.c\w{0,2}:[^\n]{0,60}(?:[Ff]ail|NULL|non-zero|cannot|error)|"
             r"cannot allocate mlx5dv_devx|"
             r"/nvshmem/[^\n]{0,160}(?:[Ff]ailed|non-zero status|not accessible|NULL value)|"
             r"Assertion error [^\n]{0,160}'nvshmem|"
             r"NVSHMEM[^\n]{0,30} (?:ERROR|FATAL)|nvshmemi?_\w{1,60}[^\n]{0,40}(?:failed|error)"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the job runs without expert parallelism, or NVSHMEM's own performance tests fail",
    confirm_with="preflight check   # tests NCCL, the GPUs and the links",
    outranks=("cuda_illegal_address", "ib_broken", "p2p_broken", "not_nccl", "version_mismatch", "cuda_oom_masked"),
)  # fmt: skip
