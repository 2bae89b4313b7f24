"""Read the kernel, CPUs, memory, NUMA nodes and /dev/shm, and the container and hypervisor of this process."""

from __future__ import annotations

import functools
import re
from functools import partial

from preflight.errors import UnreadableFact
from preflight.facts.cgroup import read_cpu_limit, read_memory_limit_bytes, read_pids_limit
from preflight.facts.reading import first_of, gap_or, need, parse_cpu_list, parse_cpu_mask, parse_meminfo, parse_whole
from preflight.model.facts import ContainerKind, NumaNode, Overcommit, ShmFacts, SystemFacts, known_or
from preflight.system.machine import Machine

DMI = "sys/class/dmi/id"
NO_NAME = re.compile(r"to be filled|default string|^system (?:product|manuf)|not specified|^(?:none|n/a|0)$", re.I)

# Vendors and products of virtual machines only: Amazon's and Google's names also stand on their bare-metal hosts.
VIRTUAL = (
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("openstack", "kvm"),
    ("vmware", "vmware"),
    ("virtualbox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("xen", "xen"),
    ("bochs", "kvm"),
    ("bhyve", "bhyve"),
    ("parallels", "parallels"),
    ("microsoft corporation virtual machine", "hyper-v"),
)
CLOUDS = (("amazon ec2", "amazon ec2"), ("google", "google compute engine"), ("alibaba", "alibaba cloud"))

CGROUP_WORDS = (
    ("kubepods", ContainerKind.KUBERNETES),
    ("cri-containerd", ContainerKind.KUBERNETES),
    ("libpod", ContainerKind.PODMAN),
    ("docker", ContainerKind.DOCKER),
    ("/lxc", ContainerKind.LXC),
)
CONTAINER_FILES = (
    ("run/.containerenv", ContainerKind.PODMAN),
    (".dockerenv", ContainerKind.DOCKER),
    (".singularity.d", ContainerKind.APPTAINER),
)


def probe_system(machine: Machine) -> SystemFacts:
    """Return the values of the operating system.

    If a value could not be read, a Gap with the reason replaces the value.
    """
    meminfo = functools.cache(lambda: machine.text("proc/meminfo"))  # one moment for all of its figures
    return SystemFacts(
        kernel=gap_or(lambda: _read_uname(machine, "release", "proc/sys/kernel/osrelease")),
        architecture=gap_or(lambda: _read_uname(machine, "machine", "proc/sys/kernel/arch")),
        cpu_model=gap_or(lambda: parse_cpu_model(machine.text("proc/cpuinfo"))),
        cpu_count=gap_or(lambda: _read_cpu_count(machine)),
        cpu_affinity=gap_or(lambda: tuple(machine.ask("cpu_affinity"))),
        cgroup_cpu_limit=gap_or(lambda: read_cpu_limit(machine)),
        memory_total_bytes=gap_or(lambda: parse_meminfo(meminfo(), "MemTotal")),
        memory_available_bytes=gap_or(lambda: parse_meminfo(meminfo(), "MemAvailable")),
        cgroup_memory_limit_bytes=gap_or(lambda: read_memory_limit_bytes(machine)),
        container=gap_or(lambda: _read_container(machine)),
        hypervisor=gap_or(lambda: _read_hypervisor(machine)),
        iommu_options=gap_or(lambda: parse_iommu_options(machine.text("proc/cmdline"))),
        cgroup_pids_limit=gap_or(lambda: read_pids_limit(machine)),
        overcommit=gap_or(lambda: parse_overcommit(machine.text("proc/sys/vm/overcommit_memory"))),
        commit_left_bytes=gap_or(lambda: parse_commit_left(meminfo())),
        product=gap_or(lambda: _read_dmi(machine, "sys_vendor", "product_name")),
        bios=gap_or(lambda: _read_dmi(machine, "bios_vendor", "bios_version", "bios_date")),
    )


def _read_uname(machine: Machine, key: str, path: str) -> str:
    return first_of(lambda: str(machine.ask("uname")[key]), lambda: machine.text(path))


def _read_cpu_count(machine: Machine) -> int:
    return first_of(
        lambda: len(parse_cpu_list(machine.text("sys/devices/system/cpu/online"))),
        lambda: parse_cpu_count(machine.text("proc/cpuinfo")),
    )


def _read_container(machine: Machine) -> ContainerKind:
    cgroup = gap_or(lambda: machine.text("proc/1/cgroup"))
    by_cgroup = parse_container_cgroup(cgroup) if isinstance(cgroup, str) else ContainerKind.NONE
    if machine.exists("var/run/secrets/kubernetes.io") or by_cgroup is ContainerKind.KUBERNETES:
        return ContainerKind.KUBERNETES
    marked = next((kind for path, kind in CONTAINER_FILES if machine.exists(path)), None)
    if marked:
        return marked
    if machine.exists("run/systemd/container"):
        return parse_systemd_container(machine.text("run/systemd/container"))
    if not isinstance(cgroup, str):
        need(machine, "proc/1")
    return by_cgroup


def _read_hypervisor(machine: Machine) -> str:
    if machine.exists("sys/hypervisor/type"):
        return machine.text("sys/hypervisor/type")
    cpuinfo = gap_or(lambda: machine.text("proc/cpuinfo"))
    dmi = known_or(gap_or(lambda: _read_dmi(machine, "sys_vendor", "product_name")), "")
    return parse_hypervisor(dmi, cpuinfo if isinstance(cpuinfo, str) else "")


def _read_dmi(machine: Machine, *names: str) -> str:
    """Return the DMI values `names`, joined into one text. Placeholders of the maker are left out."""
    values = [gap_or(partial(machine.text, f"{DMI}/{name}")) for name in names]
    texts = [" ".join(value.split()) for value in values if isinstance(value, str)]
    told = [text for text in texts if text and not NO_NAME.search(text)]
    if not told:
        raise UnreadableFact(f"/{DMI}: {', '.join(names)}: not there, or without a name")
    return " ".join(told)


def parse_cpu_model(cpuinfo: str) -> str:
    """Return the name of the CPU in the text of /proc/cpuinfo, or the numbers of an Arm CPU.

    Raise UnreadableFact if the text has no model.
    """
    # Arm kernels write numbers instead of a name, such as `Arm implementer 0x41 part 0xd0c`.
    for key in ("model name", "cpu model", "cpu", "Processor"):
        match = re.search(rf"^{key}[ \t]*:[ \t]*(\S.*)$", cpuinfo, re.MULTILINE)
        if match:
            return " ".join(match.group(1).split())
    numbers = dict(reversed(re.findall(r"^CPU (implementer|part)[ \t]*:[ \t]*(0x[0-9a-f]+)$", cpuinfo, re.MULTILINE)))
    if len(numbers) == 2:
        return f"Arm implementer {numbers['implementer']} part {numbers['part']}"
    raise UnreadableFact("/proc/cpuinfo: it names no model")


def parse_overcommit(text: str) -> Overcommit:
    """Return the kernel's memory overcommit policy for `text`, the value of vm.overcommit_memory."""
    mode = parse_whole(text, "overcommit_memory")
    if mode not in (each.value for each in Overcommit):
        raise UnreadableFact(f"overcommit_memory: {mode} is none of 0, 1 and 2")
    return Overcommit(mode)


def parse_commit_left(meminfo: str) -> int:
    """Return how many bytes of memory may still be committed, from the text of /proc/meminfo.

    The result is negative if too much memory is committed.
    """
    return parse_meminfo(meminfo, "CommitLimit") - parse_meminfo(meminfo, "Committed_AS")


def parse_cpu_count(cpuinfo: str) -> int:
    """Return the number of logical CPUs in the text of /proc/cpuinfo."""
    count = len(re.findall(r"^processor[ \t]*:", cpuinfo, re.MULTILINE))
    if count == 0:
        raise UnreadableFact("/proc/cpuinfo: it lists no processor")
    return count


def parse_container_cgroup(cgroup: str) -> ContainerKind:
    """Return the kind of container that `cgroup`, the cgroup path of process 1, shows.

    Return NONE if the path shows no container.
    """
    return next((kind for word, kind in CGROUP_WORDS if word in cgroup), ContainerKind.NONE)


def parse_systemd_container(text: str) -> ContainerKind:
    """Return the kind of container that systemd names in `text`, the content of /run/systemd/container."""
    names = {kind.value: kind for kind in ContainerKind if kind is not ContainerKind.NONE}
    return names.get(text.removesuffix("-libvirt").lower(), ContainerKind.OTHER)


def parse_hypervisor(dmi: str, cpuinfo: str) -> str:
    """Return the hypervisor of this machine, or "none" on bare metal.

    Raise UnreadableFact if neither `dmi` (the DMI names) nor `cpuinfo` (the text of /proc/cpuinfo) shows the answer.
    """
    # On x86, /proc/cpuinfo has a CPU flag for hypervisors.
    words = dmi.lower()
    named = next((name for word, name in VIRTUAL if word in words), "")
    cloud = next((name for word, name in CLOUDS if word in words), "")
    flags = re.search(r"^flags[ \t]*:(.*)$", cpuinfo, re.MULTILINE)
    if named:
        return named
    if flags:
        return (cloud or "unidentified") if "hypervisor" in flags.group(1).split() else "none"
    if dmi:
        return cloud if cloud and "metal" not in words else "none"
    raise UnreadableFact(f"/{DMI}: not there, and the CPU's flags do not tell")


def parse_iommu_options(cmdline: str) -> tuple[str, ...]:
    """Return the kernel options in `cmdline` that concern the IOMMU, ACS or interrupt remapping.

    The options keep the order of `cmdline`.
    """
    return tuple(word for word in cmdline.split() if re.search(r"iommu|(?<![a-z])n?o?acs(?![a-z])|intremap", word))


NODES = "sys/devices/system/node"


def probe_numa_nodes(machine: Machine) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes, sorted by id, or () if the kernel was built without NUMA."""
    need(machine, "sys/devices/system")
    ids = sorted(int(match[1]) for name in machine.names(NODES) if (match := re.fullmatch(r"node([0-9]{1,6})", name)))
    return tuple(_read_node(machine, node) for node in ids)


def _read_node(machine: Machine, node: int) -> NumaNode:
    directory = f"{NODES}/node{node}"
    cpus = gap_or(lambda: _read_cpus(machine, directory))
    memory_bytes = gap_or(lambda: parse_meminfo(machine.text(f"{directory}/meminfo"), "MemTotal"))
    return NumaNode(node, cpus, memory_bytes, gap_or(lambda: parse_distances(machine.text(f"{directory}/distance"))))


def _read_cpus(machine: Machine, directory: str) -> tuple[int, ...]:
    return first_of(
        lambda: parse_cpu_list(machine.text(f"{directory}/cpulist")),
        lambda: parse_cpu_mask(machine.text(f"{directory}/cpumap")),  # kernels before 2.6.26
    )


def parse_distances(text: str) -> tuple[int, ...]:
    """Return the distances from one NUMA node to all NUMA nodes, from a text such as `10 21`.

    The distances are in the order of the node ids.
    """
    # The distance of a node to itself is 10.
    distances = tuple(parse_whole(word, "distance") for word in text.split())
    if not distances:
        raise UnreadableFact("distance: the file is empty")
    return distances


def probe_shm(machine: Machine) -> ShmFacts:
    """Return the size and the free space of /dev/shm, and the NCCL files there that no process can use anymore."""
    room = machine.ask("shm_statvfs")
    stale = [segment for segment in machine.ask("shm_mapped") if segment["stale"]]
    return ShmFacts(
        size_bytes=room["size_bytes"],
        free_bytes=room["free_bytes"],
        stale_nccl_files=tuple(segment["name"] for segment in stale),
        stale_nccl_bytes=sum(segment["size_bytes"] for segment in stale),
    )
