"""The results that perftest's `ib_write_bw`, `ib_read_bw` and `ib_send_bw` print, and their parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from preflight.errors import MalformedInput

TITLE = re.compile(r"\bBW Test\b")
BIDIRECTIONAL = "Bidirectional"
DEVICE = re.compile(r"\bDevice\s*:\s*([A-Za-z0-9_.-]{1,64})")
PORT = re.compile(r"(?:^|\s)(?:-i|--ib-port)[ =]?(\d{1,3})\b", re.ASCII)  # in the command, if the file has it
COMMAND = re.compile(r"\bib_(?:write|read|send)_bw\b")
HEADER = re.compile(r"#bytes\b.*\bBW average\[(Gb|MB|MiB)/sec\]")
ROW = re.compile(r"\s*(\d{1,12})\s+\d{1,15}\s+(\d{1,9}(?:\.\d{1,9})?)\s+(\d{1,9}(?:\.\d{1,9})?)(?:\s|$)", re.ASCII)
GBIT_S = {"Gb": 1.0, "MB": 8 * (1 << 20) / 1e9, "MiB": 8 * (1 << 20) / 1e9}  # perftest's MB are 2^20 bytes


@dataclass(frozen=True, slots=True)
class LinkTest:
    """The bandwidth between an RDMA device of this node and a peer, measured by perftest at its largest size."""

    device: str
    port: int
    size_bytes: int
    gbit_s: float  # the average; of a bidirectional test the sum of both directions
    is_bidirectional: bool


def parse_perftest(text: str, source: str) -> tuple[LinkTest, ...]:
    """Return the tests in the output of perftest, in order; MalformedInput if there is no result in it."""
    found = tuple(_tests(text))
    if not found:
        raise MalformedInput(
            f"{source}: no result of ib_write_bw: the lines from `Device : ...` to the row below `#bytes` are needed"
        )
    return found


def _tests(text: str) -> Iterator[LinkTest]:
    device, port, unit, is_bidirectional = "", 1, "", False
    best: LinkTest | None = None
    for line in text.splitlines():
        if COMMAND.search(line):
            port = int(asked[1]) if (asked := PORT.search(line)) else 1
        elif TITLE.search(line):
            is_bidirectional = BIDIRECTIONAL in line
        elif named := DEVICE.search(line):
            if best is not None:
                yield best
            device, unit, best = named[1], "", None
        elif header := HEADER.search(line):
            unit = header[1]
        elif device and unit and (row := ROW.match(line)):
            test = LinkTest(device, port, int(row[1]), float(row[3]) * GBIT_S[unit], is_bidirectional)
            if best is None or test.size_bytes >= best.size_bytes:
                best = test
    if best is not None:
        yield best
