"""How fast a checkpoint directory was when it was tried."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.gap import Gap


@dataclass(frozen=True, slots=True)
class StorageSpeed:
    """Bytes per second with fsync and without the page cache's help; the `all` figures are sums over the writers."""

    directory: str
    writers: int  # ranks that wrote together
    file_bytes: int  # what each wrote
    write_one_bytes_per_s: float | Gap
    write_all_bytes_per_s: float | Gap
    read_one_bytes_per_s: float | Gap
    read_all_bytes_per_s: float | Gap
    took_s: float
