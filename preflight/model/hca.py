"""The values that were read about RDMA adapters (HCAs), their ports, and the paths from adapters to GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.gap import NOT_READ, Gap
from preflight.model.word import Word


class PortState(Word):
    """The logical state of a port, with the kernel's names."""

    NOP = "NOP"
    DOWN = "DOWN"
    INIT = "INIT"
    ARMED = "ARMED"
    ACTIVE = "ACTIVE"
    ACTIVE_DEFER = "ACTIVE_DEFER"


class PhysState(Word):
    """The physical state of a port, with the kernel's names."""

    NO_STATE = "NoState"
    SLEEP = "Sleep"
    POLLING = "Polling"
    DISABLED = "Disabled"
    TRAINING = "PortConfigurationTraining"
    LINK_UP = "LinkUp"
    LINK_ERROR_RECOVERY = "LinkErrorRecovery"
    PHY_TEST = "Phy Test"


class NicKind(Word):
    """The protocol of an adapter's ports."""

    INFINIBAND = "infiniband"
    ROCE = "roce"
    MIXED = "mixed"  # ports of both kinds
    EFA = "efa"  # AWS: neither InfiniBand nor RoCE
    OTHER = "other"  # iWARP, usNIC, SCIF


@dataclass(frozen=True, slots=True)
class Gid:
    """An address (GID) of a port. Empty slots of the GID table are left out."""

    gid_index: int
    gid: str
    type: str | Gap  # "IB/RoCE v1" or "RoCE v2"
    netif: str | Gap


