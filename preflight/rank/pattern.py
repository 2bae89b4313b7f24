"""The numbers that tests copy and multiply: exact on every device, different from place to place."""

from __future__ import annotations

import torch

SENTINEL = -1515870811  # every byte 0xa5; patterns are never negative
MODULUS = 1_000_003
LARGEST_FACTOR = 31  # 31 * 31 * 8192 < 2**24: float32 holds every sum exactly, in whatever order it is made


def pattern(count: int, salt: int, device: torch.device) -> torch.Tensor:
    """Return `count` numbers of 4 bytes, from 0 up, that hardly any other salt gives at the same place."""
    places = torch.arange(count, dtype=torch.int32, device=device)
    return places.remainder_(MODULUS).mul_(1 + 2 * (salt % 997)).add_(7919 * (salt % 1009) + 1).remainder_(1 << 30)


def factors(places: torch.Tensor, salt: int) -> torch.Tensor:
    """Turn places (int64, row * rows + column) into whole numbers from -31 to 31, in place."""
    mixed = places.mul_(2_654_435_761).add_(salt * 40_503).bitwise_right_shift_(11)
    return mixed.remainder_(2 * LARGEST_FACTOR + 1).sub_(LARGEST_FACTOR)
