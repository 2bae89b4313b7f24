"""Waiting for more connections than select() takes."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from preflight.system.waiting import wait_for
from preflight.trial.nodes.wire import Link, Poller


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket]]:
    mine, theirs = socket.socketpair()
    yield Link(mine), theirs
    mine.close()
    theirs.close()


def test_a_link_is_ready_when_it_has_something_to_say(ends: tuple[Link, socket.socket]) -> None:
    link, other = ends
    ready = Poller()
    ready.watch(link)
    assert ready.descriptors() == set()
    other.sendall(b"x")
    assert ready.descriptors() == {link.fileno()}
    assert wait_for([ready.fd], [], 0) == [ready.fd]
    ready.close()


def test_a_link_is_waited_for_to_take_data_only_while_it_has_some(ends: tuple[Link, socket.socket]) -> None:
    link, _ = ends
    ready = Poller()
    ready.watch(link)
    link.queue({"kind": "ping"})
    ready.also_for_sending([link])
    assert ready.descriptors() == {link.fileno()}
    link.send()
    ready.also_for_sending([link])
    assert ready.descriptors() == set()
    ready.close()


def test_a_closed_link_is_forgotten(ends: tuple[Link, socket.socket]) -> None:
    link, other = ends
    ready = Poller()
    ready.watch(link)
    other.sendall(b"x")
    link.close()
    assert ready.descriptors() == set()
    ready.close()


def test_descriptors_beyond_1024_can_be_waited_for() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000:
        pytest.skip("this machine does not allow 2,000 open files")
    script = (
        "import os, fcntl\n"
        "from preflight.trial.nodes.wire import raise_descriptor_limit\n"
        "from preflight.system.waiting import wait_for\n"
        "raise_descriptor_limit(1800)\n"
        "r, w = os.pipe(); high = fcntl.fcntl(r, fcntl.F_DUPFD, 1500); os.write(w, b'x')\n"
        "assert wait_for([high], [w], 0) == [high, w] or wait_for([high], [w], 0) == [w, high]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, preexec_fn=_few_files)


def test_too_few_files_allowed_is_one_clear_line() -> None:
    script = "from preflight.trial.nodes.wire import raise_descriptor_limit; raise_descriptor_limit(5000)"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, preexec_fn=_few_allowed
    )
    assert "5000 nodes need 5128 open files on node 0, 300 are allowed" in ran.stderr


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _few_allowed() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
