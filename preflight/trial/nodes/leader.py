"""The launcher of node 0, which accepts the other nodes and relays their messages."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from preflight.errors import MalformedInput, MeetingError
from preflight.model.codec import decode, encode
from preflight.model.facts import Netif
from preflight.model.joint import Hello, JointPhase, JointPlan, SoloResult
from preflight.model.network_survey import NetworkSurvey
from preflight.model.placement import start_of
from preflight.system.waiting import wait_for
from preflight.trial.launch_result import Launch
from preflight.trial.nodes import wire
from preflight.trial.nodes.handshake import Handshakes
from preflight.trial.nodes.meeting_point import Listening, listen, netif_of
from preflight.trial.nodes.peers import FAREWELL_S, Member, why_unlike
from preflight.trial.nodes.queries import Queries, Query, QuerySteps
from preflight.trial.nodes.wire import Link, Message, Poller, line_of, pack, raise_descriptor_limit, unpack

SOON_S = 0.25
TURN_S = 0.25
LOOK_S = 1.0  # every so often all nodes are looked at, also those that say nothing
# Given what each node found by itself, the store's address and the seconds left: what each does next, or why none can.
Plan = Callable[[Mapping[int, SoloResult], str, float, NetworkSurvey | None], "Mapping[int, JointPlan] | str"]
Learn = Callable[[Mapping[int, SoloResult]], QuerySteps]  # what is asked of the nodes before their common trials


@dataclass(slots=True)
class FollowerState:
    """The data that node 0 keeps about another node that has identified itself."""

    link: Link
    hello: Hello
    ends_by: float  # monotonic, on this node's clock
    solo: SoloResult | None = None
    ranks: range = field(default_factory=lambda: range(0))


class Leader:
    """The rendezvous on node 0, which runs in one thread."""

    needs_no_ranks = False  # whether this node's ranks may be gone and the run still goes on

    def __init__(
        self, node: Member, listening: Listening, netifs: Sequence[Netif], plan: Plan, learn: Learn | None = None
    ) -> None:
        self._since = time.monotonic()
        self.node = node
        self._plan = plan
        self._listening = listening
        self._netifs = netifs
        self._listeners, self.port = listen(listening, node.placement.ports)
        self._turned_away: dict[str, str] = {}  # who came and was refused or went away again, by host
        self.followers: dict[int, FollowerState] = {}
        self._solo_results: dict[int, SoloResult] = {}  # also of those that have gone since
        self.has_begun = False
        self._learn = learn
        self._store_host = ""
        self._queries: Queries | None = None
        self.network: NetworkSurvey | None = None  # what was learnt of the ways between the nodes
        self._ready = Poller()
        self._handshakes = Handshakes(
            self._ready, node.placement.nodes, lambda message: decode(Hello, message.get("hello"))
        )
        self._has_raised_limit = False
        self._looked_at = 0.0  # when every node was last asked whether it still speaks

    def files(self) -> tuple[list[int], list[int]]:
        """Return the descriptors to read from and the descriptors to write to."""
        self._ready.also_for_sending(follower.link for follower in self.followers.values())
        return [*self.node.fds, *(listener.fileno() for listener in self._listeners), self._ready.fd], []

    def turn(self, launched: Launch) -> None:
        """Accept callers, read the messages of every node, and relay new messages.

        If the connection to a node is lost, the run ends for all nodes.
        """
        self._handshakes.accept(self._listeners)
        for link, hello in self._handshakes.introduced():
            self._meet(link, hello)
        try:
            if not self._has_raised_limit:
                self._has_raised_limit = True
                raise_descriptor_limit(self.node.placement.nodes)
            self._hear_followers(launched)
            if launched.result.solo and not self.has_begun and self._are_all_ready(launched):
                self._go_on(launched)
            if self.node.relay is not None:
                for message in self.node.relay.outbound():
                    self._tell_all(line_of(message))
        except MeetingError as error:
            launched.fail(str(error))

    def _hear_followers(self, launched: Launch) -> None:
        """Read from the nodes that have sent something, for at most TURN_S seconds.

        This limit exists because the messages of a thousand nodes may take many seconds to read. About once a second,
        the method also checks all nodes.
        """
        ready, now = self._ready.descriptors(), time.monotonic()
        look_at_all = now - self._looked_at > LOOK_S
        if look_at_all:
            self._looked_at = now
        for node_rank, follower in list(self.followers.items()):
            if look_at_all:
                follower.link.ping(now)
            is_ready = follower.link.fileno() in ready
            if (is_ready and time.monotonic() - now < TURN_S) or (look_at_all and not is_ready):
                self._hear(node_rank, follower, launched)

    def _are_all_ready(self, launched: Launch) -> bool:
        """Return whether all nodes have joined and finished their own tests.

        Raise MeetingError if a node is missing and the time for joining is up.
        """
        if self.node.solo is None:
            self.node.start_probes()
        self.node.report(launched.result)
        missing = [rank for rank in range(1, self.node.placement.nodes) if rank not in self.followers]
        if missing:
            launched.is_at(f"waiting for {len(missing)} of {self.node.placement.nodes} nodes")
            if time.monotonic() > self.node.meet_by:
                raise MeetingError(self._who_is_missing(missing))
            return False
        self._close_listeners()
        unready = [follower for follower in self.followers.values() if follower.solo is None]
        if unready:
            launched.is_at(f"{unready[0].hello.host} and {len(unready) - 1} more are checking themselves")
        return not unready

    def _who_is_missing(self, missing: Sequence[int]) -> str:
        """Return a line on the missing nodes and on the address at which node 0 listened.

        The line says which nodes did not join, were refused or left.
        """
        place, listening = self.node.placement, self._listening
        names = [place.name_of(rank) for rank in missing[:8]]
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        waited_s = time.monotonic() - self._since
        came = f"{place.nodes - len(missing)} of {place.nodes} nodes came within {waited_s:.0f} s"
        refused = "; ".join(why for _, why in sorted(self._turned_away.items())[:4])
        where = ", ".join(address or "all interfaces" for address in listening.addresses)
        listened = f"node 0 ({self.node.hello.host}) listened on {where} port {self.port} ({listening.why})"
        line = start_of(place, missing[0])
        start = f"start {place.name_of(missing[0])} as well: `{line}`" if line else ""
        return "; ".join(filter(None, (came, f"missing: {', '.join(names)}{more}", start, refused, listened)))

    def _go_on(self, launched: Launch) -> None:
        """Ask the nodes about the network paths between them; then begin the trials on all nodes.

        A node that does not answer in time delays neither the questions nor the trials.
        """
        if not self._store_host:  # the address of this node at which most of the others came
            ((self._store_host, _),) = Counter(each.link.here for each in self.followers.values()).most_common(1)
            solo = self.node.report(launched.result)
            self.node.solo = replace(solo, netif=netif_of(self._store_host, self._netifs))
            self._queries = Queries(self._learn(self.solo_results()), self._ask) if self._learn else None
        if self._queries is not None:
            for number, answer in self.node.probes.answers():
                self._queries.take(0, number, answer)
            self._queries.turn()
            launched.is_at(f"the network paths between the nodes ({self._queries.about})")
            self.network = self._queries.result
        if self._queries is None or self.network is not None:
            self._begin()

    def _ask(self, node_rank: int, number: int, asked: Query) -> None:
        if not node_rank:
            self.node.probes.ask(number, asked.what, asked.questions[0], asked.limit_s)
        elif node_rank in self.followers:
            link = self.followers[node_rank].link
            question = pack(asked.questions[node_rank])
            link.queue({"kind": "ask", "number": number, "what": asked.what, "limit_s": asked.limit_s, "z": question})
            with contextlib.suppress(MeetingError):  # found again when it is heard
                link.send()

    def _begin(self) -> None:
        ends_by = min(self.node.ends_by, *(follower.ends_by for follower in self.followers.values()))
        planned = self._plan(self.solo_results(), self._store_host, ends_by - time.monotonic(), self.network)
        if isinstance(planned, str):
            raise MeetingError(planned)
        self.has_begun = True
        for rank, follower in self.followers.items():
            first = planned[rank].place.first_rank
            assert follower.solo is not None
            follower.ranks = range(first, first + follower.solo.ranks)
            follower.link.queue({"kind": "joint", "z": pack(encode(planned[rank]))})
        self.node.begin(planned[0])

    @property
    def joint_phase(self) -> JointPhase:
        return JointPhase(self.solo_results(), self.has_begun, self.network)

    def solo_results(self) -> dict[int, SoloResult]:
        """Return the results of each node's own test runs that have arrived so far, by node rank."""
        own = {0: self.node.solo} if self.node.solo is not None else {}
        return own | dict(sorted(self._solo_results.items()))

    def _meet(self, link: Link, hello: Hello) -> None:
        why = why_unlike(self.node.hello, hello)
        taken = self.followers.get(hello.node_rank)
        if not why and taken is not None:
            why = f"node {hello.node_rank} is here already, from {taken.hello.host}"
        if why:
            self._turned_away[hello.host] = f"{hello.host} was refused: {why}"
            with contextlib.suppress(MeetingError):  # it is gone already
                link.queue({"kind": "refused", "why": why, "host": self.node.hello.host})
                link.send()
            link.close()
            return
        link.most_bytes = wire.FOLLOWER_BYTES
        link.queue({"kind": "welcome", "host": self.node.hello.host})
        self.followers[hello.node_rank] = FollowerState(link, hello, time.monotonic() + hello.left_s)

    def _hear(self, node_rank: int, follower: FollowerState, launched: Launch) -> None:
        try:
            follower.link.send()
            for message in follower.link.receive():
                self._take(follower, message)
            follower.link.refuse_silence()
        except (MeetingError, MalformedInput) as error:
            during = f" during {launched.result.running}" if launched.result.running and launched.result.solo else ""
            del self.followers[node_rank]
            follower.link.close()
            gone = f"{follower.hello.host} (node {node_rank}) went away{during}: {error}"
            if not self._listeners:
                raise MeetingError(gone) from None
            self._turned_away[follower.hello.host] = gone  # it may come again: a pod that was restarted does

    def _take(self, follower: FollowerState, message: Message) -> None:
        match message["kind"]:
            case "solo":
                follower.solo = decode(SoloResult, unpack(message.get("z")))
                self._solo_results[follower.hello.node_rank] = follower.solo
            case "key" if self.node.relay is not None:
                if self.node.relay.take_key(message):  # only the first of a thousand that say the same
                    self._tell_all(line_of(message), but=follower)
            case "ends" if self.node.relay is not None:
                self.node.relay.take_ends(message, follower.ranks)
            case "reply" if self._queries is not None:
                self._queries.take(follower.hello.node_rank, message.get("number"), unpack(message.get("z")))
            case "bye":
                raise MeetingError(str(message.get("why"))[:500])
            case _:
                pass  # a ping

    def _tell_all(self, line: bytes, but: FollowerState | None = None) -> None:
        for follower in self.followers.values():
            if follower is not but:
                follower.link.queue_line(line)
                with contextlib.suppress(MeetingError):  # found again when it is heard
                    follower.link.send()

    def finish(self, last: Message) -> None:
        """Send the message `last` to every connected node, and then close all connections.

        Before the connections are closed, wait until the nodes have received the message.
        """
        # Node 0 must not close a connection first, because unread data would reset the connection and lose the last
        # message.
        self._close_listeners()
        self._tell_all(line_of(last))
        until = time.monotonic() + FAREWELL_S
        waiting = {follower.link.fileno(): follower.link for follower in self.followers.values()}
        while waiting and time.monotonic() < until:
            sending = [fd for fd, link in waiting.items() if link.wants_to_send]
            for fd in wait_for(waiting, sending, SOON_S):
                try:
                    waiting[fd].send()
                    waiting[fd].receive()
                except MeetingError:
                    del waiting[fd]
        self._handshakes.close()
        for follower in self.followers.values():
            follower.link.close()
        self._ready.close()
        self.node.close()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []
