"""Read /dev/shm, where NCCL and data loaders put their shared segments."""

from __future__ import annotations

from preflight.model.facts import ShmFacts
from preflight.system.machine import Machine


def probe_shm(machine: Machine) -> ShmFacts:
    """Return the size of /dev/shm and the NCCL files that crashed processes left there."""
    room = machine.ask("shm_statvfs")
    stale = [segment for segment in machine.ask("shm_mapped") if segment["stale"]]
    return ShmFacts(
        size_bytes=room["size_bytes"],
        free_bytes=room["free_bytes"],
        stale_nccl_files=tuple(segment["name"] for segment in stale),
        stale_nccl_bytes=sum(segment["size_bytes"] for segment in stale),
    )
