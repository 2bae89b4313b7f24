"""Which GPUs a run uses: `--gpus`, or what NVML and CUDA_VISIBLE_DEVICES both allow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from preflight.errors import UsageError
from preflight.model.facts import Gap, Gpu, NodeFacts
from preflight.model.gpu import Mode

MOST_GPUS = 1024
GPU_NODE = re.compile(r"nvidia\d{1,6}", re.ASCII)


def choose_gpus(
    text: str | None, visible: str | None, gpus: Sequence[Gpu], node: NodeFacts | None = None
) -> tuple[Gpu, ...]:
    """Return the GPUs to use, in the order asked for.

    `text` is `--gpus`: NVML indices (as nvidia-smi shows them), ranges, UUIDs or unique prefixes of them. `visible` is
    the inherited CUDA_VISIBLE_DEVICES. Naming a GPU that it hides, that is cut into MIG instances or that this process
    may not open is a UsageError; `node` tells the latter.
    """
    closed = {} if node is None else closed_gpus(node)
    allowed = visible_gpus(visible, gpus)
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
        raise UsageError(
            f"--gpus {text}: CUDA_VISIBLE_DEVICES={visible} hides GPU {hidden[0].nvml_index} ({_uuid(hidden[0])}); "
            "unset it or name other GPUs"
        )
    return tuple(chosen)


def closed_gpus(node: NodeFacts) -> dict[int, str]:
    """Return which GPUs this process can't open, by nvml_index, and why: NVML counts them, or lists what /dev lacks.

    A cgroup (Slurm, a container) lets NVML list a GPU whose device file it keeps back.
    """
    unread = () if isinstance(node.driver, Gap) else node.driver.unreadable_gpus
    closed = {each.nvml_index: each.reason for each in unread}
    names = () if isinstance(node.device_nodes, Gap) else node.device_nodes.nvidia
    if any(GPU_NODE.fullmatch(name) for name in names) and not isinstance(node.gpus, Gap):
        for gpu in node.gpus:
            if isinstance(gpu.minor, int) and f"nvidia{gpu.minor}" not in names:
                closed[gpu.nvml_index] = f"/dev/nvidia{gpu.minor} is not there: a cgroup or container keeps it back"
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
    named = _by_uuid(word, gpus)
    if named.nvml_index in closed:
        raise UsageError(f"--gpus: {word} can't be opened by this process: {closed[named.nvml_index]}")
    return (named,)


def _missing(index: int, gpus: Sequence[Gpu], node: NodeFacts | None) -> str:
    have = ", ".join(str(gpu.nvml_index) for gpu in gpus) or "none"
    on_bus = 0 if node is None or isinstance(node.nvidia_pci, Gap) else len(node.nvidia_pci)
    hidden = f"; {on_bus} are on the PCI bus, so a cgroup (Slurm, a container) or a fault hides the others"
    return f"--gpus: there is no GPU {index}; NVML lists {have}{hidden if on_bus > len(gpus) else ''}"


def _by_uuid(word: str, gpus: Sequence[Gpu]) -> Gpu:
    matching = [gpu for gpu in gpus if word.startswith("GPU-") and _uuid(gpu).startswith(word)]
    if len(matching) != 1:
        what = "names no GPU" if not matching else f"is the start of {len(matching)} UUIDs"
        raise UsageError(f"--gpus: {word!r} {what}; give indices, ranges (0-3) or UUIDs as `nvidia-smi -L` shows them")
    return matching[0]


def _uuid(gpu: Gpu) -> str:
    return "" if isinstance(gpu.uuid, Gap) else gpu.uuid


def inherited_visible(node: NodeFacts) -> str | None:
    """Return the inherited CUDA_VISIBLE_DEVICES, None where it is not set or not known."""
    variables = () if isinstance(node.environment, Gap) else node.environment
    return next((each.value for each in variables if each.name == "CUDA_VISIBLE_DEVICES"), None)


def visible_gpus(visible: str | None, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return what CUDA would see (facts 6.4).

    Unset is all, empty is none, an entry that names nothing cuts the list there, one that comes twice leaves none, and
    the first entry decides whether all are numbers (as strtoul reads them: `1gpu2` is 1) or all are UUIDs.
    """
    if visible is None:
        return tuple(gpus)
    by_uuid = visible.lstrip().startswith("GPU-")
    seen: list[Gpu] = []
    for word in visible.split(","):
        gpu = _only_by_uuid(word.strip(), gpus) if by_uuid else _by_ordinal(word.strip(), gpus)
        if gpu is None:
            break
        if gpu in seen:
            return ()
        seen.append(gpu)
    return tuple(seen)


def _only_by_uuid(word: str, gpus: Sequence[Gpu]) -> Gpu | None:
    matching = [gpu for gpu in gpus if word.startswith("GPU-") and _uuid(gpu).startswith(word)]
    return matching[0] if len(matching) == 1 else None


def _by_ordinal(word: str, gpus: Sequence[Gpu]) -> Gpu | None:
    digits = re.match(r"\+?0*(\d{1,6})(?!\d)", word, re.ASCII)
    return next((gpu for gpu in gpus if digits and gpu.nvml_index == int(digits[1])), None)
