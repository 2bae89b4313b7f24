"""The facts of one node as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from preflight.model.codec import GAPS, encode
from preflight.model.facts import (
    ContainerKind,
    EnvVar,
    Gap,
    Limit,
    LimitFacts,
    NcclConfEntry,
    Netif,
    NodeFacts,
    NumaNode,
    NvidiaPciDevice,
    SystemFacts,
)
from preflight.model.units import size_text
from preflight.render.gpus import gpu_section, xid_section
from preflight.render.text import INDENT, Style, clean, finish, heading, paint, pairs, ranges, shorten, table, wrap
from preflight.render.topology import topology_sections

T = TypeVar("T")
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
UNKNOWN = "?"  # the reason stands under "Could not read"


def render_probe(node: NodeFacts, style: Style) -> str:
    """Return the page of `preflight probe`; a `?` is a fact that could not be read, its reason stands at the end."""
    lines = [paint(shorten(clean(node.host), style.width), "bold", style), *pairs(host_items(node), style.width)]
    lines += _section("NUMA nodes", node.numa_nodes, _numa, style)
    lines += _section("Network interfaces", node.netifs, _netifs, style)
    if not _are_listed(node):
        lines += _section("NVIDIA devices on the PCI bus", node.nvidia_pci, _pci, style)
    lines += gpu_section(node, style)
    lines += xid_section(node, style)
    lines += topology_sections(node, style)
    software = software_items(node)
    lines += [*heading("Software", style), *pairs(software, style.width)] if software else []
    lines += _section("Inherited variables", node.environment, _variables, style)
    lines += _section("NCCL's configuration files", node.nccl_conf, _conf, style)
    unseen = [title for title, facts in SECTIONS if isinstance(getattr(node, facts), Gap)]
    lines += ["", *wrap(f"Not known: {', '.join(unseen)}", style.width, "", INDENT)] if unseen else []
    gaps = grouped_gaps([(gap["fact"], gap["reason"]) for gap in encode(node)[GAPS]])
    lines += [*heading("Could not read", style), *pairs(gaps, style.width)] if gaps else []
    return finish(lines, style)


def _are_listed(node: NodeFacts) -> bool:
    """Tell whether NVML lists every GPU of the bus, so that its table shows them all."""
    if isinstance(node.nvidia_pci, Gap) or isinstance(node.gpus, Gap) or not node.nvidia_pci:
        return False
    return {device.bdf for device in node.nvidia_pci} == {gpu.bdf for gpu in node.gpus}


def grouped_gaps(gaps: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what could not be read by reason, one line for all facts that lack for the same one."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for fact, reason in gaps:
        alike.setdefault(DEVICE_IN_PATH.sub("*", reason), []).append((fact, reason))
    return [
        (_facts_text([fact for fact, _ in group]), clean(group[0][1] if len(group) == 1 else reason))
        for reason, group in alike.items()
    ]


def _facts_text(facts: Sequence[str]) -> str:
    if len(facts) == 1:
        return facts[0]
    alike = {re.sub(r"\[\d+\]", "[*]", fact) for fact in facts}
    if len(alike) == 1:
        return f"{alike.pop()} ({len(facts)})"
    roots = {re.split(r"[.\[]", fact)[0] for fact in facts}
    return f"{len(facts)} facts of {roots.pop()}" if len(roots) == 1 else f"{len(facts)} facts"


def host_items(node: NodeFacts) -> list[tuple[str, str]]:
    """Return the operating system, its CPUs, memory and limits, as names and cleaned values."""
    items = _system(node.system) if not isinstance(node.system, Gap) else []
    if not isinstance(node.name_resolution, Gap):
        found = ", ".join(node.name_resolution.addresses) or "nothing"
        items.append(("name", clean(f"{node.name_resolution.name} resolves to {found}")))
    if not isinstance(node.shm, Gap):
        text = f"{size_text(node.shm.size_bytes)}, {size_text(node.shm.free_bytes)} free"
        stale = len(node.shm.stale_nccl_files)
        left = f"; {stale} stale nccl-* files hold {size_text(node.shm.stale_nccl_bytes)}" if stale else ""
        items.append(("/dev/shm", text + left))
    if not isinstance(node.limits, Gap):
        items.append(("limits", _limits(node.limits)))
    return items


def _system(system: SystemFacts) -> list[tuple[str, str]]:
    affinity = _show(system.cpu_affinity, lambda cpus: str(len(cpus)))
    limit_cpus = system.cgroup_cpu_limit
    limit = f", cgroup allows {limit_cpus:g}" if isinstance(limit_cpus, float) else ""
    total, free = _show(system.memory_total_bytes, size_text), _show(system.memory_available_bytes, size_text)
    cap_bytes = system.cgroup_memory_limit_bytes
    cap = f", cgroup allows {size_text(cap_bytes)}" if isinstance(cap_bytes, int) else ""
    contained = _show(system.container, lambda kind: "none" if kind is ContainerKind.NONE else kind.value)
    return [
        ("kernel", f"{_text(system.kernel)} {_text(system.architecture)}"),
        ("CPU", f"{_text(system.cpu_model)}; {_text(system.cpu_count)} online, {affinity} usable{limit}"),
        ("memory", f"{total}, {free} available{cap}"),
        ("container", f"{contained}; hypervisor {_text(system.hypervisor)}"),
        ("IOMMU", _show(system.iommu_options, lambda words: clean(" ".join(words)) or "no option on the command line")),
    ]


def _limits(limits: LimitFacts) -> str:
    sizes = [f"{name} {_limit(value, size_text)}" for name, value in (("memlock", limits.memlock_bytes),)]
    counts = [f"{name} {_limit(value, str)}" for name, value in (("nofile", limits.nofile), ("nproc", limits.nproc))]
    return ", ".join([*sizes, *counts, f"stack {_limit(limits.stack_bytes, size_text)}"])


def _numa(nodes: tuple[NumaNode, ...], style: Style) -> list[str]:
    rows = [
        [
            str(node.id),
            shorten(_show(node.cpus, ranges), style.width // 3),
            _show(node.memory_bytes, size_text),
            shorten(_show(node.distances, lambda each: " ".join(map(str, each))), style.width // 4),
        ]
        for node in nodes
    ]
    return table(("node", "CPUs", "memory", "distances"), rows, style.width, right=(0, 2))


def _netifs(netifs: tuple[Netif, ...], style: Style) -> list[str]:
    rows = [
        [
            shorten(clean(each.name), 15),
            each.kind.value,
            _state(each),
            _text(each.mtu),
            _show(each.speed_mbit_s, _speed),
            shorten(_text(each.driver), 10),
            shorten(_show(each.addresses, lambda all_of: clean(" ".join(all_of[:1]))), max(8, style.width - 66)),
        ]
        for each in netifs
    ]
    return table(("name", "kind", "state", "MTU", "Gbit/s", "driver", "address"), rows, style.width, right=(3, 4))


def _pci(devices: tuple[NvidiaPciDevice, ...], style: Style) -> list[str]:
    rows = [[clean(d.bdf), clean(d.device_id), shorten(_text(d.driver), 20), _text(d.numa_node)] for d in devices]
    return table(("bdf", "device", "driver", "NUMA node"), rows, style.width, right=(3,))


def software_items(node: NodeFacts) -> list[tuple[str, str]]:
    """Return Python, torch and the driver, as names and cleaned values."""
    items: list[tuple[str, str]] = []
    if not isinstance(node.software, Gap):
        items += [("preflight", clean(node.software.preflight)), ("Python", clean(node.software.python))]
        torch = node.software.torch
        if isinstance(torch, Gap):
            items.append(("torch", UNKNOWN))
        else:
            build = "CPU build" if isinstance(torch.cuda, Gap) else f"CUDA {torch.cuda}, NCCL {_text(torch.nccl)}"
            items.append(("torch", clean(f"{torch.version}, {build}, {torch.location}")))
    if not isinstance(node.driver, Gap):
        items.append(("NVIDIA driver", f"{_text(node.driver.version)}, CUDA up to {_text(node.driver.cuda)}"))
    return items


def _variables(variables: Sequence[EnvVar], style: Style) -> list[str]:
    return pairs([(clean(each.name), clean(each.value)) for each in variables], style.width)


def _conf(entries: Sequence[NcclConfEntry], style: Style) -> list[str]:
    return pairs([(clean(each.name), clean(f"{each.value} ({each.file})")) for each in entries], style.width)


def _section(
    title: str, facts: tuple[T, ...] | Gap, render: Callable[[tuple[T, ...], Style], list[str]], style: Style
) -> list[str]:
    if isinstance(facts, Gap):
        return []  # named with the others below, with the reason
    return [*heading(title, style), *render(facts, style)] if facts else ["", f"{title}: none"]


def _state(netif: Netif) -> str:
    if not netif.is_up:
        return "down"
    return _show(netif.has_carrier, lambda carrier: "up" if carrier else "no link")


def _speed(mbit_s: int) -> str:
    return f"{mbit_s / 1000:g}"


def _limit(value: int | Limit, show: Callable[[int], str]) -> str:
    return value.value if isinstance(value, Limit) else show(value)


def _show(value: T | Gap, show: Callable[[T], str]) -> str:
    return UNKNOWN if isinstance(value, Gap) else show(value)


def _text(value: object) -> str:
    return UNKNOWN if isinstance(value, Gap) else clean(str(value))
