"""The releases of NCCL that are safe to query through RAS, according to bug reports.

In some releases, a query can end the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class RasReview:
    """Whether a range of NCCL releases is safe to query, according to GitHub issue threads.

    A release without a row was not reviewed.
    """

    first: Version
    before: Version  # the first release that the row no longer covers
    is_safe: bool
    says: str
    source: str


# Read on 2026-11-23, in the threads and in NCCL's sources up to 2.30.7. No release is known to be safe: the loop of
# issue 2346 (src/ras/collectives.cc, rasCollCommsInit) is in every tag from 2.27.3 to 2.30.7, and later sources were
# not read.
REVIEWS = (
    RasReview(
        (2, 24, 0), (2, 27, 3), False,
        "a question that comes while a communicator is created crashes the process", "NVIDIA/nccl 1669, 1718",
    ),
    RasReview(
        (2, 27, 3), (2, 29, 2), False,
        "an answer about missing ranks corrupts the process's memory", "NVIDIA/nccl 1762",
    ),
    RasReview(
        (2, 29, 2), (2, 31, 0), False,
        "a question that comes while a communicator is created crashes the process", "NVIDIA/nccl 2346",
    ),
)  # fmt: skip


def parse_nccl_version(text: str) -> Version | None:
    """Return a version such as `2.27.5` as three numbers, or None for any other text."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def why_not_ask(text: str, reviews: Sequence[RasReview] = REVIEWS) -> str:
    """Return why it is unsafe to query NCCL release `text` through RAS, or "" if a query is safe.

    The reason has no final period.
    """
    version = parse_nccl_version(text)
    rows = [each for each in reviews if version is not None and each.first <= version < each.before]
    risky = next((each for each in rows if not each.is_safe), None)
    if risky is not None:
        return f"in NCCL {text} {risky.says} ({risky.source})"
    return "" if rows else f"no report about RAS in NCCL {text} was reviewed"
