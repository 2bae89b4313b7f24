"""NCCL's RAS (2.24 and newer): which ranks it misses, and whose counts of operations stay behind (facts 1.5).

Its port is one for all jobs of a host, so the answer counts only where a process of this job listens on it.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Sequence

from preflight.errors import UnreadableFact
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import Connection, RasAnswer, RasRank
from preflight.stuck.collect.open_files import list_opened, read_connections
from preflight.stuck.collect.process_table import Listed
from preflight.system.machine import Machine

DEFAULT_ADDRESS = "localhost:28028"
ANSWER_S, LEG_S = 5.0, 2
GONE = "does not answer"
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


def ask_ras(machine: Machine, ranks: Sequence[Listed]) -> RasAnswer | Gap:
    """Return what RAS answers for this job; a Gap where nobody of it listens, others do too, or nothing comes."""
    address = next((r.places["NCCL_RAS_ADDR"] for r in ranks if r.places.get("NCCL_RAS_ADDR")), DEFAULT_ADDRESS)
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return Gap(f"NCCL_RAS_ADDR {address!r} is no address")
    listening, own = _listeners(machine, ranks, f":{port}")
    if not own:
        return Gap(f"no rank of this job listens on RAS's port {port}: older than NCCL 2.24, off, or no NCCL")
    if listening - own:
        return Gap(f"another process listens on RAS's port {port} too, and may answer: give each job an NCCL_RAS_ADDR")
    try:
        text = _ask(host.strip("[]") or "localhost", int(port))
    except OSError as error:
        return Gap(f"RAS at {address} does not answer: {error}")
    return parse_ras(text, address) if VERSION.search(text) else Gap(f"what listens at {address} is no RAS")


def _listeners(machine: Machine, ranks: Sequence[Listed], port: str) -> tuple[set[int], set[int]]:
    """Return the sockets that listen on a port, and the ranks' among them: NCCL shares it (SO_REUSEPORT)."""
    table: dict[int, Connection] = {}
    own: set[int] = set()
    for each in ranks:
        with contextlib.suppress(UnreadableFact):
            own |= list_opened(machine, each.pid)[1]
            table = table or read_connections(machine, each.pid)
    listening = {inode for inode, each in table.items() if each.state == "LISTEN" and each.local.endswith(port)}
    return listening, listening & own


def _ask(host: str, port: int) -> str:
    data = b""
    with socket.create_connection((host, port), timeout=ANSWER_S) as connection:
        connection.sendall(QUESTION.encode())
        while len(data) < MOST_BYTES and (piece := connection.recv(1 << 16)):
            data += piece
    return data.decode("utf-8", "backslashreplace")


def parse_ras(text: str, address: str) -> RasAnswer:
    """Parse the answer to `verbose status`: the ranks of the blocks INCOMPLETE and MISMATCH, in any communicator."""
    version = VERSION.search(text)
    missing: dict[int, RasRank] = {}
    behind: dict[int, RasRank] = {}
    heads = list(BLOCK.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        block = text[head.end() : following.start() if following else len(text)].partition("\n\n")[0]
        if head[1] == "INCOMPLETE":
            listed = [n for found in MISSING.findall(block) for n in found.replace(",", " ").split()]
            missing |= {int(n): RasRank(int(n), 0, "", GONE) for n in listed if len(n) < 10}
            missing |= {int(found[1]): _rank(found, GONE) for found in RANK.finditer(block)}
        elif head[1] == "MISMATCH":
            behind |= {each.rank: each for each in _behind(block)}
    is_level = bool(version) and "OK" in text and not heads and not COMPLAINT.search(text)
    return RasAnswer(
        address, version[1] if version else "", text[:KEPT_CHARS], tuple(missing[n] for n in sorted(missing)),
        tuple(behind[n] for n in sorted(behind)), is_level,
    )  # fmt: skip


def _rank(found: re.Match[str], what: str) -> RasRank:
    return RasRank(int(found[1]), int(found[2] or 0), found[3] or "", what)


def _behind(block: str) -> list[RasRank]:
    """Return the ranks with the lowest count that differs from the highest, where they are listed."""
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
    return [_rank(each, what) for each in counts[min(counts)]]
