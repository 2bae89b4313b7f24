"""Find the process, the host and the time of a log line, from the prefixes of launchers, torch, glog and NCCL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from preflight.explain.event import UNKNOWN, Moment
from preflight.explain.secrets import may_hold_secrets, without_secrets

ESCAPES = re.compile(
    r"\x1b\[[0-9;?]{0,20}[ -/]?[@-~]|\u2190\[[0-9;]{1,10}m|\x1b[()][0-9A-B]|[\x00-\x08\x0b\x0c\x0e-\x1f]"
)
# The message itself outranks every prefix: an agent prints lines about ranks that are not its own.
RANKS = (
    re.compile(r"(?:^|[^\w])\[[Rr]ank ?(\d{1,6})[\]|]"),
    re.compile(r"\[PG [^\]]{0,60}Rank (\d{1,6})\]"),
    re.compile(r"\brank(?: ?: |=| )(\d{1,6}) ?\(local"),
    re.compile(r"\[1,(\d{1,6})\]<std"),
    re.compile(r"\bon rank:? (\d{1,6})\b"),
    re.compile(r"^\s{0,5}(\d{1,5}): "),
    re.compile(r"\btask (\d{1,6})\b"),
    re.compile(r"\brank[ =](\d{1,6})\b", re.IGNORECASE),
)
# HOST:PID:TID [GPU]. A clock looks much like it, but it has two digits before its first colon, or a date.
NCCL_HOST = re.compile(
    r"(?<![\w.-])(?!\d{1,4}-\d\d-\d\d)([A-Za-z][\w.-]{0,63}|\d[\w.-]{2,63}):(\d{1,8}):(\d{1,8})[ :]\[-?\d"
)
HOSTS = (
    NCCL_HOST,
    re.compile(r"srun: error: ([\w.-]{1,64}): task"),
    re.compile(r"STEP \S{1,32} ON ([\w.-]{1,64})"),
    re.compile(r"\bhost\s{0,10}: ([\w.-]{1,64})"),
    re.compile(r", ip=([\d.]{7,15})\)"),
)
GLOG = re.compile(r"\[?[IWEF](?:20\d\d)?(\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)")
ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T_](\d\d):(\d\d):(\d\d(?:[.,]\d{1,9})?)")
KERNEL = re.compile(r"^\[\s{0,8}(\d{1,9}\.\d{6})\] ")
HEAD = 200


@dataclass(frozen=True, slots=True)
class Prefix:
    """The process, the host and the time in the prefixes of a log line."""

    rank: str
    host: str
    moment: Moment


def clean(raw: bytes) -> str:
    """Return a log line as text, without color codes, NUL bytes, undecodable bytes and secrets."""
    text = ESCAPES.sub("", raw.decode("utf-8", "replace"))
    return without_secrets(text) if may_hold_secrets(raw) else text


def line_around(block: bytes, at: int, end: int, limit: int, before: int) -> tuple[int, int]:
    """Return the start and the end of the line that contains the match from `at` to `end`.

    A long line is cut. At most `limit` bytes of the line remain on each side of the match.
    """
    # A carriage return also ends a line. If the line starts more than `limit` bytes before the match, the result starts
    # `before` bytes before the match. The result ends at most `limit` bytes after the match.
    low, high = max(0, at - limit), end + limit
    start = max(block.rfind(b"\n", low, at), block.rfind(b"\r", low, at)) + 1
    ends = [i for i in (block.find(b"\n", end, high), block.find(b"\r", end, high)) if i >= 0]
    return start or (at - before if low else 0), min(ends, default=min(high, len(block)))


def read_prefix(text: str) -> Prefix:
    """Return the process, the host and the time of a cleaned log line."""
    return Prefix(_first(RANKS, text), _first(HOSTS, text[: HEAD * 2]), read_moment(text[: HEAD * 2]))


def read_moment(text: str) -> Moment:
    """Return the first time stamp in a line, with the format of the time stamp as `clock`.

    Time stamps of different formats can't be compared.
    """
    # For example, a time stamp of glog has no year and is in local time.
    for clock, pattern in (("glog", GLOG), ("iso", ISO)):
        if match := pattern.search(text):
            *date, hour, minute, second = match.groups()
            days = sum(int(part) * length for part, length in zip(reversed(date), (1, 31, 372), strict=False))
            second = second.replace(",", ".")
            seconds = days * 86400 + int(hour) * 3600 + int(minute) * 60 + float(second)
            return Moment(clock, seconds, f"{hour}:{minute}:{second[:6]}")
    if match := KERNEL.search(text):
        return Moment("kernel", float(match[1]), match[1])
    return Moment()


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> str:
    return next((match[1] for pattern in patterns if (match := pattern.search(text))), UNKNOWN)
