"""The variables that give the job the GPUs of `--gpus`, and no others."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight.model.facts import Gap, Gpu, known

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def gpu_env(
    asked: bool, visible: str | None, chosen: Sequence[Gpu], listed: Sequence[Gpu], some_closed: bool
) -> tuple[tuple[str, str], ...]:
    """Return what to export where `--gpus` named some of the GPUs and no scheduler has set CUDA_VISIBLE_DEVICES.

    Integers, which every framework reads, where they are proved to mean the same GPUs: CUDA counts in order of bus
    addresses, and each rank has seen that the GPU of its UUID is there. UUIDs where an address is not known, or where
    NVML lists GPUs that CUDA can't open and so does not count.
    """
    if not asked or visible is not None or not 0 < len(chosen) < len(listed):
        return ()
    places = None if some_closed else cuda_places(listed)
    names = [known(gpu.uuid) if places is None else str(places[gpu.nvml_index]) for gpu in chosen]
    return ((VISIBLE, ",".join(names)), ORDER)


def cuda_places(listed: Sequence[Gpu]) -> dict[int, int] | None:
    """Return CUDA's number by nvml_index under PCI_BUS_ID; None where an address is not known or given twice."""
    addresses = {gpu.bdf for gpu in listed}
    if any(isinstance(address, Gap) for address in addresses) or len(addresses) < len(listed):
        return None
    ordered = sorted(listed, key=lambda gpu: [int(part, 16) for part in re.split("[.:]", known(gpu.bdf))])
    return {gpu.nvml_index: place for place, gpu in enumerate(ordered)}
