"""Connections between launchers.

A message is one line of JSON with a limited length, and no call blocks.
"""
# Node 0 has thousands of connections, and epoll reports which connections are ready.

from __future__ import annotations

import base64
import binascii
import json
import os
import resource
import select
import socket
import time
import zlib
from collections import deque
from collections.abc import Iterable
from typing import Any

from preflight.errors import MalformedInput, MeetingError
from preflight.model.bound import JUDGMENT, Bound

Message = dict[str, Any]  # {"kind": ...}

HELLO_BYTES = 4 << 10
FOLLOWER_BYTES = 16 << 20  # what one node may say in one message: its facts, its ranks' answers
LEADER_BYTES = 512 << 20  # the report of all nodes
UNPACKED_BYTES = 1 << 30
CHUNK = 1 << 18
SPARE_DESCRIPTORS = 128  # for everything but links: logs, pipes, libraries that are loaded
PING_S = 2.0
SILENT_S = Bound(
    15.0, "s without a message from a node",
    "the launcher of every node sends a ping every 2 s, so a node missed seven pings",
    JUDGMENT,
    "too low: a node that swaps is considered gone; too high: the other nodes wait for a dead node",
)  # fmt: skip
READS_A_TURN = 64  # so that one talker does not keep the others waiting


class Link:
    """One end of a connection between two launchers.

    `most_bytes` limits the length of a line. The limit is raised when the other end has identified itself.
    """

    def __init__(self, sock: socket.socket, most_bytes: int = HELLO_BYTES) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._unread = bytearray()
        self._scanned = 0
        self._unsent: deque[memoryview] = deque()
        self.most_bytes = most_bytes
        self.broke = 0  # the errno with which the connection failed
        self.heard_at = self.sent_at = self.since = time.monotonic()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def here(self) -> str:
        """Return the address of this end of the connection."""
        return plain_address(str(self._socket.getsockname()[0]))

    @property
    def wants_to_send(self) -> bool:
        return bool(self._unsent)

    def queue(self, message: Message) -> None:
        """Queue a message, to be sent as soon as the other end accepts it."""
        self.queue_line(line_of(message))

    def queue_line(self, line: bytes) -> None:
        """Queue a line that is already encoded."""
        self._unsent.append(memoryview(line))
        self.sent_at = time.monotonic()

    def ping(self, now: float) -> None:
        """Queue a keep-alive message if this end has sent nothing for PING_S seconds. `now` is monotonic time."""
        if now - self.sent_at > PING_S:
            self.queue({"kind": "ping"})

    def refuse_silence(self) -> None:
        """Raise MeetingError if nothing has arrived from the other end for SILENT_S seconds."""
        if time.monotonic() - self.heard_at > SILENT_S.value:
            raise MeetingError(f"no message for {SILENT_S.value:.0f} s: the host or its network is down")

    def send(self) -> None:
        """Send as much queued data as the other end accepts now. Raise MeetingError if the other end is gone."""
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent[0][:CHUNK])
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._broken(error) from None

    def receive(self) -> list[Message]:
        """Return the messages that have arrived. Raise MeetingError if the other end is gone or sent invalid data."""
        messages: list[Message] = []
        for _ in range(READS_A_TURN):
            try:
                data = self._socket.recv(CHUNK)
            except BlockingIOError:
                break
            except OSError as error:
                raise self._broken(error) from None
            if not data:
                if messages:
                    break  # its last words first; the end of the stream is found again
                raise MeetingError("the connection was closed")
            self._unread += data
            messages += self._whole_lines()
        if messages:
            self.heard_at = time.monotonic()
        return messages

    def _whole_lines(self) -> list[Message]:
        messages = []
        while (end := self._unread.find(b"\n", self._scanned)) >= 0:
            self._refuse_length(end)
            messages.append(parse_message(bytes(self._unread[:end])))
            del self._unread[: end + 1]
            self._scanned = 0
        self._scanned = len(self._unread)
        self._refuse_length(self._scanned)
        return messages

    def _refuse_length(self, length: int) -> None:
        if length > self.most_bytes:
            raise MeetingError(f"a message of more than {self.most_bytes} bytes")

    def _broken(self, error: OSError) -> MeetingError:
        self.broke = error.errno or 0
        return MeetingError(f"the connection broke: {os.strerror(self.broke)}")

    def close(self) -> None:
        self._socket.close()


class Poller:
    """A set of watched connections with one common descriptor, which is readable if any connection is ready.

    Closed connections are removed automatically.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wanting: dict[int, bool] = {}  # descriptor -> whether it is also waited for to take data

    @property
    def fd(self) -> int:
        """Return the descriptor that is readable if any connection is ready."""
        return self._epoll.fileno()

    def watch(self, link: Link) -> None:
        """Watch the new connection `link` for incoming messages."""
        self._wanting[link.fileno()] = False
        self._epoll.register(link.fileno(), select.EPOLLIN)

    def leave(self, link: Link) -> None:
        """Stop watching `link`."""
        self._epoll.unregister(link.fileno())
        del self._wanting[link.fileno()]

    def also_for_sending(self, links: Iterable[Link]) -> None:
        """Watch each connection for sending only while the connection has unsent data."""
        for link in links:
            wants = link.wants_to_send
            if wants != self._wanting.get(link.fileno(), False):
                self._wanting[link.fileno()] = wants
                self._epoll.modify(link.fileno(), select.EPOLLIN | (select.EPOLLOUT if wants else 0))

    def descriptors(self) -> set[int]:
        """Return the descriptors that are ready or broken, without waiting."""
        return {fd for fd, _ in self._epoll.poll(0, 4096)}

    def close(self) -> None:
        self._epoll.close()


def raise_descriptor_limit(links: int) -> None:
    """Raise this process's limit of open files to fit `links` connections.

    Call this function after the ranks have started. Raise MeetingError if a higher limit is forbidden.
    """
    # The ranks must keep the job's limit.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = links + SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise MeetingError(f"{links} nodes need {needed} open files on node 0, {hard} are allowed: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def line_of(message: Message) -> bytes:
    """Return `message` as the encoded line that is sent over the connection."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def parse_message(line: bytes) -> Message:
    """Return the message in `line`. Raise MeetingError if the line is not a valid message."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise MeetingError("what it says is no message of preflight")
    return message


def pack(value: Any) -> str:
    """Return `value`, any JSON value, as compressed text."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 6)).decode()


def unpack(text: Any, most_bytes: int = UNPACKED_BYTES) -> Any:
    """Return the JSON value that `pack` compressed to `text`.

    Raise MalformedInput if `text` is invalid or its data exceed `most_bytes`.
    """
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text, validate=True), most_bytes)
        if inflater.unconsumed_tail or not inflater.eof:
            raise MalformedInput(f"a packed message that is cut short or holds more than {most_bytes} bytes")
        return json.loads(data)
    except (TypeError, ValueError, RecursionError, binascii.Error, zlib.error) as error:
        raise MalformedInput(f"a packed message that can't be read: {error}") from None


def plain_address(address: str) -> str:
    """Return an IP address without its scope. An IPv4-mapped IPv6 address becomes an IPv4 address."""
    return address.partition("%")[0].removeprefix("::ffff:")
