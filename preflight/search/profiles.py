"""The message sizes, the number of repetitions and the time limits of each profile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from preflight.model.collective import Collective
from preflight.model.profile import COLLECTIVES, GIB, MIB, Profile, Timing
from preflight.model.run_spec import Measure, StageLimits

NAMED_CPU_LARGEST, CPU_LARGEST, GPU_LARGEST = MIB, 16 * MIB, 4 * GIB
# Send and receive buffers, the expected values, and what comparing them needs; per rank.
BUFFERS_PER_SIZE = 5
LARGEST = 2  # half of the verified calls are of this many of the largest sizes
DUEL_TIMING: Timing = (0.1, 5, 20, 1)


def sizes(
    profile: Profile, on_gpu: bool, free_bytes_per_rank: int, asked: tuple[int, ...] = ()
) -> tuple[int, ...]:  # fmt: skip
    """Return the message sizes in bytes that fit into a rank's free memory, in ascending order.

    Return (8,) if no size fits.
    """
    # If `asked` is not empty, `asked` replaces the profile's sizes.
    largest = free_bytes_per_rank // BUFFERS_PER_SIZE
    return tuple(size for size in asked or _wanted(profile, on_gpu) if size <= largest) or (8,)


def sizes_without_room(
    profile: Profile, on_gpu: bool, free_bytes_per_rank: int, asked: tuple[int, ...] = ()
) -> tuple[int, ...]:  # fmt: skip
    """Return the message sizes in bytes that do not fit into a rank's free memory, in ascending order.

    If `asked` is not empty, `asked` replaces the profile's sizes.
    """
    tried = sizes(profile, on_gpu, free_bytes_per_rank, asked)
    return tuple(size for size in asked or _wanted(profile, on_gpu) if size not in tried)


def _wanted(profile: Profile, on_gpu: bool) -> tuple[int, ...]:
    if named := profile.effort.sizes_bytes:
        return tuple(size for size in named if on_gpu or size <= NAMED_CPU_LARGEST)
    end = GPU_LARGEST if on_gpu else CPU_LARGEST
    return tuple(sorted({8 * 4**k for k in range(16) if 8 * 4**k <= end} | {end}))


def cure_sizes(all_sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes for testing a workaround: the smallest, the size nearest to 1 MiB, and the largest."""
    nearest = min(all_sizes, key=lambda size: abs(math.log(size / MIB)))
    return tuple(sorted({min(all_sizes), nearest, max(all_sizes)}))


def measures(
    timing: Timing, for_sizes: Sequence[int], collectives: Sequence[Collective] = COLLECTIVES
) -> tuple[Measure, ...]:
    """Return a measurement for each collective at each size. All measurements have the timing `timing`."""
    return tuple(Measure(collective, size, *timing) for size in for_sizes for collective in collectives)


def trial_measures(
    profile: Profile, for_sizes: Sequence[int], collectives: Sequence[Collective] = COLLECTIVES
) -> tuple[Measure, ...]:
    """Return the measurements of a test run of this profile.

    At least as many calls are verified as the profile's `verified_calls` says. Half of these calls are at the two
    largest sizes.
    """
    budget_s, fewest, most, least = profile.effort.timing
    found: list[Measure] = []
    for size in for_sizes:
        sharing = for_sizes[-LARGEST:] if size in for_sizes[-LARGEST:] else for_sizes[:-LARGEST]
        calls = profile.effort.verified_calls / (2 if len(for_sizes) > LARGEST else 1)
        verified = max(least, math.ceil(calls / (len(sharing) * len(collectives))))
        found += measures((budget_s, max(fewest, verified), most, verified), (size,), collectives)
    return tuple(found)


def stage_limits(backend: str, override_s: float | None, nodes: int = 1, ranks_per_cpu: float = 1.0) -> StageLimits:
    """Return the time limit of each stage of a test run.

    If `override_s` is given, every stage has this limit in seconds. `ranks_per_cpu` is the number of ranks that compute
    on each processor.
    """
    # NCCL's own retries end before the limit, because NCCL's error is better evidence than a killed process
    # (docs/dev/nccl-facts.md, sections 1.2 and 1.3). If `ranks_per_cpu` is above 1, the limits without NCCL are longer,
    # because ranks wait for each other.
    if override_s is not None:
        return StageLimits(override_s, override_s, override_s, override_s, stretches=False)
    if backend == "nccl":
        return StageLimits(60.0, init_s=90.0, first_s=15.0 if nodes == 1 else 90.0, timed_s=15.0, stretches=True)
    times = max(1.0, ranks_per_cpu)
    return StageLimits(30.0 * times, init_s=10.0 * times, first_s=10.0 * times, timed_s=15.0 * times, stretches=True)
