"""The kill loop itself: every kill that it counts hit preflight, also one before preflight is there."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.hostile.kill_loop import Kill, one_kill
from tests.netns import can_mount

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("part", [0.0, 0.99])
def test_a_kill_at_once_waits_for_somebody_to_hit(part: float, need: Callable[[str, bool, str], None]) -> None:
    need("mount", can_mount(), "the private /dev/shm needs root")
    assert one_kill(Kill(0, signal.SIGKILL, True, 0.0, part)) == ""
