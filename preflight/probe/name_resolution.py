"""Read what the host's own name resolves to: gloo binds to it, and rendezvous hands it to other hosts."""

from __future__ import annotations

from preflight.model.facts import NameResolution
from preflight.system.machine import Machine


def probe_name_resolution(machine: Machine) -> NameResolution:
    """Return the host's name and its addresses in the resolver's order; UnreadableFact where it has none."""
    answer = machine.ask("host_addresses")
    return NameResolution(name=answer["name"], addresses=tuple(answer["addresses"]))
