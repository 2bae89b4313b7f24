"""A GPU that is on the PCI bus and that NVML no longer lists has fallen off, or never came up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from preflight.errors import UnreadableFact
from preflight.judge.check import Case, NodeCheck
from preflight.judge.chosen import is_chosen
from preflight.judge.gpu_driver import NVIDIA, bound_drivers
from preflight.judge.hardware import has_nvidia, is_contained, nodes_of_gpus, pci_devices, severity_for_gpus
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.finding import Blame, Evidence, Finding, Severity

SET_ASIDE = "vfio-pci"  # an administrator gave the device to a virtual machine
VISIBLE = "CUDA_VISIBLE_DEVICES"
UNASKED = "not asked"  # nothing was learnt of it, where waking the GPUs before it took all the time
NOT_OURS = "NVMLError_NoPermission"  # a cgroup keeps it for others
IS_LOST = "NVMLError_GpuIsLost"
FIX = (
    "`dmesg | grep -iE 'xid|fallen off'` names the cause; `nvidia-smi --gpu-reset -i N`, else reboot, else reseat or "
    "replace the card"
)


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a finding where NVML lists fewer GPUs than the bus, or in a container than /dev, or calls one lost."""
    if not has_nvidia(node) or isinstance(node.gpus, Gap):
        return
    yield from (_called_lost(node, case, gpu) for gpu in node.gpus if is_chosen(gpu.nvml_index, case) and is_lost(gpu))
    if is_contained(node):
        expected, where = len(nodes_of_gpus(node)), "given to the container as /dev/nvidia<N>"
    else:
        if not node.gpus and NVIDIA not in bound_drivers(node):
            return
        expected, where = sum(d.driver != SET_ASIDE for d in pci_devices(node)), "on the PCI bus"
    unread = () if isinstance(node.driver, Gap) else node.driver.unreadable_gpus
    expected -= sum(each.reason.startswith(NOT_OURS) for each in unread)
    if len(node.gpus) >= expected:
        return
    unasked = [each for each in unread if each.reason.startswith(UNASKED)]
    if unasked and len(node.gpus) + len(unasked) >= expected:
        raise UnreadableFact(f"GPU {unasked[0].nvml_index}: {unasked[0].reason}")
    is_subset = not is_contained(node) and _is_allotted(node, node.gpus)
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=Severity.WARN if is_subset else severity_for_gpus(case),
        subject=f"{node.host} {', '.join(_missing(node, node.gpus)) or 'GPUs'}",
        problem=f"NVML lists {len(node.gpus)} of the {expected} NVIDIA GPUs {where}"
        + ("; as many as CUDA_VISIBLE_DEVICES names, so a scheduler may hide the others" if is_subset else ""),
        fix="run once outside the job's cgroup to be sure: `nvidia-smi -L`" if is_subset else FIX,
        evidence=(
            Evidence("GPUs in NVML", ", ".join(_bdf(g) for g in node.gpus) or "none", "nvmlDeviceGetCount"),
            Evidence("NVIDIA devices", ", ".join(d.bdf for d in pci_devices(node)) or "none", "/sys/bus/pci/devices"),
            Evidence("/dev/nvidia<N>", ", ".join(nodes_of_gpus(node)) or "none", "/dev"),
        ),
    )


def is_lost(gpu: Gpu) -> bool:
    """Tell whether the driver called the GPU lost when asked for any of its values."""
    values = (getattr(gpu, field.name) for field in fields(gpu))
    return any(isinstance(value, Gap) and value.reason.startswith(IS_LOST) for value in values)


def _called_lost(node: NodeFacts, case: Case, gpu: Gpu) -> Finding:
    return Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=severity_for_gpus(case),
        subject=f"{node.host} GPU {gpu.nvml_index} ({_bdf(gpu)})",
        problem="the driver lists it, but has lost it: it does not answer on the bus any more",
        fix=FIX,
        evidence=(Evidence("NVML", IS_LOST, "libnvidia-ml.so.1"),),
    )


def _missing(node: NodeFacts, gpus: tuple[Gpu, ...]) -> list[str]:
    if is_contained(node):
        return []
    listed = {_bdf(gpu).lower() for gpu in gpus}
    return [d.bdf for d in pci_devices(node) if d.bdf.lower() not in listed and d.driver != SET_ASIDE]


def _bdf(gpu: Gpu) -> str:
    return "?" if isinstance(gpu.bdf, Gap) else gpu.bdf


def _is_allotted(node: NodeFacts, gpus: tuple[Gpu, ...]) -> bool:
    # Slurm's ConstrainDevices hides the others from NVML while the bus and /dev still show them, and names those left.
    values = [] if isinstance(node.environment, Gap) else [v.value for v in node.environment if v.name == VISIBLE]
    return bool(gpus) and any(len(value.split(",")) == len(gpus) for value in values if value)


CHECK = NodeCheck(
    name="gpu-lost",
    promise="NVML lists every GPU that is on the bus, in a container every GPU that was passed in",
    blame=Blame.GPU,
    reads=("nvidia_pci", "device_nodes", "gpus", "environment", "system"),
    blind_to="a GPU that has left the bus altogether",
    judge=judge,
)
