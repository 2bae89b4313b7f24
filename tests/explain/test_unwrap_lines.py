"""A log that was pasted from a window, where the window's edge broke its lines."""

from __future__ import annotations

import pytest

from preflight.explain.unwrap_lines import LIMIT, unwrapped
from tests.explain.logs import explain_bytes, status, watchdog

LINES = (
    "node-1:4411:4420 [0] NCCL INFO NET/Socket : Using [0]eth0:10.9.3.11<0> and a long name of another interface",
    "node-1:4411:4420 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 172.17.0.1<47317> failed : "
    "Connection refused",
    "node-1:4411:4420 [0] NCCL INFO misc/socket.cc:561 -> 2",
)


def _window(width: int, lines: tuple[str, ...] = LINES) -> bytes:
    return "\n".join(line[at : at + width] for line in lines for at in range(0, len(line), width)).encode()


@pytest.mark.parametrize("width", [60, 80, 96, 104])
def test_a_message_is_read_across_the_edge_of_a_window(width: int) -> None:
    explanation = explain_bytes(_window(width))
    assert [cause.cause for cause in explanation.causes] == ["wrong_socket_interface"]
    assert explanation.causes[0].evidence[0].line == _window(width).split(b"\n").index(LINES[1][:width].encode()) + 1


def test_ranks_that_say_the_same_one_after_the_other_stay_on_their_lines() -> None:
    log = "\n".join([*(watchdog(rank) for rank in range(4)), *(status(rank, 7, 7, 6) for rank in range(4))]).encode()
    assert unwrapped([log]) == ([log], ())


@pytest.mark.parametrize("log", [b"", b"\n\n", b"one line", b"step 1\nstep 2\nstep 3\n", b"\xff" * 70 + b"\n\xfe"])
def test_what_no_window_broke_stays_as_it_is(log: bytes) -> None:
    chunks, places = unwrapped([log])
    assert (b"".join(chunks), places) == (log, ())


def test_a_long_log_is_handed_on_as_it_comes() -> None:
    chunk = _window(80) * (LIMIT // 300)
    chunks, places = unwrapped(iter([chunk, chunk]))
    assert (list(chunks), places) == ([chunk, chunk], ())
