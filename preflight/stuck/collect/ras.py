"""NCCL's RAS (2.24 and newer): which ranks it misses, and whose counts of operations stay behind (facts 1.5).

Its port is one for all jobs of a host, so the answer counts only where a process of this job listens on it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from preflight.errors import UnreadableFact
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import RasAnswer
from preflight.stuck.collect.open_files import list_opened, read_connections
from preflight.stuck.collect.process_table import Listed
from preflight.system.machine import Machine

DEFAULT_ADDRESS = "localhost:28028"
ANSWER_S, LEG_S = 5.0, 2
MOST_BYTES = 1 << 20
KEPT_CHARS = 8000
QUESTION = f"timeout {LEG_S}\nverbose status\n"
VERSION = re.compile(r"NCCL version (\S{1,40})")
BLOCK = re.compile(r"^#\d{1,6}-\d{1,6} \([0-9a-f]{1,16}\) (\w{1,20})", re.MULTILINE)
MISSING = re.compile(r"missing ranks?: ([\d, ]{1,2000})")
RANK = re.compile(r"Rank (\d{1,7})\b(?:[^\n]{0,80}managed by process (\d{1,9}))?")
LAUNCHED = re.compile(r"(\d{1,7} ranks have|\d{1,7} rank has|Rank \d{1,7} has) launched up to operation (\d{1,18})")


def ask_ras(machine: Machine, ranks: Sequence[Listed]) -> RasAnswer | Gap:
    """Return what RAS answers for this job; a Gap where nobody of it listens, or nothing comes."""
    address = next((r.places["NCCL_RAS_ADDR"] for r in ranks if r.places.get("NCCL_RAS_ADDR")), DEFAULT_ADDRESS)
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return Gap(f"NCCL_RAS_ADDR {address!r} is no address")
    if not any(_listens(machine, each.pid, int(port)) for each in ranks):
        return Gap(f"no rank of this job listens on RAS's port {port}: older than NCCL 2.24, off, or no NCCL")
    try:
        text = _ask(host.strip("[]") or "localhost", int(port))
    except OSError as error:
        return Gap(f"RAS at {address} does not answer: {error}")
    return parse_ras(text, address) if VERSION.search(text) else Gap(f"what listens at {address} is no RAS")


def _listens(machine: Machine, pid: int, port: int) -> bool:
    try:
        _, sockets = list_opened(machine, pid)
        connections = read_connections(machine, pid)
    except UnreadableFact:
        return False
    mine = (connections[inode] for inode in sockets if inode in connections)
    return any(each.state == "LISTEN" and each.local.endswith(f":{port}") for each in mine)


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
    missing: set[int] = set()
    behind: set[int] = set()
    heads = list(BLOCK.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        block = text[head.end() : following.start() if following else len(text)].partition("\n\n")[0]
        if head[1] == "INCOMPLETE":
            listed = [int(n) for found in MISSING.findall(block) for n in found.replace(",", " ").split()]
            missing |= set(listed) | {int(rank) for rank, _ in RANK.findall(block)}
        elif head[1] == "MISMATCH":
            behind |= _behind(block)
    return RasAnswer(
        address, version[1] if version else "", text[:KEPT_CHARS], tuple(sorted(missing)), tuple(sorted(behind))
    )


def _behind(block: str) -> set[int]:
    """Return the ranks with the lowest count that differs from the highest, where they are listed."""
    counts: dict[int, set[int]] = {}
    current = -1
    for line in block.splitlines():
        if launched := LAUNCHED.search(line):
            current = int(launched[2])
            counts.setdefault(current, set())
        if current >= 0 and (rank := RANK.search(line)):
            counts[current].add(int(rank[1]))
    return counts[min(counts)] if len(counts) > 1 else set()
