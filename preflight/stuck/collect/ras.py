"""Ask NCCL's RAS which ranks are missing or behind.

RAS (reliability, availability and serviceability) is a part of NCCL 2.24 and newer. A query can crash the job.
"""
# The crash is described in docs/dev/nccl-facts.md, section 1.5. RAS is therefore queried only on request, or if the
# NCCL release was reviewed.

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Sequence
from enum import Enum

from preflight.errors import UnreadableFact
from preflight.model.gap import Gap
from preflight.model.nccl_ras import REVIEWS, RasReview, why_not_ask
from preflight.model.stuck_evidence import Connection, RasAnswer, RasRank
from preflight.stuck.collect.jobs import ListedProcess
from preflight.stuck.collect.libraries import mapped_libraries, read_nccl_version
from preflight.stuck.collect.open_files import Descriptors, read_connections
from preflight.system.machine import Machine

DEFAULT_ADDRESS = "localhost:28028"
ANSWER_S, LEG_S = 5.0, 2
GONE = "does not answer"
NOT_ASKED = "NCCL's RAS was not queried: "
INSIST = "; `--ras` queries it anyway"
PORT = re.compile(r"\d{1,5}", re.ASCII)
COMPLAINT = re.compile(r"^(?:INCOMPLETE|DEAD|TIMEOUT)\b", re.MULTILINE)
MOST_BYTES = 1 << 20
KEPT_CHARS = 8000
QUESTION = f"timeout {LEG_S}\nverbose status\n"
VERSION = re.compile(r"NCCL version (\S{1,40})")
BLOCK = re.compile(r"^#\d{1,6}-\d{1,6} \([0-9a-f]{1,16}\) (\w{1,20})", re.MULTILINE)
MISSING = re.compile(r"missing ranks?: ([\d, ]{1,2000})")
RANK = re.compile(r"Rank (\d{1,7})\b(?:[^\n]{0,80}managed by process (\d{1,9})(?: on node (\S{1,255}))?)?")
COUNTED = re.compile(r"have different (\w{1,40}) operation counts")
LAUNCHED = re.compile(
    r"(?:\d{1,7} ranks? ha(?:ve|s)|Rank \d{1,7} has) (?:launched up to operation (\d{1,18})|not launched any)"
)


class AskRas(Enum):
    """When to query NCCL's RAS: only if the NCCL release was reviewed as safe, always, or never."""

    REVIEWED = "reviewed"  # if the release was reviewed and found safe
    INSIST = "insist"
    NEVER = "never"


def ask_ras(
    machine: Machine,
    ranks: Sequence[ListedProcess],
    how: AskRas = AskRas.REVIEWED,
    reviews: Sequence[RasReview] = REVIEWS,
) -> RasAnswer | Gap:
    """Return RAS's reply about the job of `ranks`, or a Gap object if RAS is not queried or does not reply."""
    # RAS is not queried if another job may use the same port, or if `how` and `reviews` forbid a query.
    address = next((r.places["NCCL_RAS_ADDR"] for r in ranks if r.places.get("NCCL_RAS_ADDR")), DEFAULT_ADDRESS)
    host, _, port = address.rpartition(":")
    if not PORT.fullmatch(port):
        return Gap(f"NCCL_RAS_ADDR {address!r} is not an address")
    # The sockets that listen on its port, and the ranks' among them: NCCL shares it (SO_REUSEPORT).
    table: dict[int, Connection] = {}
    own: set[int] = set()
    for each in ranks:
        with contextlib.suppress(UnreadableFact):
            own |= Descriptors.read(machine, each.pid).sockets
            table = table or read_connections(machine, each.pid)
    listening = {inode for inode, each in table.items() if each.state == "LISTEN" and each.local.endswith(f":{port}")}
    if not listening & own:
        return Gap(f"no rank of this job listens on RAS's port {port}: RAS is off, or there is no NCCL 2.24 or newer")
    if listening - own:
        return Gap(
            f"another process listens on RAS's port {port} too and may answer, so give each job its own NCCL_RAS_ADDR"
        )
    if reason := _why_not_asked(machine, ranks, how, reviews):
        return Gap(f"{NOT_ASKED}{reason}")
    data = b""
    try:
        with socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout=ANSWER_S) as connection:
            connection.sendall(QUESTION.encode())
            while len(data) < MOST_BYTES and (piece := connection.recv(1 << 16)):
                data += piece
    except OSError as error:
        return Gap(f"RAS at {address} does not answer: {error}")
    text = data.decode("utf-8", "backslashreplace")
    return (
        parse_ras(text, address)
        if VERSION.search(text)
        else Gap(f"the process that listens at {address} is not NCCL's RAS")
    )


