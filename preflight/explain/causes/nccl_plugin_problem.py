"""A network plugin of NCCL (AWS OFI, HPC-X, GPUDirect-TCPX, ...) fails or differs between hosts."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy, Sign, Variant, fill_in, shared, variant_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

SAME = (
    'Compare on all nodes: grep -h "NET/" LOG | sort | uniq -c. The plugin and its version must be the same '
    "everywhere.",
    "EFA: `fi_info -p efa` must list devices inside the container. Pass /dev/infiniband in, let the security group "
    "allow traffic to itself, and use an aws-ofi-nccl built for this NCCL.",
    "To confirm, run once with NCCL_NET_PLUGIN=none NCCL_NET=Socket (slow; not for production). If this works, the "
    "plugin is at fault.",
)
VERSIONS = (
    "Compare the versions where the job runs: `modinfo efa`, `fi_info --version` and aws-ofi-nccl. They must belong to "
    "one release of the EFA installer."
)
ANSWERS = (
    Variant(
        r"with family \d{1,6} is neither",
        "A peer gave {who}{host} an address that NCCL's socket code can't use: the two use different network plugins, "
        "or different versions of NCCL.",
        SAME,
    ),
    Variant(
        r"Unexpected number of remote rails",
        "Two hosts have different numbers of network adapters (rails) for one GPU ({who}{host}), so their network "
        "plugins don't understand each other.",
        ("`fi_info -p efa -t FI_EP_RDM | grep -c domain:` must print the same number on every host.",
         "Use the same instance type, or give every rank the smallest number that the messages name: export "
         "OFI_NCCL_FORCE_NUM_RAILS=N.", *SAME),
    ),
    Variant(
        r"Creating new endpoint[^\n]{0,60}failed|GDR disabled on GDR-supported",
        "NCCL's network plugin found EFA, but could not set it up ({who}{host}). Without GPUDirect RDMA, NCCL then "
        "uses sockets.",
        (VERSIONS, *SAME),
    ),
    Variant(
        r"Couldn't open AV",
        "NCCL's network plugin could not open an address vector on the EFA device ({who}{host}): the driver refused it "
        "a resource.",
        ("Read why: `dmesg | grep -i efa`. If a line has -12 (ENOMEM), the device has no address vectors left, so end "
        "other processes that use EFA.", VERSIONS, *SAME),
    ),
    Variant(
        r"provider efa output empty",
        "NCCL's network plugin found no EFA device for {who}{host}: libfabric lists none.",
        ("Pass the EFA devices in; `fi_info -p efa` must list them where the job runs (Docker: --device "
         "/dev/infiniband/uverbs0; Kubernetes: resources.limits vpc.amazonaws.com/efa).", *SAME),
    ),
    Variant(
        r"completed with error\. RC: 20\b|NULL context completed with error",
        "A transfer of NCCL's network plugin (OFI) ended with an error ({who}{host}): the peer received nothing or "
        "did not answer.",
        ("Let the security group of the instances allow all inbound and outbound traffic with itself. Without this "
        "rule EFA gets no answer.", *SAME),
    ),
    Variant(
        r"nitialize any NET plugin",
        "NCCL found no network that it may use ({who}{host}). The network that the settings name, or its device, is "
        "missing.",
        ("Check the settings first: `env | grep NCCL_NET`. NCCL_NET=IB needs a device: `ls /dev/infiniband` where "
        "the job runs (docker: --device /dev/infiniband).", *SAME),
    ),
    Variant("", "NCCL's network plugin failed ({who}{host}).", SAME),
)  # fmt: skip
UNEQUAL = (
    "Some hosts loaded a network plugin of NCCL and other hosts did not. These two groups can't communicate, so they "
    "wait for ever."
)


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a network plugin of NCCL failed, or that only some hosts loaded a plugin.

    Return None if the log shows no problem of a plugin.
    """
    # A difference between hosts does not count if the run succeeded.
    if events[0].authority is not Authority.SILENCE:
        because = "the plugin reports the error"
        return Claim(events[0].authority, events, Confidence.HIGH, because, fill_in(_variant(events).verdict, events))
    hosts = {event.host for event in evidence.of("plugin.foreign_address")}
    refused = tuple(event for event in evidence.of("interface.no_address") if event.host in hosts)
    if refused:
        because = "the socket transport refuses the address, after the ranks had found each other"
        return Claim(Authority.SETUP, refused, Confidence.MEDIUM, because, fill_in(_variant(refused).verdict, refused))
    loaded, internal = evidence.of("plugin.loaded"), evidence.of("plugin.internal")
    with_it, without = ({event.host for event in some if event.host} for some in (loaded, internal))
    if not with_it or not without or with_it & without or evidence.successes():
        return None
    because = f"{len(with_it)} hosts loaded it, {len(without)} use NCCL's own network code"
    return Claim(Authority.SILENCE, (loaded[0], internal[0]), Confidence.LOW, because, UNEQUAL)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a failed network plugin of NCCL."""
    return Remedy(*_variant(claim.events).steps)


def _variant(events: tuple[Event, ...]) -> Variant:
    return variant_in(ANSWERS, *(event.text for event in events[:20]))


CAUSE = Cause(
    promise="NCCL can use a plugin for special networks such as Amazon's EFA. This plugin, or the driver below it, "
    "does not work here.",
    signs=(
        *shared(Authority.SETUP, "plugin.ofi", "plugin.other", "plugin.mismatch"),
        Sign("plugin.loaded", Authority.SILENCE, "this host loaded a network plugin",
             r"Plugin Path : \S{1,200}|NET/Plugin ?: Loaded net plugin"),
        Sign("plugin.internal", Authority.SILENCE, "this host found no network plugin",
             r"Using internal net(?:work)? plugin|No plugin found"),
        Sign("plugin.foreign_address", Authority.SILENCE, "NCCL's socket transport refuses what a peer gave",
             r"transport/net_socket\.cc:\d{1,5} -> 3\b"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the job runs with NCCL_NET_PLUGIN=none",
    confirm_with="preflight check",
    outranks=("ib_broken",),
)  # fmt: skip
