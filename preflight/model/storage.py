"""The measured speed of a directory, used by the ranks of one node or by all nodes."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.model.gap import Gap
from preflight.model.trial import NOT_MEASURED

NOTHING = Gap("nothing was tried")
NO_DIRECTORY = Gap("no --checkpoint-dir was given, or there are several nodes")


@dataclass(frozen=True, slots=True)
class StorageSpeed:
    """The speed of reads and writes in a directory, for one rank alone and for all ranks together.

    The measurements avoid the page cache.
    """

    directory: str  # the real path: symbolic links are followed
    writers: int  # ranks that wrote together
    file_bytes: int  # what each wrote at least; 0 where nothing could be measured
    write_one_bytes_per_s: float | Gap
    write_all_bytes_per_s: float | Gap
    read_one_bytes_per_s: float | Gap
    read_all_bytes_per_s: float | Gap
    took_s: float
    is_direct: bool | Gap = NOTHING  # O_DIRECT; False: fsync and POSIX_FADV_DONTNEED
    file_system: str | Gap = NOTHING  # "ext4", "nfs4", "lustre"; tmpfs is memory, and lost with the node


@dataclass(frozen=True, slots=True)
class NodeStorage:
    """One node's measurement of the directory that all nodes write to."""

    node_rank: int
    host: str
    reads_of: int  # the node whose file it read
    write_problem: str = ""
    read_problem: str = ""
    is_missing: bool = False  # the other node's file was not there
    is_stale: bool = False  # the other node's file had its old content
    is_read_only: bool = False
    appeared_after_s: float = 0.0  # after which the other node's file appeared here
    write_gb_s: float | Gap = NOT_MEASURED
    read_gb_s: float | Gap = NOT_MEASURED


@dataclass(frozen=True, slots=True)
class SharedStorage:
    """The measured speed of a directory to which all nodes wrote at the same time.

    Each node also read a file that another node wrote.
    """

    directory: str
    file_bytes: int  # of each node
    nodes: tuple[NodeStorage, ...]
    write_together_gb_s: float | Gap
    read_together_gb_s: float | Gap
