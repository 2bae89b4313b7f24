"""Read the kernel messages from before this run, and count how often each interface lost its link."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from preflight.errors import UnreadableFact
from preflight.facts.reading import first_of, gap_or, read_whole
from preflight.model.facts import Gap
from preflight.model.lookback import KernelHistory, TimedLine
from preflight.model.policy import Lookback, Policy
from preflight.system.machine import Machine

NETIFS = "sys/class/net"
MOST_LINES = 10_000


def probe_history(machine: Machine, policy: Policy | None) -> KernelHistory | Gap | None:
    """Return the kernel log from before the run and the lost links of interfaces.

    Return a Gap object with the reason if the log can't be read, and None if `policy` has no `[lookback]`.
    """
    # The result is also None if `policy` is None.
    if policy is None or policy.lookback == Lookback():
        return None
    read = gap_or(lambda: parse_history(machine.ask("kernel_history")))
    if isinstance(read, Gap):
        return read
    return KernelHistory(read.now_s, read.begins_s, read.lines, tuple(_losses(machine)))


def parse_history(answer: Any) -> KernelHistory:
    """Return the kernel log in `answer`, a dictionary {"now_s", "begins_s", "lines": [[seconds, text], ...]}.

    Raise UnreadableFact if `answer` has another form.
    """
    try:
        lines = tuple(TimedLine(float(at_s), str(text)) for at_s, text in answer["lines"][-MOST_LINES:])
        return KernelHistory(float(answer["now_s"]), float(answer["begins_s"]), lines)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UnreadableFact(f"the kernel log is no list of lines with times: {type(error).__name__}") from None


def _losses(machine: Machine) -> Iterator[tuple[str, int | Gap]]:
    """Yield (name, number of link losses) for each network interface of a device whose link is up now.

    The kernel document sysfs-class-net describes the files.
    """
    for name in machine.names(NETIFS):
        place = f"{NETIFS}/{name}"
        if machine.exists(f"{place}/device") and gap_or(partial(read_whole, machine, f"{place}/carrier")) == 1:
            yield name, gap_or(partial(_lost, machine, place))


def _lost(machine: Machine, place: str) -> int:
    """Return how often a link went down.

    The result is carrier_down_count (since Linux 4.16). Without this file, the result is half of carrier_changes.
    """
    return first_of(
        lambda: read_whole(machine, f"{place}/carrier_down_count"),
        lambda: read_whole(machine, f"{place}/carrier_changes") // 2,
    )
