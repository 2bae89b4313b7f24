"""A job that may not run near a GPU sends every launch and every host copy across the sockets."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import chosen_gpus
from preflight.judge.hardware import owner
from preflight.model.facts import Gap, Gpu, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding, Severity


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a WARN where this process may use none of the CPUs near some chosen GPUs."""
    gpus = chosen_gpus(node, case)
    if not gpus:
        return
    allowed = frozenset(known(known(node.system).cpu_affinity))
    far = [gpu for gpu in gpus if _cpus(node, gpu) and not _cpus(node, gpu) & allowed]
    if far:
        told = ",".join(str(gpu.nvml_index) for gpu in far)
        nodes = sorted({gpu.numa_node for gpu in far if isinstance(gpu.numa_node, int)})
        where = f" (NUMA node {', '.join(map(str, nodes))})" if nodes else ""
        yield Finding(
            check=CHECK.name,
            blame=owner(node),
            severity=Severity.WARN,
            subject=f"{node.host} GPU {told}",
            problem=f"this process may use none of the CPUs near {'them' if len(far) > 1 else 'it'}{where}",
            fix="give the job CPUs of every GPU's node: Slurm `--gpu-bind`/`--cpus-per-gpu`, docker `--cpuset-cpus`, "
            "no `taskset` or `numactl` around the launcher",
            evidence=(
                Evidence("CPUs allowed", str(len(allowed)), "sched_getaffinity"),
                Evidence("CPUs near the GPU", str(len(_cpus(node, far[0]))), "nvmlDeviceGetCpuAffinity"),
            ),
        )


def _cpus(node: NodeFacts, gpu: Gpu) -> frozenset[int]:
    """Return the CPUs near a GPU: as NVML says, else those of its NUMA node."""
    if not isinstance(gpu.cpu_affinity, Gap):
        return frozenset(gpu.cpu_affinity)
    nodes = () if isinstance(node.numa_nodes, Gap) else node.numa_nodes
    return frozenset(cpu for each in nodes if each.id == gpu.numa_node for cpu in known(each.cpus))


CHECK = NodeCheck(
    name="cpu-affinity",
    promise="this process may use CPUs near every chosen GPU",
    blame=Blame.HOST,
    reads=("gpus", "numa_nodes", "system"),
    blind_to="how the job itself will be bound",
    judge=judge,
)