@dataclass(frozen=True, slots=True)
class PortCounter:
    """A counter of a port, named like the counter's file."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class PortError:
    """The meaning of a port's error counter.

    If `is_of_link` is true, the errors concern the port's own link. Otherwise, the errors concern the path.
    """

    # A dead peer also causes errors of the path.

    words: str
    is_of_link: bool = False


# `counters` are the InfiniBand architecture's (Documentation/ABI/stable/sysfs-class-infiniband), `hw_counters` mlx5's
# (drivers/infiniband/hw/mlx5/counters.c). Congestion is no error and has no row.
PORT_ERRORS = {
    "symbol_error": PortError("damaged symbols arrived", is_of_link=True),
    "link_error_recovery": PortError("the link was retrained", is_of_link=True),
    "link_downed": PortError("the link went down", is_of_link=True),
    "port_rcv_errors": PortError("damaged packets arrived", is_of_link=True),
    "local_link_integrity_errors": PortError("the link had too many errors", is_of_link=True),
    "port_rcv_remote_physical_errors": PortError("packets arrived that another link had damaged"),
    "port_xmit_discards": PortError("packets were not sent: the port is down or congested"),
    "rx_icrc_encapsulated": PortError("packets were damaged on their way"),
    "local_ack_timeout_err": PortError("packets were not acknowledged"),
    "packet_seq_err": PortError("the peer missed packets"),
    "out_of_sequence": PortError("packets were lost or came out of order"),
    "implied_nak_seq_err": PortError("answers were lost"),
    "rnr_nak_retry_err": PortError("the peer was not ready"),
    "req_transport_retries_exceeded": PortError("the last retry failed too"),
    "roce_adp_retrans": PortError("packets were sent again"),
}
LINK_ERRORS = frozenset(name for name, meaning in PORT_ERRORS.items() if meaning.is_of_link)


@dataclass(frozen=True, slots=True)
class PortErrors:
    """The errors that a port counted during a test run, on the node of `rank`."""

    rank: int  # the first of its node
    port: str  # mlx5_0:1
    counters: tuple[PortCounter, ...]  # counters of PORT_ERRORS; the values are their increases


@dataclass(frozen=True, slots=True)
class DscpPriority:
    """The priority that an Ethernet port gives to packets with this DSCP (the upper six bits of NCCL_IB_TC)."""

    dscp: int
    priority: int


ETHERNET = "Ethernet"  # the link layer of a RoCE port, in the kernel's words
NOT_FORCED = -1
ALL_DSCPS = 64


@dataclass(frozen=True, slots=True)
class TrafficClasses:
    """The traffic classes of a RoCE port, as configured on the host."""

    pfc_priorities: tuple[int, ...]  # with priority flow control: a full receiver pauses them instead of losing packets
    by_dscp: tuple[DscpPriority, ...]  # empty if the port does not look at DSCPs
    ecn_priorities: tuple[int, ...] | Gap  # with congestion control by ECN, in both roles: to notify and to slow down
    forced: int | Gap  # the traffic class of all packets, whatever NCCL_IB_TC says; NOT_FORCED if there is none

    @property
    def text(self) -> str:
        """Return the configuration in one line. Different configurations have different texts."""
        ecn = "not known" if isinstance(self.ecn_priorities, Gap) else _listed(self.ecn_priorities)
        some = "" if len(self.by_dscp) == ALL_DSCPS else f"{len(self.by_dscp)} of {ALL_DSCPS} "
        trust = f"by {some}DSCP" if self.by_dscp else "not by DSCP"
        told = [row for row in self.by_dscp if some or row.priority != row.dscp >> 3]  # the others are the default
        mapped = ", ".join(f"{row.dscp} to {row.priority}" for row in told)
        forced = "" if isinstance(self.forced, Gap) or self.forced == NOT_FORCED else f", forced class {self.forced}"
        unusual = f" ({mapped})" if mapped else ""
        return f"PFC {_listed(self.pfc_priorities)}, priorities {trust}{unusual}, ECN {ecn}{forced}"

    def priority_of(self, traffic_class: int) -> int | None:
        """Return the priority of packets with this traffic class, or None if the priority is not configured."""
        return next((row.priority for row in self.by_dscp if row.dscp == traffic_class >> 2), None)


def _listed(priorities: tuple[int, ...]) -> str:
    return f"on for {', '.join(map(str, priorities))}" if priorities else "off"


@dataclass(frozen=True, slots=True)
class PortSpeeds:
    """The speed of an Ethernet link, and the highest speed that it could have."""

    now_gbit_s: float
    own_gbit_s: int  # that the port can have
    both_gbit_s: int | Gap  # that both ends offered; a Gap if they did not negotiate, as on most optical links


@dataclass(frozen=True, slots=True)
class HcaPort:
    """A port of an RDMA adapter."""

    hca: str
    port: int
    state: PortState | Gap
    phys_state: PhysState | Gap
    rate_gbit_s: float | Gap
    link_layer: str | Gap  # "InfiniBand", "Ethernet"; "Unspecified" for EFA
    lid: int | Gap
    sm_lid: int | Gap  # 0 if no subnet manager was found
    gids: tuple[Gid, ...] | Gap
    pkeys: tuple[str, ...] | Gap  # without the empty ones
    counters: tuple[PortCounter, ...] | Gap  # cumulative: judge differences, not values
    traffic_classes: tuple[TrafficClasses, ...] | Gap = NOT_READ  # one for a RoCE port; InfiniBand has none
    speeds: tuple[PortSpeeds, ...] | Gap = NOT_READ  # one for a RoCE port; InfiniBand's are only in its firmware


@dataclass(frozen=True, slots=True)
class Nic:
    """An RDMA adapter, which `nvidia-smi topo -m` calls a NIC."""

    name: str  # mlx5_0
    kind: NicKind | Gap
    bdf: str | Gap
    driver: str | Gap
    device: str | Gap  # PCI vendor and device, "15b3:1021"
    firmware: str | Gap
    numa_node: int | Gap
    netifs: tuple[str, ...] | Gap  # the interfaces on the same PCI function


@dataclass(frozen=True, slots=True)
class NicPath:
    """The path between a GPU and an adapter, in the words of `nvidia-smi topo -m`: PIX, PXB, PHB, NODE, SYS."""

    gpu: int  # nvml_index; without NVML the place in bus order
    nic: str
    level: str | Gap


@dataclass(frozen=True, slots=True)
class RdmaFacts:
    """The RDMA devices that an application can open, and the support for RDMA with GPU memory."""

    uverbs: tuple[str, ...]  # /dev/infiniband/uverbs*
    uverbs_expected: tuple[str, ...] | Gap  # those that /sys/class/infiniband_verbs names
    peermem: str | Gap  # version of nvidia_peermem or of the older nv_peer_mem
    dma_buf: bool | Gap  # open kernel modules and a kernel that can share GPU memory by dma-buf


@dataclass(frozen=True, slots=True)
class UnreadLine:
    """A line of a pasted text that could not be read. `content` is a Gap with the reason."""

    line: int  # from 1
    content: str | Gap
