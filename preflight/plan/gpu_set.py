"""Which GPUs a run uses: `--gpus`, or what NVML and CUDA_VISIBLE_DEVICES both allow."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight.errors import UsageError
from preflight.model.facts import Gpu

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
            f"--gpus {text}: CUDA_VISIBLE_DEVICES={visible} hides GPU {hidden[0].nvml_index} ({hidden[0].uuid}); "
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
    matching = [gpu for gpu in gpus if word.startswith("GPU-") and gpu.uuid.startswith(word)]
    if len(matching) != 1:
        what = "names no GPU" if not matching else f"is the start of {len(matching)} UUIDs"
        raise UsageError(f"--gpus: {word!r} {what}; give indices, ranges (0-3) or UUIDs as `nvidia-smi -L` shows them")
    return matching[0]


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
    matching = [gpu for gpu in gpus if word.startswith("GPU-") and gpu.uuid.startswith(word)]
    return matching[0] if len(matching) == 1 else None


def _by_ordinal(word: str, gpus: Sequence[Gpu]) -> Gpu | None:
    digits = re.match(r"\+?0*(\d{1,6})(?!\d)", word, re.ASCII)
    return next((gpu for gpu in gpus if digits and gpu.nvml_index == int(digits[1])), None)