def _why_not_asked(machine: Machine, ranks: Sequence[ListedProcess], how: AskRas, reviews: Sequence[RasReview]) -> str:
    """Return why RAS must not be queried, or "" if a query is allowed.

    The answer depends on the NCCL releases that the ranks have loaded.
    """
    match how:
        case AskRas.INSIST:
            return ""
        case AskRas.NEVER:
            return "`preflight run` never queries RAS, but `preflight stuck --ras` does"
        case AskRas.REVIEWED:
            versions = set()
            for each in ranks:
                with contextlib.suppress(UnreadableFact):
                    for path in mapped_libraries(machine.text(f"proc/{each.pid}/maps")):
                        versions.add(read_nccl_version(f"/proc/{each.pid}/root{path}") or "unknown")
            if not versions:
                return f"the release of NCCL could not be read from the ranks' libraries{INSIST}"
            reason = next(filter(None, (why_not_ask(version, reviews) for version in sorted(versions))), "")
            return f"{reason}{INSIST}" if reason else ""


def parse_ras(text: str, address: str) -> RasAnswer:
    """Return the ranks that RAS reports as missing or behind. `text` is RAS's reply to `verbose status`.

    RAS calls these ranks INCOMPLETE or MISMATCH. `address` is RAS's address.
    """
    version = VERSION.search(text)
    missing: dict[int, RasRank] = {}
    behind: dict[int, RasRank] = {}
    heads = list(BLOCK.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        block = text[head.end() : following.start() if following else len(text)].partition("\n\n")[0]
        if head[1] == "INCOMPLETE":
            listed = [n for found in MISSING.findall(block) for n in found.replace(",", " ").split()]
            missing |= {int(n): RasRank(int(n), 0, "", GONE) for n in listed if len(n) < 10}
            ranks = [parse_rank(found, GONE) for found in RANK.finditer(block)]
            missing |= {each.rank: each for each in ranks}
        elif head[1] == "MISMATCH":
            behind |= {each.rank: each for each in parse_mismatch(block)}
    is_level = bool(version) and "OK" in text and not heads and not COMPLAINT.search(text)
    return RasAnswer(
        address, version[1] if version else "", text[:KEPT_CHARS], tuple(missing[n] for n in sorted(missing)),
        tuple(behind[n] for n in sorted(behind)), is_level,
    )  # fmt: skip


def parse_rank(found: re.Match[str], what: str) -> RasRank:
    """Return the rank in `found`, a match in RAS's reply.

    `what` says what RAS reports about the rank.
    """
    return RasRank(int(found[1]), int(found[2] or 0), found[3] or "", what)


def parse_mismatch(block: str) -> list[RasRank]:
    """Return the ranks with the fewest operations in `block`, or [] if all counts are equal.

    `block` is a MISMATCH section of RAS's reply.
    """
    counts: dict[int, list[re.Match[str]]] = {}
    current = -1
    for line in block.splitlines():
        if launched := LAUNCHED.search(line):
            current = int(launched[1] or 0)
            counts.setdefault(current, [])
        if current >= 0 and (rank := RANK.search(line)):
            counts[current].append(rank)
    if len(counts) < 2:
        return []
    kind = COUNTED.search(block)
    what = f"has launched {min(counts)} {kind[1] if kind else 'collective'} operations, others {max(counts)}"
    return [parse_rank(each, what) for each in counts[min(counts)]]
