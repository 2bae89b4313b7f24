"""Which frames of a stack are Python's."""

from __future__ import annotations

import pytest

from preflight.model.gap import Gap
from preflight.model.stuck_evidence import Frame, Stack, ThreadState


@pytest.mark.parametrize(
    "file", ["train.py", "train", "<string>", "<frozen runpy>", "/job/run.v2/main.py", "model.pyc"]
)
def test_what_python_runs_is_a_frame_of_python(file: str) -> None:
    frame = Frame("step", file, 3)
    assert Stack(7, "MainThread", True, (frame,)).python_frames == (frame,)


@pytest.mark.parametrize(
    "file", ["", "libc.so.6", "/usr/lib/libnccl.so.2.27.5", "torch/csrc/Module.cpp", "src/enqueue.cc", "ext.pyx"]
)
def test_what_native_adds_is_none(file: str) -> None:
    python = Frame("step", "train.py", 3)
    assert Stack(7, "MainThread", True, (Frame("poll", file, 0), python)).python_frames == (python,)


@pytest.mark.parametrize(
    ("state", "wakes", "may_have_run"),
    [("S", 0, False), ("S", 1, True), ("R", 0, True), ("S", Gap("not counted"), True), ("D", 0, False)],
)
def test_a_thread_has_slept_through_the_watch_only_if_the_kernel_counted_no_wake(
    state: str, wakes: int | Gap, may_have_run: bool
) -> None:
    thread = ThreadState(1, "python", state, "", 0.0, wakes, Gap("not counted"))
    assert thread.may_have_run is may_have_run


@pytest.mark.parametrize(
    ("state", "asleep_s", "wakes", "is_held"),
    [
        ("T", 0.5, 3, False),  # a profiler stops a process for a moment
        ("T", 0.5, 0, True),
        ("T", 1.0, 3, True),
        ("t", Gap("not counted"), 3, True),
        ("S", 9.0, 0, False),
    ],
)
def test_a_thread_is_held_unless_it_was_stopped_for_a_moment_only(
    state: str, asleep_s: float | Gap, wakes: int, is_held: bool
) -> None:
    assert ThreadState(1, "python", state, "", 0.0, wakes, asleep_s).is_held is is_held
