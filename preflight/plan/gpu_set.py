"""Which GPUs a run uses: `--gpus`, or what NVML and CUDA_VISIBLE_DEVICES both allow."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight.errors import UsageError
from preflight.model.facts import Gap, Gpu

MOST_GPUS = 1024


def choose_gpus(text: str | None, visible: str | None, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs to use, in the order asked for.

    `text` is `--gpus`: NVML indices (as nvidia-smi shows them), ranges, UUIDs or unique prefixes of them. `visible` is
    the inherited CUDA_VISIBLE_DEVICES; naming a GPU that it hides is a UsageError.
    """
    allowed = visible_gpus(visible, gpus)
    if text is None:
        return allowed
    chosen: list[Gpu] = []
    for word in text.split(","):
        for gpu in _named(word.strip(), gpus):
            if gpu in chosen:
                raise UsageError(f"--gpus {text}: GPU {gpu.nvml_index} is named twice")
            chosen.append(gpu)
    hidden = [gpu for gpu in chosen if gpu not in allowed]
    if hidden:
        raise UsageError(
            f"--gpus {text}: CUDA_VISIBLE_DEVICES={visible} hides GPU {hidden[0].nvml_index} ({_uuid(hidden[0])}); "
            "unset it or name other GPUs"
        )
    return tuple(chosen)


def _named(word: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    by_index = {gpu.nvml_index: gpu for gpu in gpus}
    span = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", word, re.ASCII)
    if span:
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first or last - first >= MOST_GPUS:
            raise UsageError(f"--gpus: {word} is no range of GPUs; write the smaller index first, as in 0-3")
        missing = [index for index in range(first, last + 1) if index not in by_index]
        if missing:
            have = ", ".join(str(index) for index in sorted(by_index)) or "none"
            raise UsageError(f"--gpus: there is no GPU {missing[0]}; NVML lists {have}")
        return tuple(by_index[index] for index in range(first, last + 1))
    return (_by_uuid(word, gpus),)


def _by_uuid(word: str, gpus: Sequence[Gpu]) -> Gpu:
    matching = [gpu for gpu in gpus if word.startswith("GPU-") and _uuid(gpu).startswith(word)]
    if len(matching) != 1:
        what = "names no GPU" if not matching else f"is the start of {len(matching)} UUIDs"
        raise UsageError(f"--gpus: {word!r} {what}; give indices, ranges (0-3) or UUIDs as `nvidia-smi -L` shows them")
    return matching[0]


def _uuid(gpu: Gpu) -> str:
    return "" if isinstance(gpu.uuid, Gap) else gpu.uuid


def visible_gpus(visible: str | None, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return what CUDA would see: unset is all, empty is none, and an invalid entry cuts the list there (facts 6.4)."""
    if visible is None:
        return tuple(gpus)
    seen: list[Gpu] = []
    by_index = {str(gpu.nvml_index): gpu for gpu in gpus}
    for word in (part.strip() for part in visible.split(",")):
        prefixed = [gpu for gpu in gpus if word.startswith("GPU-") and _uuid(gpu).startswith(word)]
        gpu = by_index.get(word) or (prefixed[0] if len(prefixed) == 1 else None)
        if gpu is None:
            break
        if gpu in seen:
            return ()
        seen.append(gpu)
    return tuple(seen)
