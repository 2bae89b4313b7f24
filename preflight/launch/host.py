"""Node 0's launcher: it listens, takes the other nodes in, and passes their words on."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from preflight.errors import MalformedInput, MeetingError
from preflight.launch import wire
from preflight.launch.addresses import Listening, netif_of
from preflight.launch.listening import listen
from preflight.launch.others import FAREWELL_S, PING_S, SILENT_S, Node, who_is_missing, why_unlike
from preflight.launch.ready import Ready, make_room
from preflight.launch.rounds import Round, Rounds, Steps
from preflight.launch.strangers import Strangers
from preflight.launch.wire import Link, Message, line_of, pack, unpack
from preflight.model.between import Between
from preflight.model.codec import decode, encode
from preflight.model.facts import Netif
from preflight.model.together import Alone, Common, Hello
from preflight.system.waiting import wait_for

if TYPE_CHECKING:
    from preflight.launch.launcher import Launched

SOON_S = 0.25
TURN_S = 0.25
LOOK_S = 1.0  # every so often all nodes are looked at, also those that say nothing
# Given what each node found alone, the store's address and the seconds left: what each does next, or why none can.
Plan = Callable[[Mapping[int, Alone], str, float, Between | None], "Mapping[int, Common] | str"]
Learn = Callable[[Mapping[int, Alone]], Steps]  # what is asked of the nodes before their common trials


@dataclass(slots=True)
class Attending:
    """Another node that has introduced itself."""

    link: Link
    hello: Hello
    ends_by: float  # monotonic, on this node's clock
    alone: Alone | None = None
    ranks: range = field(default_factory=lambda: range(0))


class Host:
    """The meeting as node 0 holds it; a single thread, linear in the number of nodes."""

    def __init__(
        self, node: Node, listening: Listening, netifs: Sequence[Netif], plan: Plan, learn: Learn | None = None
    ) -> None:
        self._since = time.monotonic()
        self.node = node
        self._plan = plan
        self._listening = listening
        self._netifs = netifs
        self._listeners, self.port = listen(listening, node.placement.ports)
        self._turned_away: dict[str, str] = {}  # who came and was refused or went away again, by host
        self.guests: dict[int, Attending] = {}
        self._told_alone: dict[int, Alone] = {}  # also of those that have gone since
        self._all_are_here = False
        self.has_begun = False
        self._learn = learn
        self._rounds: Rounds | None = None
        self.between: Between | None = None  # what was learnt of the ways between the nodes
        self._ready = Ready()
        self._strangers = Strangers(self._ready, node.placement.nodes)
        self._has_room = False
        self._looked_at = 0.0  # when every node was last asked whether it still speaks

    @property
    def needs_no_ranks(self) -> bool:
        return False

    def files(self) -> tuple[list[int], list[int]]:
        self._ready.also_for_sending(guest.link for guest in self.guests.values())
        mirror = self.node.mirror.fds if self.node.mirror else ()
        reading = [
            *self.node.helpers.fds,
            *(listener.fileno() for listener in self._listeners),
            self._ready.fd,
            *mirror,
        ]
        return reading, []

    def turn(self, launched: Launched) -> None:
        """Take in who calls, hear every node, pass on what is new; a node that is gone ends the run for all."""
        self._strangers.accept(self._listeners)
        for link, hello in self._strangers.introduced():
            self._meet(link, hello)
        try:
            if not self._has_room:
                self._has_room = True
                make_room(self.node.placement.nodes)
            self._hear_guests(launched)
            if launched.alone_is_over and not self.has_begun:
                self._gather(launched)
                self._go_on(launched)
            if self.node.mirror is not None:
                for message in self.node.mirror.outbound():
                    self._tell_all(line_of(message))
        except MeetingError as error:
            launched.problem = launched.problem or str(error)

    def _hear_guests(self, launched: Launched) -> None:
        """Hear who has something to say, for a moment: what a thousand say at once may take many seconds to read."""
        ready, now = self._ready.descriptors(), time.monotonic()
        look_at_all = now - self._looked_at > LOOK_S
        if look_at_all:
            self._looked_at = now
        for node_rank, guest in list(self.guests.items()):
            if look_at_all and now - guest.link.sent_at > PING_S:
                guest.link.queue({"kind": "ping"})
            is_ready = guest.link.fileno() in ready
            if (is_ready and time.monotonic() - now < TURN_S) or (look_at_all and not is_ready):
                self._hear(node_rank, guest, launched)

    def _gather(self, launched: Launched) -> None:
        """Once all are here and through by themselves, begin; or say who is missing."""
        if self.node.alone is None:
            self.node.alone = self.node.tell_alone(launched)
            self.node.start_helpers()
        missing = [rank for rank in range(1, self.node.placement.nodes) if rank not in self.guests]
        if missing:
            launched.running = f"waiting for {len(missing)} of {self.node.placement.nodes} nodes"
            if time.monotonic() > self.node.meet_by:
                raise MeetingError(
                    who_is_missing(
                        self.node,
                        missing,
                        self._turned_away,
                        self._listening,
                        self.port,
                        time.monotonic() - self._since,
                    )
                )
            return
        self._close_listeners()
        unready = [guest for guest in self.guests.values() if guest.alone is None]
        if unready:
            launched.running = f"{unready[0].hello.host} and {len(unready) - 1} more are checking themselves"
            return
        self._all_are_here = True

    def _go_on(self, launched: Launched) -> None:
        """Ask the nodes for the ways between them; once all is answered, or late, let the common trials begin."""
        if not self._all_are_here:
            return
        assert self.node.alone is not None
        if self._rounds is None and self._learn is not None:
            self.node.alone = replace(self.node.alone, netif=netif_of(self._store_host(), self._netifs))
            self._rounds = Rounds(self._learn(self.alones()), self._ask)
        if self._rounds is not None:
            for number, answer in self.node.helpers.answers():
                self._rounds.take(0, number, answer)
            self._rounds.turn()
            launched.running = f"the ways between the nodes ({self._rounds.about})"
            self.between = self._rounds.result
        if self._rounds is None or self.between is not None:
            self._begin()

    def _ask(self, node_rank: int, number: int, asked: Round) -> None:
        if not node_rank:
            self.node.helpers.ask(number, asked.what, asked.questions[0], asked.limit_s)
        elif node_rank in self.guests:
            link = self.guests[node_rank].link
            question = pack(asked.questions[node_rank])
            link.queue({"kind": "ask", "number": number, "what": asked.what, "limit_s": asked.limit_s, "z": question})
            with contextlib.suppress(MeetingError):  # found again when it is heard
                link.send()

    def _store_host(self) -> str:
        """The address of this node at which most of the others came."""
        ((store_host, _),) = Counter(guest.link.here for guest in self.guests.values()).most_common(1)
        return store_host

    def _begin(self) -> None:
        store_host = self._store_host()
        assert self.node.alone is not None
        self.node.alone = replace(self.node.alone, netif=netif_of(store_host, self._netifs))
        ends_by = min(self.node.ends_by, *(guest.ends_by for guest in self.guests.values()))
        planned = self._plan(self.alones(), store_host, ends_by - time.monotonic(), self.between)
        if isinstance(planned, str):
            raise MeetingError(planned)
        self.has_begun = True
        for rank, guest in self.guests.items():
            common = planned[rank]
            assert guest.alone is not None
            guest.ranks = range(common.first_rank, common.first_rank + guest.alone.ranks)
            guest.link.queue({"kind": "common", "z": pack(encode(common))})
        self.node.begin(planned[0])

    def alones(self) -> dict[int, Alone]:
        """Return what the nodes found by themselves, as far as they have told it, by node rank."""
        own = {0: self.node.alone} if self.node.alone is not None else {}
        return own | dict(sorted(self._told_alone.items()))

    def _meet(self, link: Link, hello: Hello) -> None:
        why = why_unlike(self.node.hello, hello)
        taken = self.guests.get(hello.node_rank)
        if not why and taken is not None:
            why = f"node {hello.node_rank} is here already, from {taken.hello.host}"
        if why:
            self._turned_away[hello.host] = f"{hello.host} was refused: {why}"
            with contextlib.suppress(MeetingError):  # it went away before it was told
                link.queue({"kind": "refused", "why": why, "host": self.node.hello.host})
                link.send()
            link.close()
            return
        link.most_bytes = wire.GUEST_BYTES
        link.queue({"kind": "welcome", "host": self.node.hello.host})
        self.guests[hello.node_rank] = Attending(link, hello, time.monotonic() + hello.left_s)

    def _hear(self, node_rank: int, guest: Attending, launched: Launched) -> None:
        try:
            guest.link.send()
            for message in guest.link.receive():
                self._take(guest, message)
            if time.monotonic() - guest.link.heard_at > SILENT_S:
                raise MeetingError(f"not a word for {SILENT_S:.0f} s: the host or its network is down")
        except (MeetingError, MalformedInput) as error:
            during = f" during {launched.running}" if launched.running and launched.alone_is_over else ""
            del self.guests[node_rank]
            guest.link.close()
            gone = f"{guest.hello.host} (node {node_rank}) went away{during}: {error}"
            if not self._listeners:
                raise MeetingError(gone) from None
            self._turned_away[guest.hello.host] = gone  # it may come again: a pod that was restarted does

    def _take(self, guest: Attending, message: Message) -> None:
        match message["kind"]:
            case "alone":
                guest.alone = decode(Alone, unpack(message.get("z")))
                self._told_alone[guest.hello.node_rank] = guest.alone
            case "key" if self.node.mirror is not None:
                if self.node.mirror.take_key(message):  # only the first of a thousand that say the same
                    self._tell_all(line_of(message), but=guest)
            case "ends" if self.node.mirror is not None:
                self.node.mirror.take_ends(message, guest.ranks)
            case "told" if self._rounds is not None:
                self._rounds.take(guest.hello.node_rank, message.get("number"), unpack(message.get("z")))
            case "bye":
                raise MeetingError(str(message.get("why"))[:500])
            case _:
                pass  # a ping

    def _tell_all(self, line: bytes, but: Attending | None = None) -> None:
        for guest in self.guests.values():
            if guest is not but:
                guest.link.queue_line(line)
                with contextlib.suppress(MeetingError):  # found again when it is heard
                    guest.link.send()

    def finish(self, last: Message) -> None:
        """Send the last word to every node that is here, wait until it was taken, and close.

        Each node closes once it has it. Closing first would reset the connection where something of theirs is unread,
        and the last word would be lost with it.
        """
        self._close_listeners()
        self._tell_all(line_of(last))
        until = time.monotonic() + FAREWELL_S
        waiting = {guest.link.fileno(): guest.link for guest in self.guests.values()}
        while waiting and time.monotonic() < until:
            sending = [fd for fd, link in waiting.items() if link.wants_to_send]
            for fd in wait_for(waiting, sending, SOON_S):
                try:
                    waiting[fd].send()
                    waiting[fd].receive()
                except MeetingError:
                    del waiting[fd]
        self._strangers.close()
        for guest in self.guests.values():
            guest.link.close()
        self._ready.close()
        self.node.close()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []
