"""The results of perftest's `ib_write_bw`, `ib_read_bw` and `ib_send_bw`, and the parser of the output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from preflight.errors import MalformedInput

TITLE = re.compile(r"(Write|Read|Send)(?:_imm)?\b.*\bBW Test\b")
BIDIRECTIONAL = "Bidirectional"
DEVICE = re.compile(r"\bDevice\s*:\s*([A-Za-z0-9_.-]{1,64})")
PORT = re.compile(r"(?:^|\s)(?:-i|--ib-port)[ =]?(\d{1,3})\b", re.ASCII)  # in the command, if the file has it
NAMED = re.compile(r"(?:^|\s)(?:-d|--ib-dev)[ =]?([A-Za-z0-9_.-]{1,64})")  # in the command; "" for a variable
COMMAND = re.compile(r"\bib_(?:write|read|send)_bw\b")
HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\S*\s+BW average\[(Gb|MB|MiB)/sec\]")  # other layouts: not read
ROW = re.compile(r"\s*(\d{1,12})\s+\d{1,15}\s+(\d{1,9}(?:\.\d{1,9})?)\s+(\d{1,9}(?:\.\d{1,9})?)(?:\s|$)", re.ASCII)
GBIT_S = {"Gb": 1.0, "MB": 8 * (1 << 20) / 1e9, "MiB": 8 * (1 << 20) / 1e9}  # perftest's MB are 2^20 bytes


@dataclass(frozen=True, slots=True)
class LinkTest:
    """The bandwidth between an RDMA device of this node and a peer, measured by perftest at the largest size."""

    device: str
    port: int
    size_bytes: int  # 0 if the output names the device and has no result that can be read
    gbit_s: float  # the average; of a bidirectional test the sum of both directions
    is_bidirectional: bool
    program: str = "ib_write_bw"


def parse_perftest(text: str, source: str) -> tuple[LinkTest, ...]:
    """Return the results in `text`, the output of perftest. Raise MalformedInput if there is no result.

    `source` names the text in the error.
    """
    found = tuple(_tests(text))
    if not any(each.size_bytes for each in found):
        raise MalformedInput(
            f"{source}: no result of ib_write_bw: the lines from `Device : ...` to the row below `#bytes` are needed"
        )
    return found


def _tests(text: str) -> Iterator[LinkTest]:
    asked_device, asked_port, unit, is_bidirectional, program = "", 1, "", False, "ib_write_bw"
    best: LinkTest | None = None
    for line in text.splitlines():
        if COMMAND.search(line):
            asked_port = int(asked[1]) if (asked := PORT.search(line)) else 1
            asked_device = asked[1] if (asked := NAMED.search(line)) else ""
        elif title := TITLE.search(line):
            is_bidirectional, program = BIDIRECTIONAL in line, f"ib_{title[1].lower()}_bw"
        elif named := DEVICE.search(line):
            if best is not None:
                yield best
            port = asked_port if asked_device in ("", named[1]) else 1
            best, unit = LinkTest(named[1], port, 0, 0.0, is_bidirectional, program), ""
            is_bidirectional, program = False, "ib_write_bw"
        elif header := HEADER.search(line):
            unit = header[1]
        elif best is not None and unit and (row := ROW.match(line)) and int(row[1]) >= best.size_bytes:
            best = replace(best, size_bytes=int(row[1]), gbit_s=float(row[3]) * GBIT_S[unit])
    if best is not None:
        yield best
