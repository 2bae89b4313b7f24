"""A container that sees GPUs on the bus and was given none of them."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.judge.check import Case, NodeCheck
from preflight.judge.hardware import has_nvidia, not_passed_in, pci_devices, severity_for_gpus
from preflight.model.facts import ContainerKind, NodeFacts, known
from preflight.model.finding import Blame, Evidence, Finding

FIXES = {
    ContainerKind.DOCKER: "`docker run --gpus all ...` (needs nvidia-container-toolkit on the host)",
    ContainerKind.PODMAN: "`podman run --device nvidia.com/gpu=all ...` (after `nvidia-ctk cdi generate`)",
    ContainerKind.KUBERNETES: "ask for them: `resources: {limits: {nvidia.com/gpu: N}}` in the pod's spec",
    ContainerKind.APPTAINER: "`apptainer exec --nv ...`",
    ContainerKind.ENROOT: "`NVIDIA_VISIBLE_DEVICES=all enroot start ...`, with Slurm `srun --gres=gpu:N ...`",
    ContainerKind.LXC: "`lxc config device add NAME gpu gpu`, and nvidia.runtime=true",
}
ANY = f"docker: {FIXES[ContainerKind.DOCKER]}; Kubernetes: {FIXES[ContainerKind.KUBERNETES]}"


def judge(node: NodeFacts, case: Case) -> Iterator[Finding]:
    """Yield a finding where devices are on the bus, a container is around us and no /dev/nvidia<N> was given."""
    if not has_nvidia(node) or not pci_devices(node):
        return
    container = known(known(node.system).container)
    given = known(node.device_nodes).nvidia
    if not not_passed_in(node):
        return
    yield Finding(
        check=CHECK.name,
        blame=CHECK.blame,
        severity=severity_for_gpus(case),
        subject=f"{node.host} container",
        problem=f"the PCI bus has {len(pci_devices(node))} NVIDIA GPUs, but the container was given no /dev/nvidia<N>",
        fix=FIXES.get(container, ANY),
        evidence=(
            Evidence("container", container.value, "/proc"),
            Evidence("NVIDIA devices", ", ".join(d.bdf for d in pci_devices(node)), "/sys/bus/pci/devices"),
            Evidence("/dev/nvidia*", ", ".join(given) or "none", "/dev"),
        ),
    )


CHECK = NodeCheck(
    name="gpu-not-passed-in",
    promise="a container on a GPU machine was given GPUs",
    blame=Blame.CONTAINER,
    reads=("nvidia_pci", "device_nodes", "system"),
    blind_to="GPUs of a host whose PCI bus the container does not show",
    judge=judge,
)
