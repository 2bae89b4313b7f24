"""--minutes belongs to --profile burn."""

from __future__ import annotations

import pytest

from preflight.check.options import burn_seconds
from preflight.errors import UsageError
from preflight.model.profile import Profile


def test_minutes_become_seconds_of_burning() -> None:
    assert burn_seconds(2.5, Profile.BURN) == 150
    assert burn_seconds(None, Profile.QUICK) is None


@pytest.mark.parametrize("minutes", [0.0, -1.0, 1e9, float("nan"), float("inf")])
def test_minutes_that_make_no_sense_are_refused_with_the_range(minutes: float) -> None:
    with pytest.raises(UsageError, match="give minutes above 0"):
        burn_seconds(minutes, Profile.BURN)


@pytest.mark.parametrize("profile", [Profile.QUICK, Profile.STANDARD])
def test_another_profile_repeats_nothing(profile: Profile) -> None:
    with pytest.raises(UsageError, match="only --profile burn"):
        burn_seconds(5.0, profile)
