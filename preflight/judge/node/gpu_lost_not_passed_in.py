from __future__ import annotations

from dataclasses import fields

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import (
    GIVEN_NONE,
    NVIDIA,
    bound_drivers,
    came_late,
    is_chosen,
    must_have_nvidia,
    nodes_of_gpus,
    not_passed_in,
    pci_devices,
    severity_for_gpus,
)
from preflight.judge.node_limits import is_contained
from preflight.model.facts import ContainerKind, Gap, Gpu, NodeFacts, known, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.parts import part_of_gpu

SET_ASIDE = "vfio-pci"  # an administrator gave the device to a virtual machine
VISIBLE = "CUDA_VISIBLE_DEVICES"
NOT_OURS = "NVMLError_NoPermission"  # a cgroup keeps it for others
IS_LOST = "NVMLError_GpuIsLost"
LOST_FIX = (
    "read the cause in `dmesg | grep -iE 'xid|fallen off'`. Run `nvidia-smi --gpu-reset -i N`. If the reset fails, "
    "reboot the node, then reseat or replace the card"
)


@node_check(
    "gpu-lost",
    blame=Blame.GPU,
    unseen=Unseen.ACCEPTANCE,
    reads=("nvidia_pci", "device_nodes", "gpus", "environment", "system"),
)
def gpu_lost(node: NodeFacts, case: Case) -> Findings:
    """NVML lists every GPU on the PCI bus or, in a container, every GPU that was passed in.

    Yields a FAIL if NVML lists too few GPUs or reports a chosen GPU as lost. The severity is WARN if the backend needs
    no GPU, or if CUDA_VISIBLE_DEVICES names all GPUs of NVML.

    Can't see: a GPU that is no longer visible on the bus.
    """
    # A GPU that is on the PCI bus but missing in NVML has fallen off the bus, or never started. In a container, the
    # GPUs in /dev count instead of the bus. If CUDA_VISIBLE_DEVICES names as many GPUs as NVML lists, a scheduler may
    # hide the other GPUs.
    must_have_nvidia(node)
    if not_passed_in(node):
        raise NotApplicable(GIVEN_NONE)
    gpus = known(node.gpus)
    for gpu in gpus:
        if is_chosen(gpu.nvml_index, case) and is_lost(gpu):
            yield gpu_lost.finding(
                severity_for_gpus(case),
                f"{node.host} GPU {gpu.nvml_index} ({known_or(gpu.bdf, '?')})",
                "the driver lists the GPU but has lost it, because the GPU no longer answers on the bus",
                LOST_FIX,
                Evidence("NVML", IS_LOST, "libnvidia-ml.so.1"),
                parts=part_of_gpu(node, gpu.nvml_index),
            )
    if is_contained(node):
        expected, where = len(nodes_of_gpus(node)), "given to the container as /dev/nvidia<N>"
    else:
        if not gpus and NVIDIA not in bound_drivers(node):
            raise NotApplicable("no device has NVIDIA's driver")
        expected, where = sum(d.driver != SET_ASIDE for d in pci_devices(node)), "on the PCI bus"
    unread = () if isinstance(node.driver, Gap) else node.driver.unreadable_gpus
    expected -= sum(each.reason.startswith(NOT_OURS) for each in unread)
    if len(gpus) >= expected:
        return
    late = [each for each in unread if came_late(each.reason)]
    if late and len(gpus) + len(late) >= expected:
        raise UnreadableFact(f"GPU {late[0].nvml_index}: {late[0].reason}")
    listed = [known_or(gpu.bdf, "?") for gpu in gpus]
    is_subset = not is_contained(node) and _is_allotted(node, gpus)
    yield gpu_lost.finding(
        Severity.WARN if is_subset else severity_for_gpus(case),
        f"{node.host} {', '.join(_missing(node, listed)) or 'GPUs'}",
        f"NVML lists {len(gpus)} of the {expected} NVIDIA GPUs {where}"
        + (
            "; CUDA_VISIBLE_DEVICES names the same number of GPUs, so a scheduler may hide the others"
            if is_subset
            else ""
        ),
        "to confirm, run `nvidia-smi -L` once outside the job's cgroup" if is_subset else LOST_FIX,
        Evidence("GPUs in NVML", ", ".join(listed) or "none", "nvmlDeviceGetCount"),
        Evidence("NVIDIA devices", ", ".join(d.bdf for d in pci_devices(node)) or "none", "/sys/bus/pci/devices"),
        Evidence("/dev/nvidia<N>", ", ".join(nodes_of_gpus(node)) or "none", "/dev"),
    )


