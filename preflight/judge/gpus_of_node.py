"""Functions about the GPUs of a node, such as whether a GPU is in use and which GPUs a check examines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preflight.errors import NotApplicable, UnreadableFact
from preflight.judge.check import Case
from preflight.judge.node_limits import is_contained
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.facts import Gap, Gpu, NodeFacts, NvidiaPciDevice, known, known_or
from preflight.model.finding import Severity
from preflight.model.gap import NO_ANSWER, NOT_OFFERED
from preflight.model.gpu import GPU_FILE, leads_to_switch
from preflight.search.gpus.locality import IDLE_BYTES

UNASKED = "not asked"
CUT_SHORT = "not read"
NO_GPU = "no NVIDIA GPU is used"
GIVEN_NONE = "the container has no GPU"
NVIDIA = "nvidia"
IDLE_PERCENT = Bound(
    5, "% of utilization; a GPU above this share that also holds memory is busy",
    "one sample of an idle GPU may show a few percent",
    JUDGMENT,
    "too low: an idle GPU counts as busy, so no speed is judged; too high: speeds are judged while another job runs",
)  # fmt: skip
CONTEXT_BYTES = Bound(
    256 << 20, "bytes in use; a GPU with less is not busy, unless NVML lists a process",
    "a CUDA context holds more memory than this; the driver's own reserve is not counted",
    JUDGMENT,
    "too low: an idle GPU counts as busy, so no speed is judged; too high: speeds are judged while another job runs",
)  # fmt: skip
SLOWED_BY = {
    "hw_slowdown": "the hardware slows it down",
    "hw_thermal_slowdown": "it is too hot",
    "hw_power_brake_slowdown": "the power supply limits it",
    "sw_thermal_slowdown": "the driver slows it down because it is hot",
}
SLOWED_BY_HARDWARE = frozenset(SLOWED_BY) - {"sw_thermal_slowdown"}


def came_late(reason: str) -> bool:
    """Return whether `reason` says that NVML did not answer in time.

    The GPU may be waking up, so a late answer is no reason to reject a node.
    """
    return NO_ANSWER in reason or reason.startswith((UNASKED, CUT_SHORT))


def pci_devices(node: NodeFacts) -> tuple[NvidiaPciDevice, ...]:
    """Return the NVIDIA devices on the PCI bus, or () if the bus could not be read."""
    return known_or(node.nvidia_pci, ())


def nodes_of_gpus(node: NodeFacts) -> tuple[str, ...]:
    """Return the names of the device files in /dev that belong to one GPU each, such as nvidia0 but not nvidiactl."""
    if isinstance(node.device_nodes, Gap):
        return ()
    return tuple(name for name in node.device_nodes.nvidia if GPU_FILE.fullmatch(name.removeprefix("/dev/")))


def has_nvidia(node: NodeFacts) -> bool:
    """Return whether the node has NVIDIA hardware.

    Raise UnreadableFact if no NVIDIA hardware is visible and a value could not be read.
    """
    if pci_devices(node) or (not isinstance(node.device_nodes, Gap) and node.device_nodes.nvidia):
        return True
    for fact in (node.nvidia_pci, node.device_nodes):
        if isinstance(fact, Gap):
            raise UnreadableFact(f"whether there is an NVIDIA device is unknown: {fact.reason}")
    return False


def not_passed_in(node: NodeFacts) -> bool:
    """Return whether this is a container without GPU device files, although GPUs are on the PCI bus."""
    if isinstance(node.device_nodes, Gap):
        return False
    return is_contained(node) and bool(pci_devices(node)) and not nodes_of_gpus(node)


def bound_drivers(node: NodeFacts) -> frozenset[str]:
    """Return the kernel drivers (such as nvidia, nouveau or vfio-pci) to which the NVIDIA devices are bound."""
    return frozenset(device.driver for device in pci_devices(node) if not isinstance(device.driver, Gap))


def chosen_gpus(node: NodeFacts, case: Case) -> tuple[Gpu, ...]:
    """Return the GPUs to use, by default all GPUs. Raise NotApplicable if the run uses no GPU.

    Raise UnreadableFact if the GPUs can't be listed.
    """
    gpus = gpus_to_use(node, case)
    if not gpus:
        raise NotApplicable(NO_GPU)
    return gpus


def gpus_to_use(node: NodeFacts, case: Case) -> tuple[Gpu, ...]:
    """Return the GPUs to use, by default all GPUs, or () if the node has no GPU.

    Raise UnreadableFact if the GPUs can't be listed.
    """
    if isinstance(node.gpus, Gap) and not has_nvidia(node):
        return ()
    return tuple(gpu for gpu in known(node.gpus) if is_chosen(gpu.nvml_index, case))


def must_have_nvidia(node: NodeFacts) -> None:
    """Raise NotApplicable if there is no NVIDIA hardware."""
    if not has_nvidia(node):
        raise NotApplicable(NO_GPU)


def is_chosen(index: int, case: Case) -> bool:
    """Return whether the run uses the GPU with this NVML index. If no GPUs were chosen, the run uses all GPUs."""
    return not case.gpus or index in case.gpus


def name_of(gpu: Gpu) -> str:
    """Return the model of the GPU, or "GPU" if the model is unknown."""
    return known_or(gpu.name, "GPU")


def subject(node: NodeFacts, gpu: Gpu) -> str:
    """Return the name of a GPU for reports, such as `host GPU 3 (0000:1b:00.0)`."""
    where = "" if isinstance(gpu.bdf, Gap) else f" ({gpu.bdf})"
    return f"{node.host} GPU {gpu.nvml_index}{where}"


def pairs_called(node: NodeFacts, pairs: Sequence[tuple[int, int]]) -> str:
    """Return the name of GPU pairs for reports, such as `host GPU pairs 0-1, 0-2`.

    The word "pairs" is needed, because `GPUs 0-2` would mean three GPUs.
    """
    named = ", ".join(f"{a}-{b}" for a, b in pairs[:6]) + (" ..." if len(pairs) > 6 else "")
    return f"{node.host} GPU {'pair' if len(pairs) == 1 else 'pairs'} {named}"


def must_be_known(values: Iterable[tuple[Gpu, object]], what: str) -> None:
    """Raise UnreadableFact for the first value that could not be read, or NotApplicable if no value is known.

    Call this function after all judgments.
    """
    # `what` names the values in the error message. A value that the driver does not offer for a GPU does not raise
    # UnreadableFact. The call comes after all judgments, so that earlier problems are kept.
    listed = list(values)
    for gpu, value in listed:
        if isinstance(value, Gap) and not value.reason.startswith(NOT_OFFERED):
            raise UnreadableFact(f"the {what} of GPU {gpu.nvml_index} could not be read: {value.reason}")
    if all(isinstance(value, Gap) for _, value in listed):
        raise NotApplicable(f"the driver can't report {what} for these GPUs")


def is_busy(gpu: Gpu) -> bool:
    """Return whether the GPU was in use when preflight read its state."""
    # A process on the GPU proves use, and so does utilization together with used memory. Utilization alone proves
    # nothing. NVML may report utilization right after the driver was loaded, and long after a process was killed in a
    # kernel.
    own_bytes = CONTEXT_BYTES.value if isinstance(gpu.memory_reserved_bytes, int) else IDLE_BYTES
    holds_memory = known_or(gpu.memory_used_bytes, 0) >= own_bytes
    return bool(known_or(gpu.processes, ())) or (
        holds_memory and known_or(gpu.utilization_percent, 0) > IDLE_PERCENT.value
    )


def why_disturbed(gpus: Sequence[Gpu]) -> str:
    """Return a text that names the GPUs that another process used, or "" if no other process used a GPU.

    If the text is not "", the speeds of the run do not count.
    """
    busy = ", ".join(str(gpu.nvml_index) for gpu in gpus if is_busy(gpu))
    return f"GPU {busy} was in use by another process" if busy else ""


def has_switch(gpu: Gpu) -> bool:
    """Return whether an NVLink of the GPU ends at an NVSwitch."""
    return any(map(leads_to_switch, known_or(gpu.nvlinks, ())))


def severity_for_gpus(case: Case) -> Severity:
    """Return the severity of a GPU fault: WARN if the user chose a backend that needs no GPU, else FAIL."""
    return Severity.FAIL if case.wants_gpus else Severity.WARN
