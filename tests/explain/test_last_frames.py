"""Where a traceback ends: the user's own line, among the library's frames and those of other ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.explain.last_frames import LastFrame, read_last_frame

PYTHON = "/opt/venv/lib/python3.12/site-packages"


def end_of(*lines: str, text: str = "ValueError: no") -> LastFrame | None:
    return read_last_frame("\n".join(lines).encode() + b"\n", text)


def test_the_innermost_frame_of_the_users_own_code_is_taken_with_its_source() -> None:
    frame = end_of(
        "Traceback (most recent call last):",
        '  File "/opt/app/train.py", line 90, in <module>', "    main()",
        '  File "/opt/app/step.py", line 44, in step', "    dist.all_reduce(loss)",
        f'  File "{PYTHON}/torch/distributed/c10d_logger.py", line 83, in wrapper', "    return func(*args)",
    )  # fmt: skip
    assert frame == LastFrame("/opt/app/step.py", 44, "step", "dist.all_reduce(loss)", "all_reduce")
    assert frame.place == "step.py:44"


def test_a_traceback_of_libraries_only_has_its_last_frame_which_is_nobodys_own() -> None:
    frame = end_of("Traceback (most recent call last):", f'  File "{PYTHON}/pkg/a.py", line 3, in f', "    g()")
    assert frame is not None
    assert (frame.place, frame.is_own) == ("a.py:3", False)


@pytest.mark.parametrize("one", ["[rank0]: ", "(Worker_TP0 pid=7) ", "[1,0]<stderr>:"])
def test_lines_of_another_process_between_them_are_left_out(one: str) -> None:
    other = one.replace("0", "1", 1).replace("7", "8") if "1,0" not in one else "[1,1]<stderr>:"
    mine = ["Traceback (most recent call last):", '  File "/a/mine.py", line 5, in f', "    x()"]
    theirs = ["Traceback (most recent call last):", '  File "/a/theirs.py", line 9, in g', "    y()"]
    lines = [part for pair in zip(mine, theirs, strict=True) for part in (one + pair[0], other + pair[1])]
    frame = end_of(*lines, text=f"{one}ValueError: no")
    assert frame is not None
    assert (frame.place, frame.source) == ("mine.py:5", "x()")


def test_what_a_logger_puts_before_each_line_is_no_part_of_the_code() -> None:
    for logged in ("ERROR 01-17 23:34:56 worker_base.py:554] ", "ERROR 05-19 14:01:02 [core.py:597] "):
        lines = ("Traceback (most recent call last):", '  File "/a/mine.py", line 5, in f', "    x(rank)")
        frame = end_of(*(f"{logged}{line}" for line in lines))
        assert frame is not None and (frame.place, frame.source) == ("mine.py:5", "x(rank)")


def test_a_collective_below_a_method_of_the_framework_is_named_by_torchs_frame() -> None:
    frame = end_of(
        "Traceback (most recent call last):", '  File "/opt/app/t.py", line 8, in run', "    sync(model)",
        f'  File "{PYTHON}/torch/distributed/distributed_c10d.py", line 2810, in broadcast',
    )  # fmt: skip
    assert frame is not None
    assert frame.call == "broadcast"


def test_no_traceback_gives_no_frame() -> None:
    assert end_of("step 3", "step 4") is None


@given(st.binary(max_size=400), st.text(max_size=60))
def test_any_bytes_are_read(before: bytes, text: str) -> None:
    framed = before + b'\n  File "/a.py", line 3, in f\n' + before
    assert read_last_frame(before, text) is None or isinstance(read_last_frame(framed, text), LastFrame)
