"""Verify that a collective delivers the right data: in separate calls, and in timed calls chosen at random."""
# Collectives that only move data get random bits, which are compared bit by bit. Collectives that sum get integers of
# up to 24 bits, whose sums are exact in any order. The data differ between ranks, positions and verified calls, so that
# old or misplaced data are found too.

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch

from preflight.model.collective import Collective
from preflight.trial.rank.buffers import Buffers, Ranks

PERIOD = 8191  # a prime, so that 7 times the place takes every value; a pattern repeats after so many elements
NOT_WRITTEN = math.nan  # no sum of patterns; of 32 random bits one word in 4e9
SUMS = frozenset({Collective.ALL_REDUCE, Collective.REDUCE_SCATTER})
MIXING, WORD = ((0x7FEB352D, 16), (0x2C1B3C6D, 15)), (1 << 32) - 1
QUARTER = 1 << 22  # of the whole numbers that float32 holds exactly
RANKS_AT_ONCE = 64  # whose patterns are in memory together: 4 MiB
Work = Callable[[], None]


def count_wrong(
    collective: Collective, buffers: Buffers, ranks: Ranks, call: Callable[[], object], salt: int = 0
) -> int:
    """Run `call` once on data that depend on the rank, and return how many received elements are wrong."""
    _fill(buffers, ranks, salt, collective)
    call()
    ranks.synchronize()
    return _wrong(collective, buffers, ranks, salt)


class TimedVerification:
    """Verification of some of the timed calls.

    `places` has the numbers of the calls to verify. All ranks must get the same `places` and the same `seed`, so that
    all ranks send patterns in the same calls.
    """

    # The calls between verified calls move zeros, and the last of these calls is checked too.

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
        """Return (verified calls, most wrong elements in a call, most nonzero elements in a call).

        Nonzero elements are counted after an in-place collective whose input is all zeros. A correct collective leaves
        no nonzero elements.
        """
        # Any rank may have caused the nonzero elements.
        return self.verified_calls, self.wrong_elements, self.spread_elements

    def work_before(self, place: int) -> Work | None:
        """Return the work to run before the timed call with the number `place`, or None.

        The work is not part of the measured time of the call.
        """
        if place in self._places:
            return self._before_pattern
        return None if self._sent == "zeros" else self._before_zeros

    def finish(self) -> None:
        """Check the data that the last call delivered."""
        if self._sent:
            self._look()

    def _before_pattern(self) -> None:
        self.finish()
        self._salt = (self._salt + self._random.randrange(1, PERIOD)) % PERIOD
        _fill(self._buffers, self._ranks, self._salt, self._collective)
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


def _fill(buffers: Buffers, ranks: Ranks, salt: int, collective: Collective) -> None:
    """Write this rank's pattern into the send buffer.

    If the receive buffer is a separate tensor, fill the receive buffer with NaN.
    """
    if buffers.send.data_ptr() != buffers.receive.data_ptr():
        buffers.receive.fill_(NOT_WRITTEN)
    _repeated(buffers.send, sent_by(ranks.rank, collective, ranks, salt), lambda part, values: part.copy_(values))


def _wrong(collective: Collective, buffers: Buffers, ranks: Ranks, salt: int) -> int:
    """Return how many received elements differ from the expected data of this rank."""
    found: list[torch.Tensor] = []
    parts = _expected(collective, ranks, salt, buffers.receive.numel())
    for received, values in zip(buffers.receive.chunk(len(parts)), parts, strict=True):
        _repeated(received, values, lambda part, wanted: found.append(torch.count_nonzero(part != wanted)))
    return sum(int(each.item()) for each in found)


