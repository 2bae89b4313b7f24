"""Count the errors of a node's RDMA ports during a test run. The first rank of each node reads the counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight.facts.pci_bus import HCAS
from preflight.facts.rdma import read_port_errors
from preflight.system.isolate import run_isolated
from preflight.system.machine import Machine

LIMIT_S = 1.0  # an adapter whose firmware hangs may keep a reader for a minute
READ = "port errors"

Counted = Mapping[str, Mapping[str, int]]


def port_errors_now(machine: Machine, limit_s: float = LIMIT_S) -> Counted:
    """Return the error counters of the node's RDMA ports, or {} if there is no port or the read takes too long.

    Call this function from a process with a single thread, because the function forks.
    """
    if not machine.exists(HCAS):
        return {}
    answer = run_isolated({READ: lambda: read_port_errors(machine)}, {READ: limit_s})[READ]
    return answer.value or {}


def port_errors_between(before: Counted, after: Counted) -> list[dict[str, Any]]:
    """Return the ports on which an error counter grew from `before` to `after`.

    Each result has the fields of PortErrors except `rank`.
    """
    grown = {
        port: [
            {"name": name, "value": value - before[port][name]}
            for name, value in sorted(counters.items())
            if value > before.get(port, {}).get(name, value)
        ]
        for port, counters in after.items()
    }
    return [{"port": port, "counters": counters} for port, counters in grown.items() if counters]
