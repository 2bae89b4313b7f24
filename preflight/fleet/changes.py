"""Compare a node with its earlier state or with a similar node, and list all values that differ.

The table CHANGES says how suspicious a change is.
"""
# The values are compared field by field, so every new field is compared too. Changes without a row are shown last.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from preflight.model.change import MATTERS, Change, Changes, NodeChanges, SpeedChange
from preflight.model.facts import EnvVar, Gap, Limit, NcclConfEntry, NetifKind, NodeFacts
from preflight.model.finding import Finding, Severity
from preflight.model.gap import known_or
from preflight.model.gpu import Gpu
from preflight.model.hca import HcaPort
from preflight.model.report import Report
from preflight.model.trial import DEFAULT
from preflight.model.units import numbers_text, size_text

LESS, MORE = "less", "more"  # the direction that may harm a job; a change in the other one is shown last
BETTER, UNNAMED = 10, 5
GAP_LESS = 20  # by so much a fact that can't be read any more is less suspicious than one that changed
ALIKE = 0.02  # of a size: kernels report a little more or less memory
SLOWER, LEAST_BYTES = 0.10, 1 << 20
SHOWN_CHARS = 120


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table CHANGES, which says how often a change of one value breaks or slows a job.

    `path` is the path of the value in the records. A * stands for a name or a number.
    """

    path: str
    weight: int  # 0: never shown
    what: str = ""
    why: str = ""
    worse: str = ""  # LESS or MORE, if only one direction may harm a job
    is_own: bool = False  # the fact differs between any two machines


# The first row that fits decides.
CHANGES = (
    Row("host", 0),
    # GPUs
    Row("gpus", 95, "GPUs", "a job that needs this GPU fails, or its ranks move to other GPUs"),
    Row("gpus.*.uuid", 55, "card", "another card is in this slot", is_own=True),
    Row("gpus.*.name", 95, "model"),
    Row("gpus.*.nvml_index", 20, "NVML index"),
    Row("gpus.*.minor", 15, "device file"),
    Row("gpus.*.pcie.width", 92, "PCIe lanes", "copies to the host and to other GPUs are slower", LESS),
    Row("gpus.*.pcie.width_max", 90, "PCIe lanes at most", "the slot or the card gives fewer", LESS),
    Row("gpus.*.pcie.gen_max", 90, "PCIe generation at most", "half the bandwidth for each generation", LESS),
    Row("gpus.*.pcie.gpu_gen_max", 60, "PCIe generation of the card", "", LESS),
    Row("gpus.*.pcie.gen", 0),
    Row("gpus.*.pcie.replays", 55, "PCIe replays", "the link loses packets", MORE, is_own=True),
    Row("gpus.*.nvlinks", 95, "NVLinks", "NCCL uses a slower path"),
    Row("gpus.*.nvlinks.*.is_active", 95, "NVLink", "NCCL uses a slower path", LESS),
    Row("gpus.*.nvlinks.*.*_errors", 60, "NVLink errors", "the link loses data", MORE, is_own=True),
    Row("gpus.*.nvlinks.*.peer_bdf", 30, "NVLink peer"),
    Row("gpus.*.nvlinks.*", 60, "NVLink"),
    Row("gpus.*.fabric.*", 94, "NVSwitch fabric", "CUDA or NCCL fails until the Fabric Manager has set the fabric up"),
    Row("gpus.*.ecc.*_uncorrected", 94, "uncorrected memory errors", "the GPU's memory fails", MORE, is_own=True),
    Row("gpus.*.ecc.*_corrected", 25, "corrected memory errors", "", MORE, is_own=True),
    Row("gpus.*.row_remap.correctable", 30, "remapped rows", "", MORE, is_own=True),
    Row("gpus.*.row_remap.*", 92, "remapped rows", "the GPU's memory fails, or a reset is due", MORE, is_own=True),
    Row("gpus.*.retired_pages.single_bit", 30, "retired pages", "", MORE, is_own=True),
    Row("gpus.*.retired_pages.*", 88, "retired pages", "the GPU's memory fails", MORE, is_own=True),
    Row("gpus.*.recovery_action", 95, "recovery action", "the driver requests a reset"),
    Row("gpus.*.mig_mode", 93, "MIG mode", "NCCL can't use the GPU as a whole"),
    Row("gpus.*.compute_mode", 85, "compute mode", "in exclusive mode a second process can't use the GPU"),
    Row("gpus.*.ecc_mode", 55, "ECC", "less memory, other speed"),
    Row("gpus.*.ecc_mode_pending", 20, "ECC after a restart"),
    Row("gpus.*.persistence_mode", 45, "persistence mode", "the first use by each process takes seconds"),
    Row("gpus.*.virtualization_mode", 60, "virtualization"),
    Row("gpus.*.power_limit_w", 86, "power limit in W", "kernels are slower", LESS),
    Row("gpus.*.clocks.*_max_mhz", 80, "highest clock in MHz", "kernels are slower", LESS),
    Row("gpus.*.clocks.*", 0),
    Row("gpus.*.throttle_reasons", 45, "clocks are limited by", is_own=True),
    Row("gpus.*.memory_total_bytes", 85, "memory", "less fits", LESS),
    Row("gpus.*.memory_*_bytes", 0),
    Row("gpus.*.bar1_total_bytes", 60, "BAR1", "large BAR is off: GPUDirect may fail", LESS),
    Row("gpus.*.processes", 50, "processes on it", "these processes use memory and time", MORE, is_own=True),
    Row("gpus.*.processes.*", 0),
    Row("gpus.*.utilization_percent", 0),
    Row("gpus.*.temperature_c", 0),
    Row("gpus.*.numa_node", 65, "NUMA node", "ranks are bound to far CPUs"),
    Row("gpus.*.*_affinity", 60, "near CPUs", "ranks are bound to far CPUs"),
    Row("gpus.*", UNNAMED),
    Row("gpu_paths", 0),  # a GPU that is gone is said above
    Row("gpu_paths.*", 75, "path between GPUs", "copies use another path"),
    Row("gpu_p2p", 0),
    Row("gpu_p2p.*", 90, "peer access", "NCCL goes through host memory"),
    # driver and device files
    Row("driver.unreadable_gpus", 95, "unreadable GPUs", "a GPU is lost, or may not be used here", MORE),
    Row("driver.version", 70, "NVIDIA driver"),
    Row("driver.is_confidential", 85, "confidential computing", "GPUs can't copy directly to each other"),
    Row("driver.*", 30, "driver"),
    Row("driver", 95, "NVIDIA driver"),
    Row("device_nodes.nvidia", 65, "device files", "the container or the driver gives other GPUs"),
    Row("device_nodes.kernel_module", 30, "kernel module"),
    Row("nvidia_pci", 94, "GPUs on the PCI bus", "the card has fallen off the bus, or was removed"),
    Row("nvidia_pci.*.driver", 85, "kernel driver"),
    Row("xid_lines", 92, "Xids in the kernel log", "the GPU or its driver reported a fault", MORE, is_own=True),
    # PCI fabric
    Row("pci", 60, "PCI devices"),
    Row("pci.*.acs", 88, "ACS", "copies between GPUs go through the root complex, or are lost"),
    Row("pci.*.iommu_type", 89, "IOMMU", "copies between GPUs may be lost"),
    Row("pci.*.iommu_group", 15, "IOMMU group"),
    Row("pci.*.speed_gt_s", 0),
    Row("pci.*.width", 84, "PCIe lanes", "copies are slower", LESS),
    Row("pci.*.*_max", 80, "PCIe link at most", "copies are slower", LESS),
    Row("pci.*.*", 40, "place on the PCI bus"),
    # network
    Row("hca_ports", 94, "RDMA ports"),
    Row("hca_ports.*.state", 95, "port state", "NCCL does not use the port, or hangs on it"),
    Row("hca_ports.*.phys_state", 91, "link of the port"),
    Row("hca_ports.*.rate_gbit_s", 92, "port rate in Gbit/s", "the slowest port limits all others", LESS),
    Row("hca_ports.*.link_layer", 85, "link layer"),
    Row("hca_ports.*.pkeys", 75, "partition keys", "ranks in different partitions can't communicate"),
    Row("hca_ports.*.gids*", 70, "GIDs", "a GID index that is set for NCCL now means another address", is_own=True),
    Row("hca_ports.*.counters", 0),
    Row("hca_ports.*.counters.*error*", 60, "port errors", "the link loses packets", MORE, is_own=True),
    Row("hca_ports.*.counters.*down*", 60, "times that the link went down", "", MORE, is_own=True),
    Row("hca_ports.*.counters.*", 0),
    Row("hca_ports.*.traffic_classes*", 78, "traffic classes (PFC, ECN, DSCP)", "packets may be lost under load"),
    Row("hca_ports.*.speeds*", 76, "fastest speed in Gbit/s of the port, and of both ends", "", LESS),
    Row("hca_ports.*.*lid", 15, "LID", is_own=True),
    Row("nics", 93, "RDMA adapters"),
    Row("nics.*.firmware", 62, "firmware", "nodes with different firmware may not work together"),
    Row("nics.*.driver", 62, "driver"),
    Row("nics.*.numa_node", 55, "NUMA node"),
    Row("nics.*", 50, "adapter"),
    Row("nic_paths", 0),
    Row("nic_paths.*", 62, "path from GPU to adapter", "GPUDirect may be slower or off"),
    Row("rdma.uverbs", 88, "RDMA device files", "NCCL finds no adapter and uses TCP"),
    Row("rdma.peermem", 84, "nvidia_peermem", "without this module there is no GPUDirect RDMA"),
    Row("rdma.dma_buf", 80, "dma-buf"),
    Row("rdma.*", 20, "RDMA"),
    Row("netifs", 72, "network interfaces", "NCCL and gloo may choose another interface"),
    Row("netifs.*.is_up", 90, "interface up", "", LESS),
    Row("netifs.*.has_carrier", 90, "carrier", "the cable or the switch's port is out", LESS),
    Row("netifs.*.mtu", 82, "MTU", "large packets are lost if the path has another MTU"),
    Row("netifs.*.speed_mbit_s", 85, "speed in Mbit/s", "", LESS),
    Row("netifs.*.addresses", 68, "addresses", "NCCL and gloo may choose another interface", is_own=True),
    Row("netifs.*.networks", 0),  # the addresses tell; an earlier release did not read them
    Row("netifs.*.arp_ignore", 0),
    Row("netifs.*.gateways", 45, "gateways", is_own=True),
    Row("netifs.*.driver", 58, "driver"),
    Row("netifs.*.index", 12, "order", "NCCL uses the first interface that fits"),
    Row("netifs.*", 40, "interface"),
    Row("name_resolution.name", 20, "host name", is_own=True),
    Row("name_resolution.*", 66, "addresses of the host name", "gloo binds to the first address", is_own=True),
    # software and settings
    Row("environment*", 83, "inherited variable"),
    Row("nccl_conf*", 86, "NCCL's configuration files", "these variables affect every job"),
    Row("software.torch.nccl", 78, "NCCL"),
    Row("software.torch.version", 76, "torch"),
    Row("software.torch.location", 25, "place of torch"),
    Row("software.torch", 90, "torch"),
    Row("software.torch.cuda", 68, "CUDA of torch"),
    Row("software.torch.*", 68, "torch"),
    Row("software.net_plugins*", 77, "network plugins of NCCL", "a node with another network can't connect"),
    Row("software.python", 35, "Python"),
    Row("software.preflight", 8, "preflight"),
    # system
    Row("system.iommu_options", 88, "IOMMU on the kernel's command line", "copies between GPUs may be lost"),
    Row("system.kernel", 64, "kernel"),
    Row("system.architecture", 95, "architecture"),
    Row("system.cpu_model", 58, "CPU model"),
    Row("system.cpu_count", 66, "CPUs", "", LESS),
    Row("system.cpu_affinity", 64, "CPUs that may be used", "ranks and data loaders share fewer CPUs", LESS),
    Row(
        "system.cgroup_*", 66, "limit of the cgroup", "the kernel ends ranks or data loaders, or makes them wait", LESS
    ),
    Row("system.memory_total_bytes", 70, "host memory", "", LESS),
    Row("system.memory_available_bytes", 0),
    Row("system.commit_left_bytes", 0),
    Row("system.product", 74, "server model"),
    Row("system.bios", 62, "BIOS", "its settings may have changed too: IOMMU, ACS, PCIe"),
    Row("system.container", 52, "container"),
    Row("system.hypervisor", 60, "hypervisor"),
    Row("system.*", 40, "system"),
    Row("shm.size_bytes", 84, "/dev/shm", "NCCL and data loaders fail if /dev/shm is full", LESS),
    Row("shm.*", 0),
    Row("limits.memlock_bytes", 84, "locked memory", "InfiniBand can't register memory", LESS),
    Row("limits.nofile", 66, "open files", "many ranks or data loaders need more", LESS),
    Row("limits.nproc", 60, "processes", "", LESS),
    Row("limits.*", 25, "limit", "", LESS),
    Row("numa_nodes", 70, "NUMA nodes"),
    Row("numa_nodes.*.memory_bytes", 50, "memory of a NUMA node", "", LESS),
    Row("numa_nodes.*", 50, "NUMA node"),
    Row("other_devices", 20, "other accelerators"),
    Row("unread_lines", 0),
)
UNKNOWN_ROW = Row("*", UNNAMED)
QUIET_KINDS = (
    NetifKind.VETH, NetifKind.CONTAINER, NetifKind.BRIDGE, NetifKind.VIRTUAL, NetifKind.TUNNEL, NetifKind.LOOPBACK,
)  # fmt: skip
COMMUNICATION = ("NCCL_", "GLOO_", "TORCH_NCCL", "UCX_", "FI_", "CUDA_VISIBLE")
SETTINGS = ("environment", "nccl_conf")  # a new one changes as much as one that is gone
KEYED = (
    "gpus", "gpu_paths", "gpu_p2p", "nvidia_pci", "pci", "hca_ports", "nics", "nic_paths", "netifs", "environment",
    "nccl_conf", "numa_nodes", "other_devices",
)  # fmt: skip
INFINITE = float("inf")
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of nodes at one time: the values read from the nodes, the problems found, and the speeds.

    `speeds` has (collective, size in bytes, busbw in GB/s). All speeds were measured with default settings.
    """

    nodes: tuple[NodeFacts, ...]
    findings: tuple[Finding, ...]
    created_at: str = ""  # RFC 3339; "" for now
    ranks: tuple[str, int, bool] = ("", 0, False)  # backend, number, whether it was a simulation
    speeds: tuple[tuple[str, int, float], ...] = ()

    @classmethod
    def of(cls, report: Report) -> Snapshot:
        """Return a snapshot of the nodes in a report.

        The speeds come from the report's test run with default settings.
        """
        results = [result for trial in report.trials if trial.candidate == DEFAULT for result in trial.results]
        speeds = tuple(
            (each.collective.value, each.size_bytes, each.busbw_gb_s)
            for each in results
            if isinstance(each.busbw_gb_s, float)
        )
        ranks = (report.backend, report.world_size, report.simulated)
        return cls(report.nodes, report.findings, report.created_at, ranks, speeds)


