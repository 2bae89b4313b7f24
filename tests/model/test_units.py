"""Numbers as people read them."""

from __future__ import annotations

import pytest

from preflight.model.units import duration_text


@pytest.mark.parametrize(
    ("duration_s", "text"), [(0.4, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")]
)
def test_a_duration_is_in_the_unit_that_people_say_it_in(duration_s: float, text: str) -> None:
    assert duration_text(duration_s) == text
