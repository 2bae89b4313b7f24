"""A rank proves that CUDA gave it the GPU that was meant."""

from __future__ import annotations

from typing import Any


def check_device(properties: Any, uuid: str, bdf: str) -> None:
    """Raise RuntimeError unless CUDA's device is the GPU meant; torch < 2.5 gives no uuid, some give no address."""
    if hasattr(properties, "uuid"):
        got, wanted = f"GPU-{str(properties.uuid).removeprefix('GPU-')}", uuid
    elif bdf and hasattr(properties, "pci_bus_id"):
        got = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
        wanted = bdf
    else:
        return  # CUDA_VISIBLE_DEVICES names the GPU by its UUID, which leaves no room for another
    if got != wanted:
        raise RuntimeError(f"CUDA gave {got} where {wanted} was asked for")
