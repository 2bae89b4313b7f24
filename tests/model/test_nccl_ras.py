"""Which releases of NCCL may be asked through RAS."""

from __future__ import annotations

import pytest

from preflight.model.nccl_ras import RasReview, why_not_ask

RISKY = RasReview((2, 24, 0), (2, 27, 3), False, "a question crashes it", "NVIDIA/nccl 1669")
SAFE = RasReview((2, 31, 0), (2, 33, 0), True, "", "NVIDIA/nccl 2500")


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.24.0", "in NCCL 2.24.0 a question crashes it (NVIDIA/nccl 1669)"),
        ("2.27.3", "no report about RAS in NCCL 2.27.3 was reviewed"),
        ("2.31.0", ""),
        ("2.33.0", "no report about RAS in NCCL 2.33.0 was reviewed"),
        ("2.31", "no report about RAS in NCCL 2.31 was reviewed"),
    ],
)
def test_a_release_is_asked_only_if_it_was_reviewed_and_is_safe(version: str, why: str) -> None:
    assert why_not_ask(version, (RISKY, SAFE)) == why


def test_a_risk_counts_beside_a_safe_row() -> None:
    assert why_not_ask("2.25.1", (RasReview((2, 25, 0), (2, 26, 0), True, "", "x"), RISKY)) != ""
