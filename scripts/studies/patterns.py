"""Corrupt what a collective delivers in twelve ways, and count which of them a verified call notices.

The collectives are computed: no process group is needed, and a sum is made in a random order of the ranks. Groups of up
to 16 ranks receive as they would; of 1,024 ranks one receives.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from preflight.model.collective import Collective
from preflight.model.profile import GIB, MIB, Profile
from preflight.search.profiles import sizes, trial_measures
from preflight.trial.rank.buffers import ELEMENT_BYTES, Buffers, Ranks, allocate
from preflight.trial.rank.verify import SUMS, count_wrong, sent_by

CPU = torch.device("cpu")
SIZES = (8, 64, 4096, 256 << 10, 16 * MIB, GIB)
LEAST_BYTES = 4096  # from here on a corruption of every word is always noticed
Words = torch.Tensor  # of 32 bits


@dataclass(frozen=True, slots=True)
class Corruption:
    """What happens to the received words, and from how many bytes on it is always noticed."""

    name: str
    act: Callable[[Words, random.Random], object]
    always_from: int = LEAST_BYTES


def one(words: Words, chance: random.Random) -> Words:
    """Return a view of one word."""
    place = chance.randrange(words.numel())
    return words[place : place + 1]


def lowest_byte(words: Words) -> Words:
    """Return a view of the lowest byte of every word, which is each fourth byte."""
    return words.view(torch.uint8)[::4]


CORRUPTIONS = (
    Corruption("one bit of one word", lambda w, c: one(w, c).bitwise_xor_(1 << c.randrange(31)), 0),
    Corruption("the sign of one word", lambda w, c: one(w, c).bitwise_xor_(-(1 << 31)), 0),
    Corruption("one word is NaN", lambda w, c: one(w, c).fill_(0x7FC00000), 0),
    Corruption("one word was never written", lambda w, c: one(w, c).zero_(), 64),
    Corruption("all signs are lost", lambda w, _: w.bitwise_and_((1 << 31) - 1)),
    Corruption("the lowest bit of each word is 0", lambda w, _: w.bitwise_and_(-2)),
    Corruption("each fourth byte is lost", lambda w, _: lowest_byte(w).zero_()),
    Corruption("one lane is stuck at 0", lambda w, c: w.bitwise_and_(~(1 << c.randrange(23)))),
    Corruption("one lane is stuck at 1", lambda w, c: w.bitwise_or_(1 << c.randrange(23))),
    Corruption("nothing moved", lambda w, _: w.zero_(), 64),
    Corruption("the last half was not written", lambda w, _: w[w.numel() // 2 :].zero_(), 64),
    Corruption("all is moved by one word", lambda w, _: w.copy_(w.roll(1)), 64),
)


def delivered(collective: Collective, ranks: Ranks, received: torch.Tensor, order: list[int]) -> None:
    """Write what the collective gives this rank, with salt 0; a sum is made in this order."""
    n, count = ranks.world_size, received.numel()
    words = received.view(torch.int32)

    def piece(rank: int, first: int, many: int) -> torch.Tensor:
        period = sent_by(rank, collective, ranks, 0)
        first %= period.numel()
        return period.repeat(2 + many // period.numel())[first : first + many]

    match collective:
        case Collective.ALL_REDUCE | Collective.REDUCE_SCATTER:
            first = 0 if collective is Collective.ALL_REDUCE else ranks.rank * count
            received.zero_()
            for rank in order:
                received.add_(piece(rank, first, count))
        case Collective.BROADCAST:
            words.copy_(piece(0, 0, count))
        case Collective.ALL_GATHER | Collective.ALL_TO_ALL:
            share = count // n
            first = 0 if collective is Collective.ALL_GATHER else ranks.rank * share
            for rank in range(n):
                words[rank * share : (rank + 1) * share].copy_(piece(rank, first, share))


def trials(is_small: bool) -> Iterator[tuple[Collective, int, int]]:
    """Yield collective, bytes and ranks of each trial."""
    for collective in Collective:
        for count in (3,) if is_small else (2, 3, 4, 8, 16):
            for size in SIZES[:4] if is_small else SIZES[:5]:
                yield collective, size, count
        # A receiver of 1,024 ranks, and one of the largest size.
        yield collective, 256 << 10 if is_small else 4 * MIB, 64 if is_small else 1024
        if not is_small:
            yield collective, SIZES[-1], 2


def study(is_small: bool) -> Iterator[tuple[str, bool]]:
    """Yield the healthy calls, each corruption with its share noticed, and the chance that a call is looked at."""
    chance = random.Random(11)
    noticed = {each.name: [0, 0, 0, 0] for each in CORRUPTIONS}  # where it is promised: seen, of; below: seen, of
    healthy = wrong = 0
    for collective, size, count in trials(is_small):
        ranks = Ranks(chance.randrange(count), count, CPU)
        buffers = allocate(collective, size, ranks)
        order = chance.sample(range(count), count)
        healthy, wrong = healthy + 1, wrong + verdict(collective, buffers, ranks, order, None, chance)
        for each in CORRUPTIONS if size <= 16 * MIB else CORRUPTIONS[:1]:
            seen = verdict(collective, buffers, ranks, order, each, chance)
            is_promised = buffers.receive.numel() * ELEMENT_BYTES >= each.always_from * (
                count if collective in SUMS else 1
            )
            at = 0 if is_promised else 2
            noticed[each.name][at] += seen
            noticed[each.name][at + 1] += 1
    yield f"healthy calls, sums in a random order: {wrong} of {healthy} called wrong", wrong == 0
    yield f"{'corruption of a verified call':<36}{'noticed where it must be':>26}{'in smaller messages':>22}", True
    for name, (seen, of, seen_below, of_below) in noticed.items():
        yield f"{name:<36}{f'{seen} of {of}':>26}{f'{seen_below} of {of_below}':>22}", seen == of
    for profile, least, rate, promised in (
        (Profile.STANDARD, 0, 0.05, 0.99),
        (Profile.STANDARD, 64 * MIB, 0.05, 0.90),
        (Profile.QUICK, 0, 0.05, 0.70),
        (Profile.QUICK, 32 * MIB, 0.05, 0.45),
    ):
        measures = trial_measures(profile, sizes(profile, True, 64 * GIB))
        calls = sum(each.verified_calls for each in measures if each.nominal_bytes >= least)
        share = 1 - (1 - rate) ** calls
        where = f"of {least // MIB} MiB and more " if least else ""
        line = f"{profile.value}: wrong in {rate:.0%} of the calls {where}is noticed with {share:.0%} ({calls} calls)"
        yield line, share >= promised


def verdict(
    collective: Collective, buffers: Buffers, ranks: Ranks, order: list[int], kind: Corruption | None,
    chance: random.Random,
) -> int:  # fmt: skip
    """Return 1 if the call is called wrong, else 0; a corruption that changed nothing counts as noticed."""
    was_changed = True

    def call() -> None:
        nonlocal was_changed
        delivered(collective, ranks, buffers.receive, order)
        if kind:
            before = buffers.receive.view(torch.int32).clone()
            kind.act(buffers.receive.view(torch.int32), chance)
            was_changed = not torch.equal(before, buffers.receive.view(torch.int32))

    found = count_wrong(collective, buffers, ranks, call)
    return int(found > 0) if was_changed else 1
