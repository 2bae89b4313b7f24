"""The page of `preflight probe`: the values read from one node, the unreadable values, and the problems found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from preflight.model.codec import GAPS, encode
from preflight.model.facts import (
    ContainerKind,
    Gap,
    Limit,
    LimitFacts,
    Netif,
    NodeFacts,
    NumaNode,
    SystemFacts,
    TorchFacts,
)
from preflight.model.finding import Finding, RanCheck, Severity, SkippedCheck
from preflight.model.links import Expected
from preflight.model.units import size_text
from preflight.search.gpus.gpu_set_advice import GpuSetAdvice
from preflight.show.checks_and_findings import (
    could_not_look,
    counts_line,
    counts_text,
    findings_section,
    silent_sections,
    worst_first,
)
from preflight.show.document import BLANK, Block, Column, Heading, Items, Text, answer_line, item, right, section, table
from preflight.show.gpus import gpu_section, xid_section
from preflight.show.screen import AGAIN, ALL, TOLD, Page, short
from preflight.show.text import fact_text, ranges
from preflight.show.topology import expected_section, gpu_set_section, topology_sections

T = TypeVar("T")
ANSWERS = {
    0: ("NO FAULT FOUND", "green"),
    1: ("FAULT FOUND", "red"),
    3: ("INCONCLUSIVE", "yellow"),
}
TRY = "run `preflight check{gpus}`, because only real collectives show that data arrive"
LOOK = "run with `-v` to see the values that could not be read"
DEFECT = "report this defect of preflight, with the anonymized file that `preflight capture` writes"
SECTIONS = (
    ("NUMA nodes", "numa_nodes"),
    ("network interfaces", "netifs"),
    ("NVIDIA devices on the PCI bus", "nvidia_pci"),
    ("GPUs", "gpus"),
    ("NICs", "nics"),
    ("paths between the GPUs", "gpu_paths"),
    ("software", "software"),
    ("inherited variables", "environment"),
    ("NCCL's configuration files", "nccl_conf"),
)
# Of paths that differ only in the device, one line tells as much as fifty.
DEVICE_IN_PATH = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|(?<=/infiniband/)[^/]+|(?<=/net/)[^/]+")
NUMA_HEADERS = (
    right("node"), Column("CPUs", limit=lambda width: width // 3), right("memory"),
    Column("distances", limit=lambda width: width // 4),
)  # fmt: skip
NETIF_HEADERS = (
    Column("name", limit=15), "kind", "state", right("MTU"), right("Gbit/s"), Column("driver", limit=10),
    Column("address", limit=lambda width: max(8, width - 66)),
)  # fmt: skip
PCI_HEADERS = ("bdf", "device", Column("driver", limit=20), right("NUMA node"))


def probe_page(
    node: NodeFacts,
    findings: tuple[Finding, ...],
    skipped: tuple[SkippedCheck, ...],
    ran: tuple[RanCheck, ...],
    exit_code: int,
    gpu_set: GpuSetAdvice | None = None,
    expected: Expected | Gap | None = None,
) -> Page:
    """Return the page of `preflight probe`: a conclusion, the problems found, and the next step.

    `gpu_set` and `expected` are None if `--gpus` was not given.
    """
    answer = replace(answer_line(*ANSWERS[exit_code], f"{node.host}: {_made_of(node)}"), most_lines=3)
    gpus_text = gpu_set_section(gpu_set) if gpu_set is not None else []
    expected_text = expected_section(expected) if expected is not None else []
    groups: list[list[Block]] = [_defect(each) for each in skipped if each.crashed]
    groups += [short(each) for each in worst_first(findings) if each.severity is not Severity.INFO]
    if gpus_text and not any(each.check == "gpu-set" for each in findings):
        groups.append(_titled(gpus_text))
    groups += [_titled(expected_text)] if expected_text else []
    groups += [short(each) for each in findings if each.severity is Severity.INFO]
    gpus = "" if gpu_set is None else f" --gpus {','.join(map(str, gpu_set.gpus))}"
    is_told = any(each.fix and each.severity is Severity.FAIL for each in findings)
    look = DEFECT if any(each.crashed for each in skipped) else TOLD if is_told else LOOK
    next_step = {0: TRY.format(gpus=gpus), 1: AGAIN, 3: look}[exit_code]
    paths = "the paths between the GPUs, " if isinstance(node.gpu_paths, tuple) and node.gpu_paths else ""
    facts = f"-v shows {paths}interfaces, limits, versions, and what could not be read"
    foot = [("Next", next_step), ("Checks", f"{counts_text(ran, findings)} ({ALL})"), ("Facts", facts)]

    def whole() -> list[Block]:
        unable = [item(f"{', '.join(checks)}: {reason}") for reason, checks in could_not_look(skipped).items()]
        return [
            *_facts(node),
            *gpus_text,
            *expected_text,
            *findings_section(findings),
            *section("Inconclusive checks", *unable),
            *silent_sections(ran),
            *counts_line(ran, findings),
        ]

    return Page(answer, [answer], groups, foot, whole)


def _made_of(node: NodeFacts) -> str:
    """Return one sentence on the hardware that matters; hardware that could not be read is called unknown."""
    return "; ".join([_gpus(node), _count(node.numa_nodes, "NUMA node"), _count(node.nics, "NIC", " with RDMA")])


def _gpus(node: NodeFacts) -> str:
    if isinstance(node.gpus, Gap):
        if not isinstance(node.nvidia_pci, Gap) and not node.nvidia_pci:
            return "no NVIDIA GPU on the PCI bus"
        return f"GPUs unknown ({node.gpus.reason})"
    models = Counter(gpu.name if isinstance(gpu.name, str) else "GPU of unknown model" for gpu in node.gpus)
    return ", ".join(f"{count} x {model}" for model, count in models.items()) or "no GPU"


def _count(facts: tuple[object, ...] | Gap, name: str, more: str = "") -> str:
    if isinstance(facts, Gap):
        return f"{name}s unknown"
    return f"{len(facts) or 'no'} {name}{'' if len(facts) == 1 else 's'}{more}"


def _titled(blocks: list[Block]) -> list[Block]:
    """Return a section whose title stands in front of its first line.

    Sections on this screen have no separate headings.
    """
    heading, first, *rest = blocks
    assert isinstance(heading, Heading) and isinstance(first, Text)
    return [BLANK, replace(first, indent=0, hang=6, label=f"{heading.title}: "), *rest]


def _defect(check: SkippedCheck) -> list[Block]:
    text = f"the check {check.check} crashed because of a defect in preflight, not in the node: {check.reason}"
    return [Text(text, 0, 6, label="ERROR ", label_tone="yellow", most_lines=2)]


def _facts(node: NodeFacts) -> list[Block]:
    """Return the sections with all facts.

    `?` stands for a fact that could not be read; the end of the page gives the reason.
    """
    numa = _section("NUMA nodes", node.numa_nodes, lambda each: table(NUMA_HEADERS, map(_numa_row, each)))
    netifs = _section("Network interfaces", node.netifs, lambda each: table(NETIF_HEADERS, map(_netif_row, each)))
    pci = _section("NVIDIA devices on the PCI bus", node.nvidia_pci, lambda devices: table(
        PCI_HEADERS, ([each.bdf, each.device_id, fact_text(each.driver), fact_text(each.numa_node)] for each in devices)
    ))  # fmt: skip
    variables = _section("Inherited variables", node.environment, lambda each: Items([(v.name, v.value) for v in each]))
    conf = _section("NCCL's configuration files", node.nccl_conf, lambda entries: Items(
        [(each.name, f"{each.value} ({each.file})") for each in entries]
    ))  # fmt: skip
    gaps = [title for title, facts in SECTIONS if isinstance(getattr(node, facts), Gap)]
    return [
        Text(node.host, tone="bold", limit=lambda width: width),
        Items(host_items(node)),
        *numa,
        *netifs,
        *([] if _are_listed(node) else pci),
        *gpu_section(node),
        *xid_section(node),
        *topology_sections(node),
        *section("Software", Items(software_items(node))),
        *variables,
        *conf,
        *([BLANK, Text(f"Not known: {', '.join(gaps)}", hang=2)] if gaps else []),
        *section("Could not read", Items(unread(node))),
    ]


def _section(title: str, facts: tuple[T, ...] | Gap, block: Callable[[tuple[T, ...]], Block]) -> list[Block]:
    if isinstance(facts, Gap):
        return []  # named with the others below, with the reason
    return [Heading(title), block(facts)] if facts else [BLANK, Text(f"{title}: none")]


def _are_listed(node: NodeFacts) -> bool:
    """Return whether NVML lists every GPU of the PCI bus.

    If so, the table of GPUs shows all GPUs of the PCI bus.
    """
    if isinstance(node.nvidia_pci, Gap) or isinstance(node.gpus, Gap) or not node.nvidia_pci:
        return False
    return {device.bdf for device in node.nvidia_pci} == {gpu.bdf for gpu in node.gpus}


def _numa_row(numa: NumaNode) -> list[str]:
    distances = fact_text(numa.distances, lambda each: " ".join(map(str, each)))
    return [str(numa.id), fact_text(numa.cpus, ranges), fact_text(numa.memory_bytes, size_text), distances]


def _netif_row(netif: Netif) -> list[str]:
    address = fact_text(netif.addresses, lambda addresses: " ".join(addresses[:1]))
    speed = fact_text(netif.speed_mbit_s, speed_gbit)
    return [
        netif.name,
        netif.kind.value,
        netif_state(netif),
        fact_text(netif.mtu),
        speed,
        fact_text(netif.driver),
        address,
    ]


def netif_state(netif: Netif) -> str:
    """Return the state of a network interface: `up`, `down`, `no link`, or `?` if the link is unknown."""
    return fact_text(netif.has_carrier, lambda carrier: "up" if carrier else "no link") if netif.is_up else "down"


def speed_gbit(mbit_s: int) -> str:
    """Return a speed of `mbit_s` Mbit/s as text in Gbit/s."""
    return f"{mbit_s / 1000:g}"


def unread(node: NodeFacts) -> list[tuple[str, str]]:
    """Return pairs (values, reason) for the values that could not be read."""
    alike: dict[str, list[dict[str, str]]] = {}
    for gap in encode(node)[GAPS]:
        alike.setdefault(DEVICE_IN_PATH.sub("*", gap["reason"]), []).append(gap)
    return [
        (_facts_text([gap["fact"] for gap in gaps]), gaps[0]["reason"] if len(gaps) == 1 else reason)
        for reason, gaps in alike.items()
    ]


def _facts_text(facts: Sequence[str]) -> str:
    if len(facts) == 1:
        return facts[0]
    alike = {re.sub(r"\[\d+\]", "[*]", fact) for fact in facts}
    if len(alike) == 1:
        return f"{alike.pop()} ({len(facts)})"
    roots = {re.split(r"[.\[]", fact)[0] for fact in facts}
    return f"{len(facts)} values of {roots.pop()}" if len(roots) == 1 else f"{len(facts)} values"


def host_items(node: NodeFacts) -> list[tuple[str, str]]:
    """Return the operating system, CPUs, memory and limits, as names and values."""
    items = _system(node.system) if not isinstance(node.system, Gap) else []
    if not isinstance(node.name_resolution, Gap):
        found = ", ".join(node.name_resolution.addresses) or "nothing"
        items.append(("name", f"{node.name_resolution.name} resolves to {found}"))
    if not isinstance(node.shm, Gap):
        text = f"{size_text(node.shm.size_bytes)}, {size_text(node.shm.free_bytes)} free"
        stale = len(node.shm.stale_nccl_files)
        left = f"; {stale} stale nccl-* files hold {size_text(node.shm.stale_nccl_bytes)}" if stale else ""
        items.append(("/dev/shm", text + left))
    if not isinstance(node.limits, Gap):
        items.append(("limits", _limits(node.limits)))
    return items


def _system(system: SystemFacts) -> list[tuple[str, str]]:
    limit_cpus, cap_bytes = system.cgroup_cpu_limit, system.cgroup_memory_limit_bytes
    limit = f", cgroup allows {limit_cpus:g}" if isinstance(limit_cpus, float) else ""
    cap = f", cgroup allows {size_text(cap_bytes)}" if isinstance(cap_bytes, int) else ""
    affinity = fact_text(system.cpu_affinity, lambda cpus: str(len(cpus)))
    total, free = fact_text(system.memory_total_bytes, size_text), fact_text(system.memory_available_bytes, size_text)
    contained = fact_text(system.container, lambda kind: "none" if kind is ContainerKind.NONE else kind.value)
    return [
        ("kernel", f"{fact_text(system.kernel)} {fact_text(system.architecture)}"),
        ("CPU", f"{fact_text(system.cpu_model)}; {fact_text(system.cpu_count)} online, {affinity} usable{limit}"),
        ("memory", f"{total}, {free} available{cap}"),
        ("container", f"{contained}; hypervisor {fact_text(system.hypervisor)}"),
        ("IOMMU", fact_text(system.iommu_options, " ".join) or "no option on the command line"),
    ]


def _limits(limits: LimitFacts) -> str:
    return (
        f"memlock {_limit(limits.memlock_bytes, size_text)}, nofile {_limit(limits.nofile, str)}, "
        f"nproc {_limit(limits.nproc, str)}, stack {_limit(limits.stack_bytes, size_text)}"
    )


def _limit(value: int | Limit, show: Callable[[int], str]) -> str:
    return value.value if isinstance(value, Limit) else show(value)


def software_items(node: NodeFacts) -> list[tuple[str, str]]:
    """Return the versions of Python, torch and the driver, as pairs (name, value)."""
    items: list[tuple[str, str]] = []
    if not isinstance(node.software, Gap):
        items += [("preflight", node.software.preflight), ("Python", node.software.python)]
        items.append(("torch", fact_text(node.software.torch, _torch)))
    if not isinstance(node.driver, Gap):
        items.append(("NVIDIA driver", f"{fact_text(node.driver.version)}, CUDA up to {fact_text(node.driver.cuda)}"))
    return items


def _torch(torch: TorchFacts) -> str:
    build = "CPU build" if isinstance(torch.cuda, Gap) else f"CUDA {torch.cuda}, NCCL {fact_text(torch.nccl)}"
    return f"{torch.version}, {build}, {torch.location}"
