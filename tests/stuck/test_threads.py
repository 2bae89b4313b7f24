"""What the watch of `stuck` makes of a process that is woken while it is watched, as reading its stack does."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from dataclasses import replace

import pytest

from preflight.model.codec import decode_value
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import ThreadState
from preflight.stuck.collect.threads import watch_threads
from preflight.stuck.judge.kernel_wait import KernelWait
from preflight.system.kernel_queries import live_machine


def test_who_is_stopped_by_a_profiler_for_a_moment_is_not_stopped() -> None:
    held = ThreadState(7, "python", "t", "ptrace_stop", 0.0, 0, 6.0)
    assert held.is_held and KernelWait.of(held) is KernelWait.STOPPED
    assert replace(held, asleep_s=Gap("not told"), wakes=3).is_held
    moment = replace(held, wakes=500, asleep_s=0.01)
    assert not moment.is_held and KernelWait.of(moment) is KernelWait.RUNS
    assert not replace(held, state="S").is_held


@pytest.mark.timing
def test_a_short_watch_goes_on_for_a_sleeper_that_was_woken_at_its_end() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])

    def wake() -> None:
        time.sleep(0.85)
        os.kill(sleeper.pid, signal.SIGSTOP)
        os.kill(sleeper.pid, signal.SIGCONT)

    try:
        time.sleep(0.3)
        waker = threading.Thread(target=wake)
        waker.start()
        seen = watch_threads(live_machine(), [sleeper.pid], 1.0, 1.0)
        waker.join()
        (main,) = decode_value(tuple[ThreadState, ...], seen["threads"][sleeper.pid])
        assert isinstance(main.asleep_s, float) and main.asleep_s >= 1.0, seen
        assert 1.5 < seen["watched_s"] < 2.6
    finally:
        sleeper.kill()
        sleeper.wait()
