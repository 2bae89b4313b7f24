"""How much each profile measures: sizes, repetitions and stage limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from preflight.model.collective import Collective
from preflight.model.profile import COLLECTIVES, GIB, MIB, Profile, Timing
from preflight.model.run_spec import Measure, StageLimits

NAMED_CPU_LARGEST, CPU_LARGEST, GPU_LARGEST = MIB, 16 * MIB, 4 * GIB
# Send and receive buffers, the expected values, and what comparing them needs; per rank.
BUFFERS_PER_SIZE = 5
DUEL_TIMING: Timing = (0.1, 5, 20, 1)


def sizes(
    profile: Profile, on_gpu: bool, free_bytes_per_rank: int, asked: tuple[int, ...] = ()
) -> tuple[int, ...]:  # fmt: skip
    """Return the sizes in bytes, ascending, bounded by what fits into the memory that is free for one rank.

    Those that were asked for come in the place of the profile's.
    """
    largest = free_bytes_per_rank // BUFFERS_PER_SIZE
    return tuple(size for size in asked or _wanted(profile, on_gpu) if size <= largest) or (8,)


def sizes_without_room(
    profile: Profile, on_gpu: bool, free_bytes_per_rank: int, asked: tuple[int, ...] = ()
) -> tuple[int, ...]:  # fmt: skip
    """Return the sizes that are left out because memory ran out."""
    return (asked or _wanted(profile, on_gpu))[len(sizes(profile, on_gpu, free_bytes_per_rank, asked)) :]


def _wanted(profile: Profile, on_gpu: bool) -> tuple[int, ...]:
    if named := profile.effort.sizes_bytes:
        return tuple(size for size in named if on_gpu or size <= NAMED_CPU_LARGEST)
    end = GPU_LARGEST if on_gpu else CPU_LARGEST
    return tuple(sorted({8 * 4**k for k in range(16) if 8 * 4**k <= end} | {end}))


def cure_sizes(all_sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes that show whether settings work: NCCL's protocols differ by size, so small ones are among them.

    The smallest, the one nearest to 1 MiB, and the largest, whose speed the recommendation names.
    """
    nearest = min(all_sizes, key=lambda size: abs(math.log(size / MIB)))
    return tuple(sorted({min(all_sizes), nearest, max(all_sizes)}))


def measures(
    timing: Timing, for_sizes: Sequence[int], collectives: Sequence[Collective] = COLLECTIVES
) -> tuple[Measure, ...]:
    """Return what is timed, size by size."""
    return tuple(Measure(collective, size, *timing) for size in for_sizes for collective in collectives)


def trial_measures(
    profile: Profile, for_sizes: Sequence[int], collectives: Sequence[Collective] = COLLECTIVES
) -> tuple[Measure, ...]:
    """Return what a trial of this profile times; it verifies at least as many calls as the profile asks for."""
    budget_s, fewest, most, verified = profile.effort.timing
    verified = max(verified, math.ceil(profile.effort.verified_calls / (len(for_sizes) * len(collectives))))
    return measures((budget_s, max(fewest, verified), most, verified), for_sizes, collectives)


def stage_limits(backend: str, override_s: float | None, nodes: int = 1, ranks_per_cpu: float = 1.0) -> StageLimits:
    """Return how long each stage may take. NCCL's own retries come first: its error is better evidence than our kill.

    NCCL retries sockets for about 60 s and InfiniBand for 30 s and more (facts 1.2, 1.3); gloo has no such thing. On
    one node the first collective connects by P2P or shared memory, in seconds; NCCL's start, which may take 45 s, is
    `init`. So a hang and its cure fit into the deadline of `quick`. Ranks that compute on the CPU and are more than it
    has wait for each other: each limit is that many times as long.
    Once a trial has shown what the first takes, five times that may be more (trial/rank/step.py).
    """
    if override_s is not None:
        return StageLimits(override_s, override_s, override_s, override_s, stretches=False)
    if backend == "nccl":
        return StageLimits(60.0, init_s=90.0, first_s=15.0 if nodes == 1 else 90.0, timed_s=15.0, stretches=True)
    times = max(1.0, ranks_per_cpu)
    return StageLimits(30.0 * times, init_s=10.0 * times, first_s=10.0 * times, timed_s=15.0 * times, stretches=True)
