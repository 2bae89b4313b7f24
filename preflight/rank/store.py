"""Where the ranks of a trial meet: a file in the run directory on one node, a server on node 0 between several."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from datetime import timedelta

from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from preflight.errors import HarnessError
from preflight.model.run import Assignment
from preflight.system.processes import die_with_parent

START_S = 10.0
BACKLOG = 4096


def open_store(assignment: Assignment) -> Store:
    """Return the trial's store, whose every wait ends after the group's own timeout."""
    timeout = timedelta(seconds=assignment.init_timeout_s)
    if not assignment.store_host:
        store: Store = FileStore(assignment.store_path, assignment.world_size * assignment.sides)
    else:
        server = TCPStore(
            assignment.store_host, assignment.store_port, is_master=False, wait_for_workers=False, timeout=timeout
        )
        store = PrefixStore(assignment.store_path, server)
    store.set_timeout(timeout)
    return store


def serve_store(host: str) -> int:
    """Fork a process that serves a store on this address until this supervisor dies; return its port.

    A server has a thread, and a supervisor that has threads can't fork. torch by itself would listen on all addresses
    (facts 4.6), so the socket is bound here.
    """
    listener = socket.create_server((host, 0), family=_family(host), backlog=BACKLOG)
    port = int(listener.getsockname()[1])
    reader, writer = os.pipe()
    supervisor = os.getpid()
    if os.fork() == 0:
        try:
            die_with_parent(supervisor)
            os.close(reader)
            _serve(host, port, listener.detach(), writer)
        finally:
            os._exit(1)
    os.close(writer)
    listener.close()
    try:
        if not select.select([reader], [], [], START_S)[0]:
            raise HarnessError(f"the store's server on {host} port {port} did not start within {START_S:.0f} s")
        answer = json.loads(os.read(reader, 4096) or b'{"failed": "it died"}')
    finally:
        os.close(reader)
    if "failed" in answer:
        raise HarnessError(f"the store's server on {host} port {port} could not start: {answer['failed']}")
    return port


def _serve(host: str, port: int, fd: int, writer: int) -> None:
    try:
        server = TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=fd)
    except Exception as error:  # noqa: BLE001  whatever torch raises is the reason
        os.write(writer, json.dumps({"failed": str(error)[:500]}).encode())
        return
    os.write(writer, json.dumps({"serves": True}).encode())
    os.close(writer)
    while server is not None:  # its thread serves; a server that nobody refers to would end
        signal.pause()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
