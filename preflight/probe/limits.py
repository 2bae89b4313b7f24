"""Read the soft resource limits of this process, which the ranks inherit."""

from __future__ import annotations

from preflight.model.facts import Limit, LimitFacts
from preflight.system.machine import Machine


def probe_limits(machine: Machine) -> LimitFacts:
    """Return the limits that NCCL and RDMA run into."""
    answer = machine.ask("rlimits")
    return LimitFacts(
        memlock_bytes=parse_limit(answer["memlock"]),
        nofile=parse_limit(answer["nofile"]),
        stack_bytes=parse_limit(answer["stack"]),
        nproc=parse_limit(answer["nproc"]),
    )


def parse_limit(value: int | str) -> int | Limit:
    """Return a limit, or that there is none."""
    return value if isinstance(value, int) else Limit.UNLIMITED
