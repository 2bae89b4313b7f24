"""What crosses between launchers: whole lines, of bounded length, that are JSON and nothing else."""

from __future__ import annotations

import base64
import socket
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.errors import MalformedInput, MeetingError, PreflightError
from preflight.model.codec import decode
from preflight.model.joint import Hello, JointPlan, SoloResult
from preflight.trial.nodes.wire import HELLO_BYTES, Link, line_of, pack, parse_message, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def ends() -> Any:
    a, b = socket.socketpair()
    with a, b:
        yield Link(a), b


def test_messages_arrive_whole_and_in_order_however_they_are_cut(ends: tuple[Link, socket.socket]) -> None:
    link, other = ends
    data = line_of({"kind": "ping"}) + line_of({"kind": "key", "z": "x" * 900})
    seen = []
    for i in range(0, len(data), 100):
        other.sendall(data[i : i + 100])
        seen += link.receive()
    assert [message["kind"] for message in seen] == ["ping", "key"]


@pytest.mark.parametrize("data", [b"x" * (HELLO_BYTES + 1), b'{"kind":"' + b"x" * HELLO_BYTES + b'"}\n'])
def test_a_line_that_is_too_long_is_refused_before_it_has_ended(ends: tuple[Link, socket.socket], data: bytes) -> None:
    link, other = ends
    other.sendall(data)
    with pytest.raises(MeetingError, match="more than 4096 bytes"):
        link.receive()


def test_an_end_that_closes_is_told_after_its_last_words(ends: tuple[Link, socket.socket]) -> None:
    link, other = ends
    other.sendall(line_of({"kind": "bye"}))
    other.close()
    assert link.receive() == [{"kind": "bye"}]
    with pytest.raises(MeetingError, match="closed"):
        link.receive()


def test_what_the_other_end_does_not_take_waits(ends: tuple[Link, socket.socket]) -> None:
    link, other = ends
    link.queue({"kind": "x", "z": "y" * (8 << 20)})
    link.send()
    assert link.wants_to_send
    read = 0
    while link.wants_to_send or read < 8 << 20:
        read += len(other.recv(1 << 20))
        link.send()
    assert not link.wants_to_send


@given(st.binary(max_size=60) | JSON.map(lambda value: pack(value).encode()))
def test_any_line_is_a_message_or_refused(line: bytes) -> None:
    try:
        assert isinstance(parse_message(line)["kind"], str)
    except MeetingError as error:
        assert str(error)


@given(JSON)
def test_what_is_packed_is_unpacked(value: Any) -> None:
    assert unpack(pack(value)) == value


@given(JSON | st.binary(max_size=40).map(base64.b64encode).map(bytes.decode) | st.text(max_size=20))
def test_any_packed_text_is_a_value_or_refused(text: Any) -> None:
    try:
        unpack(text)
    except MalformedInput as error:
        assert str(error)


def test_a_packed_message_that_would_fill_the_memory_is_refused() -> None:
    bomb = base64.b64encode(zlib.compress(b" " * (1 << 20) + b"1")).decode()
    assert unpack(bomb) == 1
    with pytest.raises(MalformedInput, match="more than 65536 bytes"):
        unpack(bomb, most_bytes=1 << 16)


@given(st.sampled_from([Hello, SoloResult, JointPlan]), JSON)
def test_any_document_is_a_record_of_another_node_or_refused(kind: type, document: Any) -> None:
    try:
        decode(kind, document)
    except PreflightError as error:
        assert str(error)
