"""Choose the GPUs of a run: the GPUs in `--gpus`, or all GPUs that NVML lists and CUDA_VISIBLE_DEVICES allows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from preflight.errors import UsageError
from preflight.model.facts import ContainerKind, Gap, Gpu, NodeFacts, inherited_value
from preflight.model.gap import known_or
from preflight.model.gpu import GPU_FILE, Mode, gpu_known_by

MOST_GPUS = 1024


def chosen_gpus(node: NodeFacts, gpus: str | None) -> tuple[int, ...]:
    """Return the NVML indices of the GPUs to examine, or () if `gpus` is None and there is no GPU.

    If NVML can't be read, the numbers are positions in the order of the PCI bus.
    """
    # `gpus` is the value of `--gpus`.
    listed = numbered_gpus(node)
    if not listed and gpus is None:
        return ()
    visible = inherited_value(node, "CUDA_VISIBLE_DEVICES")
    return tuple(gpu.nvml_index for gpu in choose_gpus(gpus, visible, listed, node))


def numbered_gpus(node: NodeFacts) -> tuple[Gpu, ...]:
    """Return the GPUs that NVML lists. If NVML can't be read, return the GPUs on the PCI bus."""
    if isinstance(node.gpus, tuple):
        return node.gpus
    devices = () if isinstance(node.nvidia_pci, Gap) else node.nvidia_pci
    return tuple(gpu_known_by(place, node.gpus.reason, bdf=each.bdf) for place, each in enumerate(devices))


def choose_gpus(
    text: str | None, visible: str | None, gpus: Sequence[Gpu], node: NodeFacts | None = None
) -> tuple[Gpu, ...]:
    """Return the GPUs to use, in the requested order, from `text` (the value of `--gpus`).

    Raise UsageError if a GPU is hidden by `visible`, is split into MIG instances, or can't be opened by this process.
    """
    # `text` has NVML indices, ranges, UUIDs or unique prefixes of UUIDs. `visible` is the inherited
    # CUDA_VISIBLE_DEVICES.
    closed = {} if node is None else closed_gpus(node)
    allowed = visible_gpus(visible, gpus if visible is not None else _given(gpus, closed, node))
    if text is None:
        return allowed
    chosen: list[Gpu] = []
    for word in text.split(","):
        for gpu in _named(word.strip(), gpus, closed, node):
            if gpu in chosen:
                raise UsageError(f"--gpus {text}: GPU {gpu.nvml_index} is named twice")
            if gpu.mig_mode is Mode.ENABLED:
                raise UsageError(
                    f"--gpus {text}: GPU {gpu.nvml_index} is cut into MIG instances, on which NCCL does not run; "
                    f"`nvidia-smi -i {gpu.nvml_index} -mig 0` or name other GPUs"
                )
            chosen.append(gpu)
    hidden = [gpu for gpu in chosen if gpu not in allowed]
    if hidden:
        named = f"GPU {hidden[0].nvml_index} ({known_or(hidden[0].uuid, '')})"
        raise UsageError(f"--gpus {text}: CUDA_VISIBLE_DEVICES={visible} hides {named}; unset it or name other GPUs")
    return tuple(chosen)


def _given(gpus: Sequence[Gpu], closed: Mapping[int, str], node: NodeFacts | None) -> Sequence[Gpu]:
    """Return the GPUs that CUDA counts.

    In a container, CUDA counts only the GPUs that this process can open. Elsewhere, all GPUs count, and a GPU that
    can't be opened is a fault.
    """
    system = None if node is None or isinstance(node.system, Gap) else node.system
    is_contained = system is not None and known_or(system.container, ContainerKind.NONE) is not ContainerKind.NONE
    return [gpu for gpu in gpus if gpu.nvml_index not in closed] or gpus if is_contained else gpus


def closed_gpus(node: NodeFacts) -> dict[int, str]:
    """Return the GPUs that this process can't open, as {NVML index: reason}."""
    # NVML can't identify a closed GPU, or the GPU has no device file in /dev. For example, a cgroup can withhold the
    # file.
    unread = () if isinstance(node.driver, Gap) else node.driver.unreadable_gpus
    closed = {each.nvml_index: each.reason for each in unread}
    names = () if isinstance(node.device_nodes, Gap) else node.device_nodes.nvidia
    if any(GPU_FILE.fullmatch(name) for name in names):
        for gpu in known_or(node.gpus, ()):
            if isinstance(gpu.minor, int) and f"nvidia{gpu.minor}" not in names:
                closed[gpu.nvml_index] = (
                    f"/dev/nvidia{gpu.minor} is not there: a cgroup or container does not pass it in"
                )
    return closed


def _named(word: str, gpus: Sequence[Gpu], closed: Mapping[int, str], node: NodeFacts | None) -> tuple[Gpu, ...]:
    by_index = {gpu.nvml_index: gpu for gpu in gpus}
    span = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word, re.ASCII)
    if span:
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first or last - first >= MOST_GPUS:
            raise UsageError(f"--gpus: {word} is no range of GPUs; write the smaller index first, as in 0-3")
        for index in range(first, last + 1):
            if index in closed:
                raise UsageError(f"--gpus: GPU {index} can't be opened by this process: {closed[index]}")
            if index not in by_index:
                raise UsageError(_missing(index, gpus, node))
        return tuple(by_index[index] for index in range(first, last + 1))
    matching = tuple(_by_start(word, gpus))
    if len(matching) != 1:
        what = "names no GPU" if not matching else f"is the start of {len(matching)} UUIDs"
        raise UsageError(f"--gpus: {word!r} {what}; give indices, ranges (0-3) or UUIDs as `nvidia-smi -L` shows them")
    if matching[0].nvml_index in closed:
        raise UsageError(f"--gpus: {word} can't be opened by this process: {closed[matching[0].nvml_index]}")
    return matching


def _missing(index: int, gpus: Sequence[Gpu], node: NodeFacts | None) -> str:
    have = ", ".join(str(gpu.nvml_index) for gpu in gpus) or "none"
    on_bus = 0 if node is None else len(known_or(node.nvidia_pci, ()))
    hidden = f"; {on_bus} are on the PCI bus, so a cgroup (Slurm, a container) or a fault hides the others"
    return f"--gpus: there is no GPU {index}; NVML lists {have}{hidden if on_bus > len(gpus) else ''}"


def _by_start(word: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    return [gpu for gpu in gpus if word.startswith("GPU-") and known_or(gpu.uuid, "").startswith(word)]


def visible_gpus(visible: str | None, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA would show, in CUDA's order.

    `visible` is the value of CUDA_VISIBLE_DEVICES, or None for all GPUs.
    """
    # CUDA's rules are in docs/dev/nccl-facts.md, section 6.4. If `visible` is empty, no GPU is returned. An unknown
    # entry ends the list. With a repeated entry, no GPU is returned. The first entry decides whether the entries are
    # numbers or UUIDs.
    if visible is None:
        return tuple(gpus)
    named_by = _by_start if visible.lstrip().startswith("GPU-") else _by_ordinal
    listed: list[Gpu] = []
    for word in visible.split(","):
        named = named_by(word.strip(), gpus)
        if len(named) != 1:
            break
        if named[0] in listed:
            return ()
        listed += named
    return tuple(listed)


def _by_ordinal(word: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    digits = re.match(r"\+?0*(\d{1,6})(?!\d)", word, re.ASCII)
    return [gpu for gpu in gpus if digits and gpu.nvml_index == int(digits[1])]
