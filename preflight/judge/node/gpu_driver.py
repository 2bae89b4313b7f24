from __future__ import annotations

import re

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.gpus_of_node import (
    GIVEN_NONE,
    NVIDIA,
    bound_drivers,
    came_late,
    must_have_nvidia,
    not_passed_in,
    pci_devices,
    severity_for_gpus,
)
from preflight.judge.node_limits import is_contained, owner
from preflight.model.facts import Gap, NodeFacts, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen

NO_LIBRARY = re.compile(r"libnvidia-ml|library", re.IGNORECASE)
SLEEPS = (
    "; `nvidia-smi` shows whether the driver hangs, or only wakes its GPUs slowly (in that case, run "
    "`nvidia-smi -pm 1`)"
)
HELD_BY = {
    "nouveau": "install NVIDIA's driver. Run `echo 'blacklist nouveau' > /etc/modprobe.d/blacklist-nouveau.conf`, "
    "rebuild the initramfs and reboot",
    "vfio-pci": "remove the GPUs from vfio-pci's ids= and reboot, or run in the virtual machine for which they are "
    "reserved",
}
TAKEN_AWAY = "NVMLError_Unknown"
MISMATCH = re.compile(r"mismatch", re.IGNORECASE)


@node_check(
    "gpu-driver",
    blame=Blame.HOST,
    unseen=Unseen.ACCEPTANCE,
    reads=("nvidia_pci", "device_nodes", "driver", "gpus", "system"),
)
def gpu_driver(node: NodeFacts, case: Case) -> Findings:
    """If the node has NVIDIA hardware, its driver works.

    Yields a FAIL if NVML does not start or lists no GPU, or a WARN if the backend needs no GPU. Yields a WARN if only
    the values of the driver could not be read.

    Can't see: CUDA itself, which only a rank can start.
    """
    # A machine with NVIDIA hardware but no working driver must never count as a machine without GPUs. An empty list of
    # NVML is a FAIL if no device is bound to NVIDIA's driver. If the driver gives no answer in time, the driver may be
    # waking its GPUs. The check is then inconclusive and yields nothing.
    must_have_nvidia(node)
    if not_passed_in(node):
        raise NotApplicable(GIVEN_NONE)
    severity = severity_for_gpus(case)
    if isinstance(node.gpus, Gap):
        reason = node.gpus.reason
    elif not node.gpus and pci_devices(node) and NVIDIA not in bound_drivers(node):
        reason = "NVML lists no GPU"
    elif isinstance(node.driver, Gap):
        severity, reason = Severity.WARN, node.driver.reason
    else:
        return
    if came_late(reason):
        raise UnreadableFact(f"{reason}{SLEEPS}")
    yield gpu_driver.finding(
        severity,
        f"{node.host} NVIDIA driver",
        _problem(node, reason),
        _fix(node, reason),
        Evidence("NVIDIA devices", _devices(node), "/sys/bus/pci/devices"),
        Evidence("kernel module", _module(node), "/proc/driver/nvidia, /sys/module/nvidia"),
        Evidence("NVML", reason, "libnvidia-ml.so.1"),
        blame=_blame(node, reason),
    )


def _has_module(node: NodeFacts) -> bool:
    return not isinstance(node.device_nodes, Gap) and not isinstance(node.device_nodes.kernel_module, Gap)


def _blame(node: NodeFacts, reason: str) -> Blame:
    # With the module loaded, a library that is missing in a container is the container's fault, not the node's.
    # Nor are GPUs that were taken from the container.
    if is_contained(node) and _has_module(node) and (NO_LIBRARY.search(reason) or reason.startswith(TAKEN_AWAY)):
        return Blame.CONTAINER
    return Blame.HOST if is_contained(node) else owner(node)


def _problem(node: NodeFacts, reason: str) -> str:
    count = len(pci_devices(node))
    devices = f"{count} NVIDIA device{'s are' if count > 1 else ' is'}"
    what = f"{devices} on the PCI bus" if count else "/dev/nvidia* is there"
    others = sorted(bound_drivers(node) - {NVIDIA})
    if others:
        return f"{what}, held by {', '.join(others)} instead of the nvidia driver ({reason})"
    if not _has_module(node):
        return f"{what}, but the nvidia kernel module is not loaded ({reason})"
    return f"{what} and the kernel module is loaded, but NVML does not work: {reason}"


def _fix(node: NodeFacts, reason: str) -> str:
    for holder in bound_drivers(node) & HELD_BY.keys():
        return HELD_BY[holder]
    if MISMATCH.search(reason):
        return (
            "reboot, or run `rmmod nvidia_uvm nvidia && modprobe nvidia`, because an update changed the library but "
            "not the loaded module"
        )
    if not _has_module(node):
        return (
            "run `modprobe nvidia`. If it fails, read `dkms status` and `dmesg | grep -i nvrm`, and install the driver "
            "again"
        )
    if is_contained(node) and reason.startswith(TAKEN_AWAY):
        return (
            "restart the container. `systemctl daemon-reload` on the host takes the GPUs from running containers "
            "(nvidia-container-toolkit issue 48). To prevent this, start the container with CDI, or with `--device` "
            "for each /dev/nvidia*"
        )
    if NO_LIBRARY.search(reason):
        return (
            "install libnvidia-ml.so.1 of the driver, or start the container with `-e "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility`"
        )
    return "run `nvidia-smi` and `dmesg | grep -iE 'nvrm|xid'`. If they show a lost GPU, reset it or reboot the node"


def _devices(node: NodeFacts) -> str:
    if isinstance(node.nvidia_pci, Gap):
        return f"unknown: {node.nvidia_pci.reason}"
    held_by = (f"{device.bdf} ({known_or(device.driver, 'no driver')})" for device in node.nvidia_pci)
    return ", ".join(held_by) or "none"


def _module(node: NodeFacts) -> str:
    if isinstance(node.device_nodes, Gap):
        return f"unknown: {node.device_nodes.reason}"
    module = node.device_nodes.kernel_module
    return f"none: {module.reason}" if isinstance(module, Gap) else module
