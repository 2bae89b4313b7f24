"""One relevant line of a log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

UNKNOWN = ""


class Authority(IntEnum):
    """How close a kind of error is to the root cause.

    A lower value is closer to the root cause.
    """

    HARDWARE = 1  # nothing in software produces these
    KILLED = 2  # the scheduler or the kernel says so
    OWN_ERROR = 3  # one rank's own error: the others can only wait for it or lose it
    SETUP = 4  # printed by the rank that has the problem, before anything hangs
    EXCEPTION = 5  # an error of the program, after another one that names what failed
    UNEXPLAINED_DEATH = 6  # a process ended by a signal, with no word of its own; wrappers kill what has failed already
    MISMATCH = 7
    TRANSPORT = 8  # usually a cause, but it can be the echo of a peer that died
    REFINED_TIMEOUT = 9  # a timeout whose beginning the log explains
    TIMEOUT = 10  # something is missing; never what
    ECHO = 11  # always a consequence
    SILENCE = 12  # the log stops


def by_number(ranks: Iterable[str]) -> tuple[str, ...]:
    """Return the ranks without duplicates, sorted by number.

    Ranks that are not numbers come first.
    """
    return tuple(sorted(set(ranks), key=lambda rank: int(rank) if rank.isdigit() else -1))


@dataclass(frozen=True, slots=True)
class Moment:
    """A time stamp in a log.

    Two time stamps can be compared only if their `clock`, which is the format, is the same.
    """

    clock: str = UNKNOWN
    seconds: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """A log line that indicates a cause.

    `source` is the number of the log. `rank` and `host` are "" if unknown.
    """

    # `sign` is the name of the pattern that matched, and `match` is the matching text. `line` is the line number in
    # this log, and `order` is the line number over all logs. `steps` is the number of work steps that the log reported
    # before the line.

    sign: str
    cause: str
    authority: Authority
    source: int
    line: int
    order: int
    rank: str
    host: str
    moment: Moment
    text: str  # cleaned, at most TEXT_LIMIT characters, around the sign
    match: str = ""
    steps: int = 0  # the steps of work that its log had reported before this line
    is_warning: bool = False  # printed as a Python warning, after which the program continues; no hardware fault
