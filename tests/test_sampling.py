"""What a commit draws of a heavy group is a fair part, and the same each time."""

from __future__ import annotations

import pytest

from tests.sampling import drawn

NAMES = [f"test_{number}" for number in range(20)]


@pytest.mark.parametrize(("one_in", "count"), [(1, 20), (3, 7), (20, 1), (100, 1)])
def test_one_in_so_many_is_drawn_and_the_same_by_the_same_commit(one_in: int, count: int) -> None:
    chosen = drawn(NAMES, one_in, "4f2a")
    assert (len(chosen), chosen <= set(NAMES)) == (count, True)
    assert drawn(reversed(NAMES), one_in, "4f2a") == chosen


def test_other_commits_draw_others_until_all_were_drawn() -> None:
    assert set().union(*(drawn(NAMES, 4, f"commit {number}") for number in range(40))) == set(NAMES)
    assert drawn([], 4, "4f2a") == set()
