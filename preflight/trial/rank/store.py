"""The rendezvous store of a test run's ranks: a file on one node, or a server on node 0 for several nodes."""

from __future__ import annotations

import signal
import socket
from datetime import timedelta

from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from preflight.errors import HarnessError
from preflight.model.run_spec import Assignment
from preflight.system.child import Parent
from preflight.system.crew import Crew, Lost

START_S = 10.0
BACKLOG = 4096


def open_store(assignment: Assignment) -> Store:
    """Return the store of the test run.

    On one node, the store is a file. On several nodes, the store is a client of node 0's server. A wait on the store
    raises an error after the timeout of the stage `init`.
    """
    timeout = timedelta(seconds=assignment.limits.own_timeout_s("init"))
    place = assignment.store
    if not place.host:
        store: Store = FileStore(place.path, assignment.world_size * assignment.sides)
    else:
        server = TCPStore(place.host, place.port, is_master=False, wait_for_workers=False, timeout=timeout)
        store = PrefixStore(place.path, server)
    store.set_timeout(timeout)
    return store


def serve_store(host: str) -> int:
    """Fork a process that serves a store on the address `host` until this agent dies, and return the store's port.

    Raise HarnessError if the server does not start.
    """
    # The server needs a thread, but an agent with threads can't fork. The socket is bound here because torch would
    # listen on all addresses (docs/dev/nccl-facts.md, section 4.6).
    listener = socket.create_server((host, 0), family=_family(host), backlog=BACKLOG)
    port = int(listener.getsockname()[1])
    crew = Crew[str]()  # no `with` block ends it: it dies with this process
    crew.fork("store", lambda parent: _serve(host, port, listener.detach(), parent), START_S)
    listener.close()
    ((_, answer, lost),) = crew.listen()
    if lost is Lost.LATE:
        raise HarnessError(f"the store's server on {host} port {port} did not start within {START_S:.0f} s")
    if problem := "it died" if lost else answer["problem"]:
        raise HarnessError(f"the store's server on {host} port {port} could not start: {problem}")
    return port


def _serve(host: str, port: int, fd: int, parent: Parent) -> None:
    try:
        server = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=fd)
    except Exception as error:  # noqa: BLE001  whatever torch raises is the reason
        parent.send({"problem": str(error)[:500]})
        return
    parent.send({"problem": ""})
    while server is not None:  # its thread serves; a server without a reference would end
        signal.pause()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