def compare(before: Snapshot, now: Snapshot) -> Changes:
    """Return the differences between two snapshots, including new problems and slower collectives.

    Only nodes that are in both snapshots are compared. If each snapshot has one node, these two nodes are compared.
    """
    # Two nodes with different names are compared only if the snapshots have one node each and no common node.
    old, new = ({node.host: node for node in each.nodes} for each in (before, now))
    pairs = [(old[host], new[host]) for host in old if host in new]
    if not pairs and len(before.nodes) == len(now.nodes) == 1:
        pairs = [(before.nodes[0], now.nodes[0])]
    paired = {node.host for pair in pairs for node in pair}
    nodes = tuple(NodeChanges(then.host, here.host, changes(then, here)) for then, here in pairs)
    told = {each.check for each in before.findings if each.severity is not Severity.INFO}
    findings = tuple(
        f"{each.check}: {each.subject}: {each.problem}"
        for each in now.findings
        if each.severity is not Severity.INFO and each.check not in told
    )
    slower = tuple(_slower(before, now))
    found = findings or slower or any(change.matters for node in nodes for change in node.changes)
    left = tuple(sorted((old.keys() | new.keys()) - paired))
    return Changes(int(bool(found)) if nodes else 3, before.created_at, nodes, findings, slower, left)


