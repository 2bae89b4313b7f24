"""The launcher of a node other than node 0: find node 0, report results, and relay messages."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from dataclasses import replace
from typing import Any

from preflight.errors import MalformedInput, MeetingError
from preflight.model.codec import decode, encode
from preflight.model.facts import Netif
from preflight.model.joint import JointPlan
from preflight.model.placement import Origin
from preflight.trial.launch_result import Launch
from preflight.trial.nodes import wire
from preflight.trial.nodes.meeting_point import is_address, is_loopback, netif_of, resolve
from preflight.trial.nodes.peers import Member
from preflight.trial.nodes.wire import Link, Message, pack, plain_address, unpack

RETRY_S = 0.5
RESOLVE_S = 3.0
CONNECT_S = 5.0  # the kernel takes 3 s to find that no neighbour has an address
WELCOME_S = 5.0
# Both ends keep to it: nodes meet also over a way that drops large packets, and can then say that it does.
SMALL_SEGMENT_BYTES = 1200
REASONS = {
    errno.ECONNREFUSED: "refused: the host answers, but no process listens on that port yet, or a firewall rejects "
    "the connection",
    errno.EHOSTUNREACH: "no route: the host is down or in another network",
    errno.ENETUNREACH: "no route to its network from this node",
    errno.ETIMEDOUT: "dropped: no answer came (a firewall may drop the packets)",
}


class Follower:
    """The rendezvous on a follower. A follower is any node other than node 0."""

    def __init__(self, node: Member, netifs: tuple[Netif, ...]) -> None:
        self.node = node
        self._netifs = netifs
        self._link: Link | None = None
        self._is_welcome = False
        self._has_sent_solo = False
        self._next_try_at = 0.0
        self._tries = 0
        self._trying = ""  # the address and port of the attempt under way
        self._why: dict[str, str] = {}  # why each address did not work, the latest
        self._host = ""
        self._refused = ""
        self.report: Any = None  # node 0's last word

    @property
    def needs_no_ranks(self) -> bool:
        """Return whether the run may continue after this node's ranks have ended."""
        # The run may continue once the test runs on all nodes have begun, because node 0 may send its last message
        # later.
        return self.node.relay is not None  # node 0's report comes after its stop has ended them

    def files(self) -> tuple[list[int], list[int]]:
        """Return the descriptors to read from and the descriptors to write to."""
        if self._link is None:
            return self.node.fds, []
        return [self._link.fileno(), *self.node.fds], [self._link.fileno()] if self._link.wants_to_send else []

    def turn(self, launched: Launch) -> None:
        """Try to connect to node 0, or process the messages of node 0, and return without waiting."""
        try:
            for number, answer in self.node.probes.answers():
                self._reply(number, answer)
            if self._link is not None:
                self._talk(self._link, launched)
            elif not self._refused:  # else there is nothing to wait for, but what this node finds alone
                self._look_for_node_0()
        except (MeetingError, MalformedInput) as error:
            self._lose(str(error), launched)
        if launched.result.solo is None or launched.is_over:
            return
        solo = self.node.report(launched.result)
        if self._refused:
            launched.fail(self._refused)
        elif not self._is_welcome:
            launched.is_at(f"looking for {self.node.placement.name_of(0)}")
            if time.monotonic() > self.node.meet_by:
                launched.fail(self._why_not())
        elif not self._has_sent_solo and self._link is not None:
            self._has_sent_solo = True
            self.node.start_probes()
            launched.is_at("waiting for the other nodes")
            solo = replace(solo, netif=netif_of(self._link.here, self._netifs))
            self._link.queue({"kind": "solo", "z": pack(encode(solo))})

    def _look_for_node_0(self) -> None:
        now = time.monotonic()
        if now < self._next_try_at:
            return
        place = self.node.placement
        found = resolve(place.host, max(0.2, min(RESOLVE_S, self.node.meet_by - now)))
        self._next_try_at = time.monotonic() + RETRY_S
        if not found.addresses:
            self._why = {place.host: found.problem}
            return
        self._why.pop(place.host, None)
        pairs = [(address, port) for port in place.ports for address in found.addresses]
        address, port = pairs[self._tries % len(pairs)]
        self._tries += 1
        self._trying = f"{address} port {port}"
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT_BYTES)
        sock.setblocking(False)
        error = sock.connect_ex((address, port))
        if error not in (0, errno.EINPROGRESS):
            sock.close()
            self._why[self._trying] = _reason(error)
            return
        self._link = Link(sock)
        hello = replace(self.node.hello, left_s=max(0.0, self.node.ends_by - time.monotonic()))
        self._link.queue({"kind": "hello", "hello": encode(hello)})

    def _talk(self, link: Link, launched: Launch) -> None:
        now = time.monotonic()
        if not self._is_welcome and link.wants_to_send and now - link.since > CONNECT_S:
            raise MeetingError(_reason(errno.ETIMEDOUT))
        try:
            link.send()
            for message in link.receive():
                self._take(link, message, launched)
        except MeetingError:
            if self._is_welcome or not link.broke:
                raise
            raise MeetingError(_reason(link.broke)) from None
        if not self._is_welcome and now - link.since > CONNECT_S + WELCOME_S:
            raise MeetingError("another program than preflight listens there")
        if self._is_welcome:
            link.refuse_silence()
            link.ping(now)
        if self.node.relay is not None:
            for message in self.node.relay.outbound():
                link.queue(message)
            link.send()

    def _take(self, link: Link, message: Message, launched: Launch) -> None:
        match message["kind"]:
            case "welcome":
                self._is_welcome = True
                self._host = str(message.get("host"))[:255]
                link.most_bytes = wire.LEADER_BYTES
                self.node.origins.append(Origin("reached", self._trying, f"from {link.here}"))
            case "refused":
                host = str(message.get("host"))[:255]
                self._refused = f"{host} (node 0) refuses this node: {str(message.get('why'))[:500]}"
                raise MeetingError("refused")
            case "joint" if self._is_welcome:
                self.node.begin(decode(JointPlan, unpack(message.get("z"))))
                launched.is_at("the common trials")
            case "ask" if self._is_welcome:
                self._answer(message)
            case "key" if self.node.relay is not None:
                self.node.relay.take_key(message)
            case "report" if self._is_welcome:
                self.report = unpack(message.get("z"))
                launched.end()
            case "bye":
                raise MeetingError(str(message.get("why"))[:500])
            case _:
                pass  # a ping

    def _answer(self, message: Message) -> None:
        """Have a child process answer the question of node 0 in `message`.

        Only the question for the clock is answered at once, without a child process.
        """
        number, what = message.get("number"), str(message.get("what"))
        limit_s, question = message.get("limit_s"), unpack(message.get("z"))
        if not isinstance(number, int) or not isinstance(limit_s, float) or not isinstance(question, dict):
            raise MeetingError("its request can't be understood")
        if what == "clock":
            self._reply(number, {"value": time.time()})
        else:
            self.node.probes.ask(number, what, question, limit_s)

    def _reply(self, number: int, answer: Any) -> None:
        if self._link is not None:
            self._link.queue({"kind": "reply", "number": number, "z": pack(answer)})
            self._link.send()

    def _lose(self, why: str, launched: Launch) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if launched.is_over:
            return
        if self.node.relay is not None:
            during = f" during {launched.result.running}" if launched.result.running else ""
            launched.fail(f"{self._host or 'node 0'} (node 0) went away{during}: {why}")
            return
        # Before the common trials it may come again: a pod that was restarted does.
        self._why[self._trying] = f"the connection to it was lost: {why}" if self._is_welcome else why
        self._is_welcome = self._has_sent_solo = False
        self._next_try_at = time.monotonic() + RETRY_S

    def _why_not(self) -> str:
        place = self.node.placement
        parts = []
        for where, why in self._why.items():
            address = where.partition(" port ")[0]
            looped = is_loopback(plain_address(address)) and not is_address(place.host)
            trap = f"; {place.host} resolves to a loopback address on this node, which reaches no other"
            parts.append(f"{where}: {why}{trap if looped else ''}" if where != place.host else why)
        tried = "; ".join(parts) or "no time was left to try"
        return f"{place.name_of(0)} at {place.host} was not reached: {tried}"

    def finish(self, why: str) -> None:
        """Close the connection to node 0.

        If `why` is not "", first send node 0 the reason `why` this node stops.
        """
        if self._link is not None:
            if why and self._is_welcome:
                with contextlib.suppress(MeetingError):
                    self._link.queue({"kind": "bye", "why": why})
                    self._link.send()
            self._link.close()
        self.node.close()


def _reason(error: int) -> str:
    return REASONS.get(error, f"failed: {os.strerror(error)}")