def _repeated(tensor: torch.Tensor, values: torch.Tensor, act: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    """Call `act(part, values)` for consecutive parts of the tensor, each as long as `values`.

    `values` has one period, which repeats along the tensor. No copy of `values` has the full length of the tensor.
    """
    tensor = tensor.view(values.dtype)
    whole = tensor.numel() // PERIOD * PERIOD
    if whole:
        act(tensor[:whole].view(-1, PERIOD), values)
    if whole < tensor.numel():
        act(tensor[whole:], values[: tensor.numel() - whole])


def sent_by(rank: int, collective: Collective, ranks: Ranks, salt: int) -> torch.Tensor:
    """Return the values that rank `rank` sends in `collective`. Longer buffers repeat these values.

    `salt` selects the pattern.
    """
    one = range(rank, rank + 1)
    if collective in SUMS:
        return _summands(one, ranks, salt)[0].to(torch.float32).mul_(_scale(salt))
    return _words(one, ranks.device, salt)[0].to(torch.int32)


def _words(of: range, device: torch.device, salt: int) -> torch.Tensor:
    """Return one period for each rank: 32 bits that look random, as int64.

    For a given rank and place, different salts give different words. For a given salt, all words of all ranks are
    different, because different numbers are mapped by an invertible function. This function is two rounds of
    multiplying and shifting.
    """
    place = torch.arange(PERIOD, dtype=torch.int64, device=device)
    rank = torch.arange(of.start, of.stop, dtype=torch.int64, device=device).unsqueeze(1)
    word = (7 * place + 131 * rank + 1 + salt).remainder_(PERIOD) + PERIOD * rank + 1
    for factor, shift in MIXING:
        word = ((word ^ (word >> shift)) * factor) & WORD
    return word ^ (word >> 16)


def _summands(of: range, ranks: Ranks, salt: int) -> torch.Tensor:
    """Return one period of whole numbers for each rank, as int64.

    At each place, the absolute values of all ranks add up to less than 2**24.

    float32 therefore holds every sum of these numbers exactly, in any order of summation. At each place, one rank sends
    a large number, and the other ranks share the rest of the range. The numbers may be positive or negative. The bound
    holds for up to 2**22 ranks.
    """
    word = _words(of, ranks.device, salt)
    place = torch.arange(PERIOD, dtype=torch.int64, device=ranks.device)
    rank = torch.arange(of.start, of.stop, dtype=torch.int64, device=ranks.device).unsqueeze(1)
    size = (word >> 1).remainder_(max(2, (QUARTER // ranks.world_size)))
    is_large = (place + salt).remainder_(ranks.world_size) == rank
    left = QUARTER if ranks.world_size > 1 else 2 * QUARTER
    size = torch.where(is_large, 2 * QUARTER + (word >> 1) % left, size)
    return torch.where((word & 1) == 1, -size, size)


def _sum(ranks: Ranks, salt: int) -> torch.Tensor:
    """Return one period of the sum of the values that all ranks send."""
    total = torch.zeros(PERIOD, dtype=torch.int64, device=ranks.device)
    for first in range(0, ranks.world_size, RANKS_AT_ONCE):
        total += _summands(range(first, min(first + RANKS_AT_ONCE, ranks.world_size)), ranks, salt).sum(0)
    return total.to(torch.float32).mul_(_scale(salt))


def _scale(salt: int) -> float:
    """Return a power of two that differs between calls, by which the data are multiplied.

    This multiplication does not round. The exponent bits of the data therefore differ between calls too.
    """
    return 2.0 ** (salt % 61 - 42)


def _expected(collective: Collective, ranks: Ranks, salt: int, count: int) -> list[torch.Tensor]:
    """Return the expected values of the `count` received elements, as one period for each part.

    The received elements consist of parts of equal size.
    """
    n = ranks.world_size
    if collective in SUMS:
        total = _sum(ranks, salt)
        return [total if collective is Collective.ALL_REDUCE else _from(total, ranks.rank * count)]
    from_rank0 = collective is Collective.BROADCAST
    senders = _words(range(1 if from_rank0 else n), ranks.device, salt).to(torch.int32).unbind()
    place = ranks.rank * (count // n) if collective is Collective.ALL_TO_ALL else 0
    return [_from(words, place) for words in senders]


def _from(values: torch.Tensor, place: int) -> torch.Tensor:
    """Return `values` rotated, so that the period begins at the index `place`."""
    return values.roll(-(place % PERIOD))
