"""The replay of a published log's silences: which of them `preflight run` would have looked into."""

from __future__ import annotations

from scripts.replay_silences import Replayed, replay


def absl(*times_s: int) -> bytes:
    """Return a log with a line at each of these seconds of a day."""
    clock = (f"{s // 3600:02d}:{s % 3600 // 60:02d}:{s % 60:02d}.000000" for s in times_s)
    return "".join(f"I0314 {time} 140503 runner.py:649] step\nno time\n" for time in clock).encode()


def test_a_job_that_prints_every_minute_is_never_looked_at() -> None:
    assert replay(absl(*range(0, 7200, 50)), 300) == Replayed(7150 / 3600, 0, 0)


def test_a_long_silence_is_looked_into_once_it_has_lasted() -> None:
    assert replay(absl(0, 10, 20, 20 + 400, 430), 300) == Replayed(430 / 3600, 1, 0)


def test_a_silence_far_above_the_job_s_own_pace_has_an_early_look() -> None:
    assert replay(absl(*range(0, 600, 10), 590 + 900, 1500), 900) == Replayed(1500 / 3600, 0, 1)


def test_after_a_look_the_next_one_comes_later() -> None:
    assert replay(absl(0, *(400 * i for i in range(1, 11))), 300).due < 3


def test_the_times_of_mlperf_are_read_and_a_log_without_times_is_no_job() -> None:
    lines = b':::MLLOG {"namespace": "", "time_ms": 1726000000000, "key": "a"}\n:::MLLOG {"time_ms": 1726000600000}\n'
    assert replay(lines, 300) == Replayed(600 / 3600, 1, 0)
    assert replay(b"step 1\nstep 2\n", 300) == Replayed(0.0, 0, 0)
