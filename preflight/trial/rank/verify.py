"""Prove that a collective delivered the right data: in separate calls, and in timed calls chosen at random.

Every rank sends integers that differ between ranks, between neighboring elements and between verified calls. So the
result shows wrong elements, NaN, data of an earlier call and data that never moved.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from preflight.model.collective import Collective
from preflight.trial.rank.buffers import Buffers, Ranks

PERIOD = 8191  # a prime, so that 7 times the place takes every value; a pattern repeats after so many elements
NOT_WRITTEN = -1.0  # in no pattern and in no sum of patterns
Work = Callable[[], None]


def count_wrong(
    collective: Collective, buffers: Buffers, ranks: Ranks, call: Callable[[], object], salt: int = 0
) -> int:
    """Run the collective once on integers that depend on the rank, and return how many elements are wrong.

    All values and sums are small integers. So float32 holds them exactly, and the order of the sum does not matter.
    """
    _fill(buffers, ranks, salt)
    call()
    ranks.synchronize()
    return _wrong(collective, buffers, ranks, salt)


class TimedVerification:
    """Verifies some of the timed calls: before each call, `work_before` returns what must run first, if anything.

    The calls between them move zeros, and the last of those is checked too. All ranks must get the same places and the
    same seed, so that all send patterns in the same call.
    """

    def __init__(
        self, collective: Collective, buffers: Buffers, ranks: Ranks, places: frozenset[int], seed: int
    ) -> None:
        self.wrong_elements = 0  # in the worst call
        self.spread_elements = 0  # after calls in place: any rank may have brought them
        self.verified_calls = 0
        self._collective, self._buffers, self._ranks, self._places = collective, buffers, ranks, places
        self._random = random.Random(seed)
        self._salt = 0  # of the pattern that was sent last
        self._sent = ""  # what the call before this moved: "" before the first one, "pattern" or "zeros"

    @property
    def found(self) -> tuple[int, int, int]:
        """Return the count of verified calls, the wrong elements in the worst of them, and those after other calls."""
        return self.verified_calls, self.wrong_elements, self.spread_elements

    def work_before(self, place: int) -> Work | None:
        """Return the work that must run before the timed call at `place`, outside of its time, or None."""
        if place in self._places:
            return self._before_pattern
        return None if self._sent == "zeros" else self._before_zeros

    def finish(self) -> None:
        """Check what the last call delivered."""
        if self._sent:
            self._look()

    def _before_pattern(self) -> None:
        self.finish()
        self._salt = (self._salt + self._random.randrange(1, PERIOD)) % PERIOD
        _fill(self._buffers, self._ranks, self._salt)
        self._sent = "pattern"

    def _before_zeros(self) -> None:
        self.finish()
        self._buffers.send.zero_()
        self._sent = "zeros"

    def _look(self) -> None:
        if self._sent == "pattern":
            self.verified_calls += 1
            wrong = _wrong(self._collective, self._buffers, self._ranks, self._salt)
        else:
            wrong = int(torch.count_nonzero(self._buffers.receive).item())
            if self._buffers.send.data_ptr() == self._buffers.receive.data_ptr():
                self.spread_elements = max(self.spread_elements, wrong)
                return
        self.wrong_elements = max(self.wrong_elements, wrong)


def _fill(buffers: Buffers, ranks: Ranks, salt: int) -> None:
    """Write this rank's pattern where it is sent from, and nothing that could be right where it is received."""
    if buffers.send.data_ptr() != buffers.receive.data_ptr():
        buffers.receive.fill_(NOT_WRITTEN)
    _repeated(buffers.send, _pattern(ranks.rank, ranks.device, salt), lambda part, values: part.copy_(values))


def _wrong(collective: Collective, buffers: Buffers, ranks: Ranks, salt: int) -> int:
    """Return how many received elements are not what this rank should have."""
    found: list[torch.Tensor] = []
    parts = _expected(collective, ranks, salt, buffers.receive.numel())
    for received, values in zip(buffers.receive.chunk(len(parts)), parts, strict=True):
        _repeated(received, values, lambda part, wanted: found.append(torch.count_nonzero(part != wanted)))
    return sum(int(each.item()) for each in found)


def _repeated(tensor: torch.Tensor, values: torch.Tensor, act: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    """Act on a tensor and values that repeat along it; they are never written out as long as it is."""
    whole = tensor.numel() // PERIOD * PERIOD
    if whole:
        act(tensor[:whole].view(-1, PERIOD), values)
    if whole < tensor.numel():
        act(tensor[whole:], values[: tensor.numel() - whole])


def _pattern(rank: int, device: torch.device, salt: int = 0) -> torch.Tensor:
    """Return one period of values below 2**14 that differ between ranks, neighbouring elements and salts."""
    values = torch.arange(PERIOD, dtype=torch.int32, device=device)
    return values.mul_(7).add_(rank * 131 + 1 + salt).remainder_(PERIOD).add_(rank).to(torch.float32)


def _sum_of_patterns(ranks: Ranks, salt: int) -> torch.Tensor:
    total = _pattern(0, ranks.device, salt)
    for rank in range(1, ranks.world_size):
        total += _pattern(rank, ranks.device, salt)
    return total


def _expected(collective: Collective, ranks: Ranks, salt: int, count: int) -> list[torch.Tensor]:
    """Return one period of what each equal part of the `count` received elements should hold."""
    n = ranks.world_size
    match collective:
        case Collective.ALL_REDUCE:
            return [_sum_of_patterns(ranks, salt)]
        case Collective.BROADCAST:
            return [_pattern(0, ranks.device, salt)]
        case Collective.ALL_GATHER:
            return [_pattern(rank, ranks.device, salt) for rank in range(n)]
        case Collective.REDUCE_SCATTER:
            return [_from(_sum_of_patterns(ranks, salt), ranks.rank * count)]
        case Collective.ALL_TO_ALL:
            share = count // n
            return [_from(_pattern(rank, ranks.device, salt), ranks.rank * share) for rank in range(n)]


def _from(values: torch.Tensor, place: int) -> torch.Tensor:
    """Return the period that begins at another place."""
    return values.roll(-(place % PERIOD))