def is_lost(gpu: Gpu) -> bool:
    """Return whether the driver reported the GPU as lost while preflight read the GPU's values."""
    values = (getattr(gpu, field.name) for field in fields(gpu))
    return any(isinstance(value, Gap) and value.reason.startswith(IS_LOST) for value in values)


def _missing(node: NodeFacts, listed: list[str]) -> list[str]:
    devices = () if is_contained(node) else pci_devices(node)
    known_bdfs = {bdf.lower() for bdf in listed}
    return [d.bdf for d in devices if d.bdf.lower() not in known_bdfs and d.driver != SET_ASIDE]


def _is_allotted(node: NodeFacts, gpus: tuple[Gpu, ...]) -> bool:
    # Slurm's ConstrainDevices hides the others from NVML while the bus and /dev still show them, and names those left.
    values = [variable.value for variable in known_or(node.environment, ()) if variable.name == VISIBLE]
    return bool(gpus) and any(len(value.split(",")) == len(gpus) for value in values if value)


CONTAINER_FIXES = {
    ContainerKind.DOCKER: "run `docker run --gpus all ...` (needs nvidia-container-toolkit on the host)",
    ContainerKind.PODMAN: "run `podman run --device nvidia.com/gpu=all ...` (after `nvidia-ctk cdi generate`)",
    ContainerKind.KUBERNETES: "request the GPUs with `resources: {limits: {nvidia.com/gpu: N}}` in the pod's spec",
    ContainerKind.APPTAINER: "run `apptainer exec --nv ...`",
    ContainerKind.ENROOT: "run `NVIDIA_VISIBLE_DEVICES=all enroot start ...` (with Slurm: `srun --gres=gpu:N ...`)",
    ContainerKind.LXC: "run `lxc config device add NAME gpu gpu`, and set nvidia.runtime=true",
}
ANY_CONTAINER_FIX = (
    f"{CONTAINER_FIXES[ContainerKind.DOCKER]}; on Kubernetes, {CONTAINER_FIXES[ContainerKind.KUBERNETES]}"
)


@node_check(
    "gpu-not-passed-in", blame=Blame.CONTAINER, unseen=Unseen.NOTHING, reads=("nvidia_pci", "device_nodes", "system")
)
def gpu_not_passed_in(node: NodeFacts, case: Case) -> Findings:
    """A container on a GPU machine was given GPUs.

    Yields a FAIL if a container has no /dev/nvidia<N> although GPUs are on the PCI bus. With a backend that needs no
    GPU, yields a WARN instead.

    Can't see: GPUs of a host whose PCI bus the container does not show.
    """
    must_have_nvidia(node)
    if not pci_devices(node):
        raise NotApplicable("the PCI bus shows no NVIDIA device")
    container = known(known(node.system).container)
    if container is ContainerKind.NONE:
        raise NotApplicable("this is not a container")
    given = known(node.device_nodes).nvidia
    if not not_passed_in(node):
        return
    yield gpu_not_passed_in.finding(
        severity_for_gpus(case),
        f"{node.host} container",
        f"the PCI bus has {len(pci_devices(node))} NVIDIA GPUs, but the container has no /dev/nvidia<N>",
        CONTAINER_FIXES.get(container, ANY_CONTAINER_FIX),
        Evidence("kind of container", container.value, "/proc"),
        Evidence("NVIDIA devices", ", ".join(d.bdf for d in pci_devices(node)), "/sys/bus/pci/devices"),
        Evidence("/dev/nvidia*", ", ".join(given) or "none", "/dev"),
    )
