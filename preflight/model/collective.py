"""Collectives and their bandwidth formulas, as in nccl-tests (doc/PERFORMANCE.md)."""

from __future__ import annotations

from preflight.model.word import Word


class Collective(Word):
    """A collective operation. The value of a member is the operation's name in all outputs."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"


def bus_factor(collective: Collective, world_size: int) -> float:
    """Return the ratio of bus bandwidth to algorithm bandwidth for `world_size` ranks."""
    n = world_size
    match collective:
        case Collective.ALL_REDUCE:
            return 2 * (n - 1) / n
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.ALL_TO_ALL:
            return (n - 1) / n
        case Collective.BROADCAST:
            return 1.0


def algbw_gb_s(size_bytes: int, time_s: float) -> float:
    """Return the algorithm bandwidth in GB/s (1e9 bytes/s): `size_bytes` / `time_s`.

    `size_bytes` is the size of one rank's buffer. For all_gather and reduce_scatter, `size_bytes` is the total size,
    which is n times one rank's share.
    """
    return size_bytes / time_s / 1e9


def busbw_gb_s(collective: Collective, size_bytes: int, time_s: float, world_size: int) -> float:
    """Return the bus bandwidth in GB/s of a collective that took `time_s` seconds.

    The bus bandwidth can be compared with a link rate. `size_bytes` is as in `algbw_gb_s`.
    """
    return algbw_gb_s(size_bytes, time_s) * bus_factor(collective, world_size)


def element_count(collective: Collective, nominal_bytes: int, world_size: int, element_bytes: int) -> int:
    """Return the number of elements in a buffer of about `nominal_bytes`.

    For all_gather, reduce_scatter and all_to_all, the number is a multiple of `world_size`.
    """
    match collective:
        case Collective.ALL_REDUCE | Collective.BROADCAST:
            return max(1, nominal_bytes // element_bytes)
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER | Collective.ALL_TO_ALL:
            return max(1, nominal_bytes // (element_bytes * world_size)) * world_size
