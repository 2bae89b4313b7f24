"""Find out before a check whether all nodes have the same report and can reuse the report.

If node 0 does not hear from every node, all nodes check again.
"""
# Each node sends one line to node 0 at the rendezvous endpoint, and gets one line back.

from __future__ import annotations

import contextlib
import resource
import select
import socket
import time
from collections.abc import Iterator, Sequence

from preflight.errors import MalformedInput, MeetingError
from preflight.model.facts import Netif
from preflight.model.placement import Placement
from preflight.trial.nodes.handshake import Handshakes
from preflight.trial.nodes.meeting_point import listen, listening_addresses, resolve
from preflight.trial.nodes.wire import HELLO_BYTES, Link, Message, Poller, raise_descriptor_limit

KIND = "reuse"
RESOLVE_S, CONNECT_S, RETRY_S = 3.0, 1.0, 0.1
TURN_S = 1.0  # after which those are dropped who say nothing


def why_no_agreement(place: Placement, netifs: Sequence[Netif], mine: str, limit_s: float) -> str:
    """Return why the nodes must check again, or "" if all nodes have the same report.

    `mine` is the creation time of this node's report, or "" if this node has no valid report.
    """
    # The nodes have `limit_s` seconds to ask each other.
    until = time.monotonic() + limit_s
    try:
        answer = _ask_all if place.node_rank == 0 else _ask_node_0
        return answer(place, netifs, mine, until)
    except MeetingError as error:
        return f"the nodes could not ask each other: {error}"


def _ask_all(place: Placement, netifs: Sequence[Netif], mine: str, until: float) -> str:
    listening = listening_addresses(place.host, resolve(place.host, RESOLVE_S).addresses, netifs)
    heard: dict[int, tuple[Link, str]] = {}
    with contextlib.ExitStack() as opened:
        opened.enter_context(_room_for(place.nodes))
        listeners, _ = listen(listening, place.ports)
        for listener in listeners:
            opened.enter_context(listener)
        for link, message in _callers(listeners, place.nodes, opened, until):
            node = message.get("node")
            if message.get("run") == place.run_id and isinstance(node, int) and 0 < node < place.nodes:
                heard[node] = (link, str(message.get("report")))
            if len(heard) == place.nodes - 1:
                break
        why = _why(place, mine, {node: report for node, (_, report) in heard.items()})
        for link, _ in heard.values():
            link.queue({"kind": KIND, "why": why})
            with contextlib.suppress(MeetingError):
                link.send()
    return why


@contextlib.contextmanager
def _room_for(nodes: int) -> Iterator[None]:
    """Raise the limit of open files for the duration of the block, to fit connections to `nodes` nodes.

    After the block, the original limit is restored, and the job gets the original limit.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit(nodes)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _why(place: Placement, mine: str, reports: dict[int, str]) -> str:
    missing = [place.name_of(node) for node in range(1, place.nodes) if node not in reports]
    if missing:
        return f"{missing[0]} sent nothing" + (f" and {len(missing) - 1} more" if missing[1:] else "")
    others = [place.name_of(node) for node, report in sorted(reports.items()) if report != mine]
    if not mine:
        return f"{place.name_of(0)} has no report that it can use"
    return f"{others[0]} has none that it can use, or another one" if others else ""


def _callers(
    listeners: Sequence[socket.socket], nodes: int, opened: contextlib.ExitStack, until: float
) -> Iterator[tuple[Link, Message]]:
    """Yield the link and the message of each caller that arrives before `until`.

    Callers that disconnect or send invalid data are left out.
    """
    ready, waiting = Poller(), select.poll()
    handshakes = Handshakes(ready, nodes, _word)
    opened.callback(ready.close)
    opened.callback(handshakes.close)
    for listener in listeners:
        listener.setblocking(False)
        waiting.register(listener, select.POLLIN)
    waiting.register(ready.fd, select.POLLIN)
    while (left_s := until - time.monotonic()) > 0:
        waiting.poll(1000 * min(left_s, TURN_S))
        handshakes.accept(listeners)
        for link, message in handshakes.introduced():
            ready.leave(link)
            opened.callback(link.close)
            yield link, message


def _word(message: Message) -> Message:
    """Return `message` if a node has sent it about its report.

    Raise MalformedInput for any other message.
    """
    if message["kind"] != KIND:
        raise MalformedInput("this is no word about a report")
    return message


def _ask_node_0(place: Placement, netifs: Sequence[Netif], mine: str, until: float) -> str:
    del netifs  # node 0's listen on them
    said = {"kind": KIND, "run": place.run_id, "node": place.node_rank, "report": mine}
    while time.monotonic() < until:
        for address in resolve(place.host, RESOLVE_S).addresses:
            for port in place.ports:
                with contextlib.suppress(OSError, MeetingError), _connected(address, port) as link:
                    link.queue(said)
                    link.send()
                    while select.select([link], [], [], max(0.0, until - time.monotonic()))[0]:
                        for message in link.receive():
                            return str(message.get("why", ""))
        time.sleep(RETRY_S)
    return f"{place.name_of(0)} did not answer"


@contextlib.contextmanager
def _connected(address: str, port: int) -> Iterator[Link]:
    link = Link(socket.create_connection((address, port), CONNECT_S), HELLO_BYTES)
    try:
        yield link
    finally:
        link.close()
