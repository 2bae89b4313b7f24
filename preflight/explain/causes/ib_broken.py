"""InfiniBand or RoCE failed: a port, the path to a peer, or the memory that the adapter may use."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, Variant, by_nccl, fill_in, shared, variant_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.nccl_diagnostics import RDMA_TOPOLOGY, SLOW_PATH, printed
from preflight.model.repairs import ACS, MEMLOCK, PASS_THROUGH, RDMA
from preflight.model.units import counted
from preflight.system.known_bugs import load_known_bugs

OPENED = "NCCL names a device that it could not open, and the log does not end in success"
OWN_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \S{1,253}:\d{1,10}:\d{1,10} \[", re.ASCII)
DAY_S, MOST_MINUTES = 86_400, 720  # beyond half a day the stamps are of two days or of two time zones
SWALLOWED = "nccl-network-errors-swallowed"  # of known_bugs.toml
GID_CHANGED = (
    "The adapter's addresses changed during the job (GID table change). This can break open connections. Run `ip "
    "monitor address` during a job to find what changes them (DHCP, NetworkManager, a bond)."
)
SLOW = "A network adapter or its path differs from the others. NCCL's own check says: {said}."


LOOK_AT_PORTS = (
    "Look at the ports of both hosts: ibstat (State: Active, Physical state: LinkUp), perfquery -x for error counters, "
    "dmesg | grep mlx5."
)
PEER_ENDED = (
    "Check in the peer's log, dmesg and the scheduler whether the peer's process had ended before. If so, no adapter "
    "is at fault."
)
TEST_PATH = (
    "Test the path alone: run `ib_write_bw -d mlx5_0` on one host and `ib_write_bw -d mlx5_0 OTHERHOST` on the other."
)
SEE_ADDRESSES = (
    "Check ports and addresses with `ibstat` and `show_gids` (RoCE needs a RoCE v2 GID with an IPv4 address)."
)
GID_INDEX = (
    "For RoCE with NCCL before 2.21, export NCCL_IB_GID_INDEX=3 (the index of this GID). Leave the variable unset "
    "with NCCL 2.21 and newer, which find the GID."
)
CHOOSE_PORTS = (
    "Exclude a bad port: export NCCL_IB_HCA=mlx5_0,mlx5_1 (list the ports that are Active and reach the peers)."
)
WITHOUT_GDR = (
    "To confirm, run once with NCCL_NET_GDR_LEVEL=LOC. If this works, keep the setting only until the repair, because "
    "it is slower."
)
PEERMEM = "If `lsmod | grep nvidia_peermem` prints nothing, load the module: sudo modprobe nvidia_peermem"
STATUS = r"ompletion [^\n]{0,120}(?:error |status[= ][\w ]{0,30}\(?)(?:%s)\b"
LOST = r"completion (?:from peer|with)"
WITHOUT_GDA = (
    "To confirm, run once with UCX_TLS=rc,cuda_copy,cuda_ipc,sm,self, which leaves out transfers that GPUs start."
)
# A vendor's code says nothing beside a status: each vendor has its own.
OF_THE_MACHINE = (
    Variant(
        r"UCX {1,3}ERROR {1,3}mlx5dv_devx_obj_create",
        "UCX could not set up its queues on the adapter of {who}{host}, because the adapter or its driver refused.",
        ("Compare the adapter's driver and firmware with what this UCX needs: ofed_info -s; ibstat; ucx_info -v.",
         WITHOUT_GDA, "If the other side was restarted before, restart this side too, because the old connection is "
         "lost."),
    ),
    Variant(
        r"UCX {1,3}ERROR {1,3}ibv_create_ah[^\n]{0,240}fe80:",
        "UCX of {who}{host} tried a peer's RoCE address that is valid only within one Ethernet segment (fe80::).",
        ("export UCX_IB_GID_INDEX=3 (the index of the RoCE v2 address; `show_gids` lists all).",
         "export UCX_NET_DEVICES=mlx5_0:1 (list the ports that reach the peers).", SEE_ADDRESSES),
    ),
    Variant(
        r"local catastrophic|device fatal|mlx[45]_core[^\n]{0,80}(?:health|Fatal)",
        "The InfiniBand or RoCE adapter of {who}{host} failed: it reported an error of the whole device.",
        ("Take the host out of the job. To see the driver's messages about the adapter, run: sudo dmesg -T | grep mlx5",
         "Restart the host to reset the adapter. If the error returns, send the log to the adapter's vendor."),
    ),
    Variant(
        r"Process failed for slice[^\n]{0,400}local protection|UCX {1,3}ERROR[^\n]{0,80}Local protection",
        "The adapter of {who}{host} does not know the memory that UCX or Mooncake's transfer engine gave it (local "
        "protection error): it was not registered with this adapter, or was freed.",
        ("Look for an earlier error of a memory registration: grep -i -e register -e memlock in this log.",
         "`ulimit -l` must say unlimited where the engine runs; for GPU memory `lsmod | grep nvidia_peermem` must find "
         "the module.", "Use the same release of the transfer engine (Mooncake, NIXL) and of UCX on both sides."),
    ),
    Variant(
        r"to register memory 0x[^\n]{0,40}Cannot allocate memory",
        "The adapter of {who}{host} could not register memory for Mooncake's transfer engine: the limit of locked "
        "memory is too low.",
        MEMLOCK.steps,
    ),
    Variant(
        r"to register memory 0x|Memory region not registered",
        "The adapter of {who}{host} could not register memory for Mooncake's transfer engine. For GPU memory, the "
        "driver's module nvidia_peermem is usually missing.",
        (f"{PEERMEM}.", "`ulimit -l` must say unlimited where the engine runs (docker: --ulimit memlock=-1).",
         "If both are right, run the engine once with its transfer over TCP to see whether the rest works."),
    ),
    Variant(
        r"event ?: port error|mlx[45]_core[^\n]{0,80}(?:[Ll]ink [Dd]own|Cable)",
        "The InfiniBand or RoCE port of {who}{host} went down, or reported an error.",
        (LOOK_AT_PORTS, TEST_PATH, CHOOSE_PORTS),
    ),
    Variant(
        STATUS % "4" + r"|[Ll]ocal protection|ibv_reg_\w{1,20}[^\n]{0,40}Bad address",
        "The adapter of {who}{host} could not use memory that it was given (local protection error): GPUDirect RDMA "
        "does not work there, usually because of ACS or the IOMMU.",
        (WITHOUT_GDR,
         f"Repair, also for the bridges above the adapter: {ACS}; in a virtual machine, {PASS_THROUGH}.", f"{PEERMEM}.",
         "If it also fails with NCCL_NET_GDR_LEVEL=LOC, compare driver, firmware and network plugin of both hosts."),
    ),
    Variant(
        STATUS % "9|10|11" + r"|local access violation|UCX {1,3}ERROR[^\n]{0,200}Remote (?:access|operation)",
        "The adapters of {who}{host} and of a peer disagree about the memory of a transfer. Their versions may "
        "differ, or registering GPU memory may fail.",
        ("Compare on both hosts the versions of NCCL and its network plugin (grep NET/ in the log), the driver "
        "(ofed_info -s) and the firmware (ibstat).", WITHOUT_GDR,
         "Run once with the other transport: NCCL_NET_PLUGIN=none instead of a plugin, or your image's plugin instead "
         "of NCCL's own (the NET/Plugin lines name the one that ran). If this works, the first transport is at fault."),
    ),
    Variant(
        STATUS % "5" + "|Work Request Flushed",
        "A queue of {who}{host} was emptied (status 5) after an earlier error, but these lines do not show this error.",
        ("In the logs of all ranks, find the first completion whose status is not 5. It names the cause.", PEER_ENDED,
         LOOK_AT_PORTS),
    ),
    Variant(
        r"ibv_(?:open|get|close)|Unable to open device",
        "NCCL could not open an InfiniBand device for {who}{host} and continues without it. Check that "
        "/dev/infiniband is in the container.",
        (f"In a container: {RDMA.container}.",
         "`ls -l /dev/infiniband` where the job runs must show the devices, and `ulimit -l` must say unlimited.",
         "Until the repair, NCCL uses sockets, so the job runs but is much slower between hosts."),
    ),
    Variant(
        r"dmabuf\w{0,10} failed",
        "The driver of the adapter of {who}{host} can't register GPU memory by DMA-BUF, and NCCL gave up.",
        ("export NCCL_DMABUF_ENABLE=0. NCCL then uses nvidia_peermem.", f"{PEERMEM}.",
         "Update the adapter's driver, or update NCCL, whose later versions continue without DMA-BUF."),
    ),
    Variant(
        r"Cannot allocate memory|ibv_(?:create_[cq]|alloc_)\w{1,10} failed\W{0,9}$",
        "The InfiniBand library got no memory for {who}{host}. The limit of locked memory is usually too low.",
        ("The adapter may not lock enough memory: `ulimit -l` must say unlimited where the job runs.", *MEMLOCK.steps),
    ),
)  # fmt: skip
OF_THE_PATH = (  # addresses that changed while the job ran can be behind these
    Variant(
        r"(?:modify_qp|create_ah|to RTR)[^\n]{0,120}(?:No such device|failed with 19\b|\[19\])",
        "{who}{host} uses a RoCE address whose network interface does not exist there. Often the container has "
        "another interface.",
        ("Run `show_gids` and `ip -br address` where the job runs: the interface of the RoCE address must be there, "
         "with the same address.",
         "In a container: use the host's network (--network=host, hostNetwork: true), or pass the adapter's own "
         "interface in (SR-IOV).", GID_INDEX),
    ),
    Variant(
        r"(?:modify_qp|create_ah|to RTR)[^\n]{0,120}(?:Network is unreachable|No route to host)",
        "On the RoCE network, {who}{host} has no route to a peer's address.",
        ("Run `ip route get ADDRESS` with the peer's RoCE address: the route must use the adapter's own interface.",
         SEE_ADDRESSES, "If each rail is a separate network: export NCCL_CROSS_NIC=0", GID_INDEX),
    ),
    Variant(
        r"(?:modify_qp|odify QP|to RTR)[^\n]{0,120}(?:timed out|failed with (?:error )?110\b|\[110\])|status: 110\b",
        "On the InfiniBand or RoCE network, {who}{host} got no answer from a peer's address.",
        (SEE_ADDRESSES, GID_INDEX, CHOOSE_PORTS, TEST_PATH),
    ),
    Variant(
        r"ibv_|odify QP",
        "The InfiniBand library refused a call of {who}{host}. A limit, the driver or the address table (GID) is "
        "wrong.",
        (SEE_ADDRESSES, GID_INDEX, CHOOSE_PORTS),
    ),
    Variant(
        LOST,
        "InfiniBand/RoCE failed between {who}{host} and a peer: the peer did not acknowledge data. The path failed, "
        "or the peer had died.",
        (PEER_ENDED, LOOK_AT_PORTS,
         "Status 12 means no answer, so check cable, switch, routing and MTU. For RoCE, also check the GID index "
         "(`show_gids`; NCCL before 2.21 needs NCCL_IB_GID_INDEX) and the lossless settings.", TEST_PATH,
         "On a very large fabric, set NCCL_IB_TIMEOUT=22 to give a slow path two minutes. To confirm the cause, run "
         "once with NCCL_IB_DISABLE=1 (much slower)."),
    ),
    Variant(
        "",
        "InfiniBand/RoCE failed between {who}{host} and a peer: the peer did not acknowledge data, or the port went "
        "down.",
        (PEER_ENDED, LOOK_AT_PORTS, TEST_PATH, CHOOSE_PORTS),
    ),
)  # fmt: skip
ANSWERS = (*OF_THE_MACHINE, *OF_THE_PATH)


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that InfiniBand or RoCE failed, based on the earliest error.

    Return None if the peer had died before, or if the run succeeded in spite of the error.
    """
    if events[0].authority is Authority.SILENCE:
        return by_nccl(evidence, events, SLOW)
    if events[0].authority is Authority.ECHO and evidence.successes():
        return None  # NCCL passes over devices that it can't open
    if events[0].sign == "ib.open":
        return Claim(
            Authority.ECHO, events, Confidence.LOW, OPENED, fill_in(variant_in(ANSWERS, events[0].text).verdict, events)
        )
    if events[0].authority is Authority.ECHO:
        because = "the adapter reports dropped requests, which also happens after the peer has ended"
        return Claim(
            Authority.ECHO,
            events,
            Confidence.LOW,
            because,
            fill_in(variant_in(ANSWERS, events[0].text).verdict, events),
        )
    if variant_in(ANSWERS, events[0].text).words == LOST:
        if _peer_had_died(evidence, events[0]):
            return None
        events = tuple(
            sorted(events, key=lambda each: ANSWERS.index(variant_in(ANSWERS, each.text)))
        )  # others name more
    because = "NCCL prints what the InfiniBand library returned"
    verdict = fill_in(variant_in(ANSWERS, events[0].text).verdict, events) + _before_timeout(
        events[0], evidence.timeouts()
    )
    return Claim(events[0].authority, events, Confidence.HIGH, because, verdict)


