from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from preflight.trial.launch_result import Launch, LaunchResult, progress_line
from tests.node_facts import trial


def test_the_line_says_what_runs_how_many_were_tried_and_when_it_ends_at_the_latest() -> None:
    launched = LaunchResult(running="netif eth0 at init", trials=(trial(),), started_at=time.monotonic() - 12)
    line = progress_line(launched, 180, 80)
    assert " ".join(line.split()) == "12 s 1 tried netif eth0 at init (at most 180 s)"


def test_a_stage_of_a_trial_reads_as_english() -> None:
    launch = Launch()
    launch.take({"event": "step", "label": "default"})
    said = []
    for stage in ("init", "first", "timed 2/24", "done"):
        launch.take({"event": "stage", "stage": stage})
        said.append(launch.result.running)
    assert said == [
        "default at init", "default at the first collective", "default at timed step 2 of 24", "default at its end",
    ]  # fmt: skip


def test_before_the_first_step_it_says_what_takes_so_long() -> None:
    assert "importing torch" in progress_line(LaunchResult(started_at=time.monotonic()), 180, 80)


@given(st.text(max_size=200), st.integers(0, 200), st.floats(0, 1e6))
def test_the_line_never_reaches_the_last_column(running: str, width: int, deadline_s: float) -> None:
    assert len(progress_line(LaunchResult(running=running, started_at=time.monotonic()), deadline_s, width)) <= max(
        0, width - 1
    )
