"""AWS EFA or libfabric below NCCL failed, for example because a limit prevents memory registration."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy, Sign, Variant, fill_in, variant_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.repairs import MEMLOCK

VERDICT = (
    "The EFA network (libfabric) refused a call of {who}{host}. The cause is a limit, or versions that do not "
    "fit together."
)
VERSIONS = (
    "Use the libfabric and aws-ofi-nccl of one EFA installer (/opt/amazon/efa), the same on all nodes and in the "
    "image. `ldd` on libnccl-net.so shows which libfabric it loads."
)
ANSWERS = (
    Variant(
        r"(?<![\d-])-12\b(?!-)|4112|Cannot allocate",
        VERDICT,
        ("EFA may not lock enough memory: `ulimit -l` must say unlimited where the job runs.", *MEMLOCK.steps,
         "Kubernetes: request the huge pages that the EFA device plugin needs.", VERSIONS),
    ),
    Variant(
        r"Invalid address",
        "The other end refused a transfer of EFA (libfabric) from {who}{host}: an address there is not valid. Usually "
        "the peer's process ended or restarted. The peer may also have freed the memory.",
        ("Check in the peer's log, dmesg and the scheduler whether the process at the peer's host had ended before "
         "the error.",
         "Restart all processes of the job together, because a restarted process has a new address.", VERSIONS),
    ),
    Variant(
        "",
        VERDICT,
        ("Run `fi_info -p efa` where the job runs (in the container too): it must list the EFA devices",
         "EFA installers before 1.29.1 can't register GPU memory. Update EFA, or try `export "
         "FI_EFA_SET_CUDA_SYNC_MEMOPS=0` once.", VERSIONS,
         "Pass the devices in (Kubernetes: resources.limits vpc.amazonaws.com/efa; Docker: --device "
         "/dev/infiniband/uverbs0), and let the security group allow traffic to itself."),
    ),
)  # fmt: skip


def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Return the conclusion that libfabric or its EFA provider failed.

    `events` are the error lines, the earliest first.
    """
    because = "the library below NCCL's plugin reports the error"
    return Claim(events[0].authority, events, Confidence.HIGH, because, fill_in(_variant(events).verdict, events))


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for the EFA or libfabric error in `claim`."""
    return Remedy(*_variant(claim.events).steps)


def _variant(events: tuple[Event, ...]) -> Variant:
    return variant_in(ANSWERS, *(event.text for event in events[:20]))


CAUSE = Cause(
    promise="The library libfabric drives Amazon's fast network (EFA). That library reported an error.",
    signs=(
        Sign("efa.provider", Authority.OWN_ERROR, "libfabric's EFA provider ended the process",
             r"Libfabric error: \(-?\d|EFA internal error: \(|Libfabric EFA provider has encountered|"
             r"efa_(?:rdm|base|mr|ep|cq|domain)\w{0,40}[^\n]{0,60}(?:[Ff]ail|[Ee]rror|abort)"),
        Sign("efa.register", Authority.SETUP, "EFA could not register memory",
             r"(?:Unable to|Could not) register memory|Error registering memory|"
             r"fi_mr_(?:reg|regattr)\w{0,10}[^\n]{0,60}(?:fail|RC|error)|ibv_reg_mr[^\n]{0,40}efa"),
        Sign("efa.none", Authority.SETUP, "there is no EFA device",
             r"[Nn]o EFA devices? (?:found|detected|available)|FI_PROVIDER[^\n]{0,20}efa[^\n]{0,60}"
             r"(?:not found|no such|unavailable)|efa[^\n]{0,40}\(No data available\)"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="`fi_info -p efa` fails where the job runs, or the job runs with NCCL_NET_PLUGIN=none",
    confirm_with="fi_info -p efa; preflight check   # on every node",
    outranks=("nccl_plugin_problem", "ib_broken", "host_oom_killed", "scheduler_cancelled"),
)  # fmt: skip
