"""Every kind of outside input has good input from which mutations start."""

from __future__ import annotations

import pytest

from preflight.model import input_limits
from tests.hostile.targets import Target, targets, without_target


def test_every_kind_of_the_price_list_is_mutated() -> None:
    limits = [each for each in vars(input_limits).values() if isinstance(each, input_limits.InputLimit)]
    assert limits and without_target(limits) == set()


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_good_input_is_taken(target: Target) -> None:
    for data in target.seeds:
        target.parse(data)