def _peer_had_died(evidence: LogEvidence, error: Event) -> bool:
    """Return whether a process of the job had died before the adapter lost its peer.

    If so, no adapter is at fault.
    """
    return any(event.order < error.order for event in evidence.dead_workers())


def _before_timeout(error: Event, timeouts: tuple[Event, ...]) -> str:
    """Return a sentence that says how many minutes before the first timeout NCCL logged the error `error`.

    Return "" if the number of minutes is unknown. Some releases of NCCL do not report this kind of error to torch. Only
    time stamps of torch and of NCCL are compared, because other time stamps may be in another time zone.
    """
    is_local = OWN_STAMP.search(error.text) is not None
    dated = (each for each in timeouts if ":" in each.moment.text)  # the kernel's are seconds since its start
    after = [each for each in dated if is_local or each.moment.clock == error.moment.clock]
    if not after or ":" not in error.moment.text:
        return ""
    minutes = round((_of_day_s(after[0]) - _of_day_s(error)) % DAY_S / 60)
    if not 1 <= minutes <= MOST_MINUTES:
        return ""
    ago = counted(minutes, "minute")
    span = next(bug.span for bug in load_known_bugs() if bug.id == SWALLOWED)
    return (
        f" NCCL logged this error {ago} before the first timeout; some releases do not report the error to the ranks "
        f"({span})."
    )


