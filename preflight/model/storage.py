"""How fast a checkpoint directory was when it was tried."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.gap import Gap

NOTHING = Gap("nothing was tried")
NO_DIRECTORY = Gap("no --checkpoint-dir was given, or there are several nodes")


@dataclass(frozen=True, slots=True)
class StorageSpeed:
    """Bytes per second with fsync and without the page cache's help; the `all` figures are sums over the writers."""

    directory: str  # the real path: symbolic links are followed
    writers: int  # ranks that wrote together
    file_bytes: int  # what each wrote at least; 0 where nothing could be measured
    write_one_bytes_per_s: float | Gap
    write_all_bytes_per_s: float | Gap
    read_one_bytes_per_s: float | Gap
    read_all_bytes_per_s: float | Gap
    took_s: float
    is_direct: bool | Gap = NOTHING  # O_DIRECT; else fsync, and the page cache was told to forget
    file_system: str | Gap = NOTHING  # "ext4", "nfs4", "lustre"; tmpfs is memory, and lost with the node
