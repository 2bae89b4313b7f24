"""Each variable that came with the pinned releases of NCCL has a word in scripts/nccl_reviewed.toml."""

from __future__ import annotations

import pytest

from preflight.model.known_bugs import version_numbers
from scripts.nccl_news import BASE, Review, read_strings, unreviewed
from tests.simcuda import places

pytestmark = [pytest.mark.simcuda, pytest.mark.usefixtures("simcuda")]


def test_each_name_that_came_with_the_pinned_releases_has_a_word() -> None:
    pinned = sorted(places.NCCL, key=version_numbers)
    since = [read_strings(places.nccl(each)) for each in pinned if version_numbers(each) >= version_numbers(BASE)]
    assert len(since) >= 2
    assert unreviewed(since, Review.read()) == ()