def _of_day_s(event: Event) -> float:
    hours, minutes, seconds = event.moment.text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def remedy(evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for the InfiniBand or RoCE error in `claim`."""
    answer = variant_in(ANSWERS, claim.events[0].text)
    changes = evidence.of("context.gid_change")
    is_behind = answer in OF_THE_PATH and changes and changes[0].order < claim.events[0].order
    moved = (GID_CHANGED,) if is_behind else ()
    return Remedy(*moved, *answer.steps)


CAUSE = Cause(
    promise="The fast network between the machines (InfiniBand or RoCE) lost data, or is not set up.",
    signs=(
        *shared(Authority.SETUP, "ib.memlock", "ib.verbs", "ib.mlx5"),
        *shared(Authority.TRANSPORT, "ib.completion", "ib.async", "ib.link", "ib.ucx"),
        *shared(Authority.ECHO, "ib.flushed", "ib.open"),
        Sign("ib.diagnosed", Authority.SILENCE, "NCCL's own diagnostics measured a path that differs from the others",
             printed(SLOW_PATH, RDMA_TOPOLOGY)),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="ib_write_bw between the two hosts fails, or the job runs with NCCL_IB_DISABLE=1",
    confirm_with="preflight check   # on both hosts; runs the collectives with and without InfiniBand",
    outranks=("remote_peer_died", "wrong_socket_interface"),
)  # fmt: skip