def changes(before: NodeFacts, now: NodeFacts) -> tuple[Change, ...]:
    """Return the values of a node that differ between `before` and `now`, the most important change first."""
    named = _Named.of(before, now)
    found = [
        change
        for path, old, new in _differences(before, now, ())
        if (change := _change(path, old, new, named)) is not None
    ]
    return tuple(sorted(found, key=lambda each: -each.weight))


def _slower(before: Snapshot, now: Snapshot) -> Iterator[SpeedChange]:
    """Yield the speeds that fell, if both snapshots have the same ranks.

    Sizes below 1 MiB are skipped, because they measure latency.
    """
    then = {(collective, size): speed for collective, size, speed in before.speeds}
    if before.ranks != now.ranks:
        return
    for collective, size, speed in now.speeds:
        was = then.get((collective, size), 0.0)
        if size >= LEAST_BYTES and speed < was * (1 - SLOWER):
            yield SpeedChange(collective, size, was, speed)


def _differences(before: Any, now: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """Yield (path, old value, new value) for each difference between `before` and `now`.

    If only one side has a record, the value of the other side is None.
    """
    if isinstance(before, Gap) or isinstance(now, Gap):
        if not (isinstance(before, Gap) and isinstance(now, Gap)):
            yield path, before, now
    elif is_dataclass(before) and type(before) is type(now):
        for field in fields(before):
            yield from _differences(getattr(before, field.name), getattr(now, field.name), (*path, field.name))
    elif _are_records(before) or _are_records(now):
        old, new = _by_key(before), _by_key(now)
        for key in {**old, **new}:
            if key in old and key in new:
                yield from _differences(old[key], new[key], (*path, key))
            else:
                yield (*path, key), old.get(key), new.get(key)
    elif before != now:
        yield path, before, now


def _are_records(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and is_dataclass(value[0])


def _by_key(records: Any) -> dict[str, Any]:
    """Return {key: record}. If several records have the same key, keep the last one."""
    return {_key(each): each for each in records} if isinstance(records, tuple) else {}


def _key(record: Any) -> str:
    """Return the key that identifies a record among records of its kind.

    Records of corresponding parts of two similar machines have the same key.
    """
    if isinstance(record, Gpu):
        return record.bdf if isinstance(record.bdf, str) else str(record.nvml_index)
    if isinstance(record, HcaPort):
        return f"{record.hca}:{record.port}"
    for names in (("a", "b"), ("gpu", "nic"), ("file", "name"), ("what", "where")):
        if all(hasattr(record, name) for name in names):
            return "-".join(str(getattr(record, name)) for name in names)
    for name in ("bdf", "name", "link", "gid_index", "id", "pid", "nvml_index"):
        if hasattr(record, name):
            return str(getattr(record, name))
    return str(record)


@dataclass(frozen=True, slots=True)
class _Named:
    """The names that the output uses for the GPUs, GPU pairs and interfaces of the compared nodes."""

    subjects: dict[str, str]  # by the keys of GPUs and of their pairs
    quiet: frozenset[str]  # interfaces that come and go with containers
    are_siblings: bool

    @classmethod
    def of(cls, *nodes: NodeFacts) -> _Named:
        gpus = [gpu for node in nodes for gpu in known_or(node.gpus, ())]
        netifs = [netif for node in nodes for netif in known_or(node.netifs, ())]
        pairs = {f"{a.nvml_index}-{b.nvml_index}": f"GPUs {a.nvml_index}, {b.nvml_index}" for a in gpus for b in gpus}
        return cls(
            {_key(gpu): f"GPU {gpu.nvml_index}" for gpu in reversed(gpus)} | pairs,
            frozenset(netif.name for netif in netifs if netif.kind in QUIET_KINDS),
            len({node.host for node in nodes}) > 1,
        )


def _change(path: Path, old: Any, new: Any, named: _Named) -> Change | None:
    """Return a difference as a Change with its weight. Return None if the difference is never shown."""
    one_sided = (_is_record(old) and new is None) or (old is None and _is_record(new))
    row = _row(".".join(path[:-1] if one_sided else path))
    if row.weight == 0 or (named.are_siblings and row.is_own) or _is_negligible(path, old, new):
        return None
    direction = _direction(old, new, one_sided)
    weight = row.weight
    if isinstance(new, Gap):
        weight = max(UNNAMED, weight - GAP_LESS)
    elif isinstance(old, Gap) or (row.worse and direction not in ("", row.worse)):
        weight = min(weight, BETTER)
    elif one_sided and old is None and row.worse != MORE and path[0] not in SETTINGS:
        weight = min(weight, MATTERS - 10)  # something more than before
    subject = ""
    if path[0] in KEYED and len(path) > 1:
        subject = named.subjects.get(path[1], path[1])
        if path[0] == "netifs" and path[1] in named.quiet:
            weight = min(weight, BETTER)
        if path[0] == "environment" and not path[1].startswith(COMMUNICATION):
            weight = min(weight, MATTERS - 10)
    what = row.what or path[-1].replace("_", " ")
    if path[0] == "gpus" and path[2:3] == ("nvlinks",) and len(path) > 3:  # which of the card's links
        what = f"{what.removesuffix('s')} {path[3]}"
    if isinstance(old, tuple) and isinstance(new, tuple):
        old, new = (tuple(each for each in a if each not in b) for a, b in ((old, new), (new, old)))
    is_size = path[-1].endswith("_bytes")
    return Change(subject, what, _said(old, is_size), _said(new, is_size), weight, row.why)


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, Gap)


def _is_negligible(path: Path, old: Any, new: Any) -> bool:
    is_size = path[-1].endswith("_bytes") and _is_number(old) and _is_number(new)
    return is_size and abs(new - old) <= ALIKE * max(abs(old), abs(new))


def _direction(old: Any, new: Any, one_sided: bool) -> str:
    """Return MORE if the new value is larger, or LESS if the new value is smaller.

    Return "" if the values are equal or are not numbers. If `one_sided` is true, one of the values is missing. Then a
    value that appeared is MORE, and a value that vanished is LESS.
    """
    if one_sided:
        return MORE if old is None else LESS
    if isinstance(old, tuple) and isinstance(new, tuple):
        old, new = len(old), len(new)
    old, new = (INFINITE if each is Limit.UNLIMITED else each for each in (old, new))
    if not (_is_number(old) and _is_number(new)) or old == new:
        return ""
    return MORE if new > old else LESS


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))  # True and False too: what was on is off


@cache
def _row(path: str) -> Row:
    return next((row for row in CHANGES if fnmatchcase(path, row.path)), UNKNOWN_ROW)


def _said(value: Any, is_size: bool) -> str:
    """Return a value as short text for the output. If `is_size` is true, the value is a size in bytes."""
    match value:
        case None:
            text = "not there"
        case Gap():
            text = f"can't be read ({value.reason})"
        case bool():
            text = "yes" if value else "no"
        case Enum():
            text = str(value.value)
        case int() if is_size:
            text = size_text(value, 1)
        case EnvVar() | NcclConfEntry():
            text = value.value or "empty"
        case tuple() if value and all(isinstance(each, int) for each in value):
            text = numbers_text(value)
        case tuple():
            text = ", ".join(_said(each, is_size) for each in value) or "none"
        case _:
            text = "there" if is_dataclass(value) else str(value) or "none"
    return text[:SHOWN_CHARS]
