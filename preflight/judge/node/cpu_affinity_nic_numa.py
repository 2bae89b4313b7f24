from __future__ import annotations

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import listed
from preflight.judge.gpus_of_node import chosen_gpus
from preflight.judge.node_limits import owner
from preflight.judge.pci_fabric import carries_traffic
from preflight.model.facts import Gap, Gpu, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen


@node_check("cpu-affinity", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("gpus", "numa_nodes", "system"))
def cpu_affinity(node: NodeFacts, case: Case) -> Findings:
    """This process may use CPUs near every chosen GPU.

    Yields a WARN if this process may not use any CPU near some chosen GPUs.

    Can't see: to which CPUs the job itself will be bound.
    """
    # If a job may not run near a GPU, every kernel launch and every host copy crosses the CPU sockets.
    gpus = chosen_gpus(node, case)
    if not any(_cpus_near(node, gpu) for gpu in gpus):
        raise UnreadableFact("the CPUs near the GPUs are unknown")
    allowed = frozenset(known(known(node.system).cpu_affinity))
    far = [gpu for gpu in gpus if _cpus_near(node, gpu) and not _cpus_near(node, gpu) & allowed]
    if far:
        nodes = sorted({gpu.numa_node for gpu in far if isinstance(gpu.numa_node, int)})
        where = f" (NUMA node {', '.join(map(str, nodes))})" if nodes else ""
        yield cpu_affinity.finding(
            Severity.WARN,
            f"{node.host} GPU {listed([gpu.nvml_index for gpu in far])}",
            f"this process may not use any CPU near {'them' if len(far) > 1 else 'it'}{where}",
            "give the job CPUs near every GPU with `--gpu-bind` or `--cpus-per-gpu` (Slurm) or `--cpuset-cpus` "
            "(docker). Do not start the launcher under `taskset` or `numactl`",
            Evidence("CPUs allowed", str(len(allowed)), "sched_getaffinity"),
            Evidence("CPUs near the GPU", str(len(_cpus_near(node, far[0]))), "nvmlDeviceGetCpuAffinity"),
            blame=owner(node),
        )


def _cpus_near(node: NodeFacts, gpu: Gpu) -> frozenset[int]:
    """Return the CPUs that are near a GPU according to NVML.

    If NVML names no CPUs, return the CPUs of the GPU's NUMA node.
    """
    if not isinstance(gpu.cpu_affinity, Gap):
        return frozenset(gpu.cpu_affinity)
    near = (each for each in known_or(node.numa_nodes, ()) if each.id == gpu.numa_node)
    return frozenset(cpu for each in near for cpu in known(each.cpus))


ACROSS = frozenset({"SYS", "SOC"})


@node_check("nic-numa", blame=Blame.CONFIGURATION, unseen=Unseen.NOTHING, reads=("nic_paths", "hca_ports"))
def nic_numa(node: NodeFacts, case: Case) -> Findings:
    """If the node has NICs, each chosen GPU has an active NIC on its own NUMA node.

    Yields a WARN if no chosen GPU has a NIC on its NUMA node, although GPUs that were not chosen have one. Otherwise,
    yields an INFO if a chosen GPU has no NIC on its NUMA node.

    Can't see: NICs without RDMA.
    """
    # If all NICs are on other NUMA nodes than a GPU, all network traffic of the GPU crosses the CPU sockets.
    levels: dict[int, list[str]] = {}
    for path in known(node.nic_paths):
        if not isinstance(path.level, Gap) and carries_traffic(node, path.nic):
            levels.setdefault(path.gpu, []).append(path.level)
    if not any(levels.get(gpu) for gpu in case.gpus):
        raise NotApplicable("no active RDMA adapter has a known path to the chosen GPUs")
    far = [gpu for gpu in case.gpus if levels.get(gpu) and ACROSS.issuperset(levels[gpu])]
    if not far:
        return
    near = sorted(gpu for gpu, reached in levels.items() if not ACROSS.issuperset(reached))
    none_near = len(far) == len(case.gpus) and bool(near)
    yield nic_numa.finding(
        Severity.WARN if none_near else Severity.INFO,
        f"{node.host} GPUs {listed(far)}",
        "these GPUs share no NUMA node with a NIC, so their network traffic crosses the sockets",
        f"for jobs on several nodes, choose among GPUs {listed(near)}, which share a NUMA node with a NIC"
        if near
        else "for jobs on several nodes, put an adapter into a slot of the other socket (jobs on one node need no "
        "change)",
        *(Evidence(f"GPU {gpu} to the NICs", ", ".join(sorted({*levels[gpu]})), "topology") for gpu in far),
    )
