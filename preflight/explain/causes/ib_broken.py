"""InfiniBand or RoCE failed: a port, the path to a peer, or the memory that the adapter may use."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, by_nccl, fill_in, shared
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.nccl_diagnostics import RDMA_TOPOLOGY, SLOW_PATH, printed
from preflight.model.repairs import MEMLOCK
from preflight.model.units import counted

PATH = (
    "InfiniBand/RoCE failed between {who}{host} and a peer: data that was sent was never "
    "acknowledged, or the port went down."
)
LOCAL = (
    "The InfiniBand library refused a call of {who}{host}: a limit, the driver or the address table (GID) is not right."
)

OPENED = "NCCL says which device it could not open; the log ends without a success"
PEER = "An address of a peer did not answer {who}{host} on its InfiniBand or RoCE network."
CLOSED = (
    "NCCL could not open an InfiniBand device for {who}{host}, and goes on without it: look for /dev/infiniband in the "
    "container."
)
OWN_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \S{1,253}:\d{1,10}:\d{1,10} \[", re.ASCII)
DAY_S, MOST_MINUTES = 86_400, 720  # beyond half a day the stamps are of two days or of two time zones
SLOW = "A network card or its path is not like the others; NCCL's own check says: {said}."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Claim the earliest error. A refused call is the machine's own fault; a lost packet is the path's fault."""
    if events[0].authority is Authority.SILENCE:
        return by_nccl(evidence, events, SLOW)
    if events[0].authority is Authority.ECHO and evidence.successes():
        return None  # NCCL passes over devices that it can't open
    if events[0].sign == "ib.open":
        return Claim(Authority.ECHO, events, Confidence.LOW, OPENED, fill_in(CLOSED, events))
    if events[0].authority is Authority.ECHO:
        because = "the card reports requests that were dropped; it does so when the peer is gone too"
        return Claim(Authority.ECHO, events, Confidence.LOW, because, fill_in(PATH, events))
    verdict = LOCAL if events[0].sign in ("ib.memlock", "ib.verbs") else PATH
    if "ibv_modify_qp" in events[0].text and "Connection timed out" in events[0].text:
        verdict = PEER
    because = "NCCL prints what the InfiniBand library returned"
    verdict = fill_in(verdict, events) + _before_timeout(events[0], evidence.timeouts())
    return Claim(events[0].authority, events, Confidence.HIGH, because, verdict)


def _before_timeout(error: Event, timeouts: tuple[Event, ...]) -> str:
    """Return by how much the error came before the timeout that ended the job, or "": NCCL may keep it to itself.

    torch's stamps are local time, and so are NCCL's own; any other stamp may be in another time zone than torch's.
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
    return f" NCCL logged it {ago} before the first timeout; 2.26.2 to 2.27.7 do not pass it on, other releases do."


def _of_day_s(event: Event) -> float:
    hours, minutes, seconds = event.moment.text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Choose the steps by the adapter's error code."""
    text = " ".join(event.text for event in claim.events[:20])
    if "Cannot allocate memory" in text:
        return Remedy(
            "The card may not pin enough memory: ulimit -l must say unlimited where the job runs.",
            *MEMLOCK.steps,
        )
    if "ibv_" in text:
        return Remedy(
            "See ports and addresses: ibstat; show_gids (RoCE needs a RoCE v2 GID with an IPv4 address).",
            "RoCE with NCCL before 2.21: export NCCL_IB_GID_INDEX=3 (the index of that GID). NCCL 2.21 and later "
            "find it: leave the variable unset.",
            "Take a bad port out: export NCCL_IB_HCA=mlx5_0,mlx5_1 (those that are Active and reach the peers).",
        )
    return Remedy(
        "Look at the ports of both hosts: ibstat (State: Active, Physical state: LinkUp), perfquery -x for error "
        "counters, dmesg | grep mlx5.",
        "Test the path alone: ib_write_bw -d mlx5_0 on one host, ib_write_bw -d mlx5_0 OTHERHOST on the other.",
        "status 12 means no answer: cable, switch, routing, MTU, or on RoCE the GID index and lossless settings. "
        "status 4 means memory registration: try NCCL_NET_GDR_LEVEL=LOC, and load nvidia-peermem.",
        "Very large fabrics: NCCL_IB_TIMEOUT=22 gives a slow path two minutes. NCCL_IB_DISABLE=1 proves the point, "
        "at a fraction of the speed.",
    )


CAUSE = Cause(
    promise="The fast network between the machines (InfiniBand or RoCE) lost data, or is not set up.",
    signs=(
        *shared(Authority.SETUP, "ib.memlock", "ib.verbs", "ib.mlx5"),
        *shared(Authority.TRANSPORT, "ib.completion", "ib.async", "ib.link", "ib.ucx"),
        *shared(Authority.ECHO, "ib.flushed", "ib.open"),
        Sign("ib.diagnosed", Authority.SILENCE, "NCCL's own diagnostics measured a path that is not like the others",
             printed(SLOW_PATH, RDMA_TOPOLOGY)),
    ),
    judge=judge,
    remedy=remedy,
    needs="ib_write_bw between the two hosts fails, or the job runs with NCCL_IB_DISABLE=1",
    confirm_with="preflight check on both hosts; it tries the job's collectives with and without InfiniBand",
    outranks=("remote_peer_died", "wrong_socket_interface"),
)  # fmt: skip
