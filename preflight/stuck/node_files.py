"""Files with the evidence of nodes. Each node writes one file, which only the file's owner can read."""

from __future__ import annotations

import json
import os
import re
import time

from preflight.errors import MalformedInput, OutputError, UsageError
from preflight.model.codec import decode, encode
from preflight.model.input_limits import STUCK_NODE, parse_json
from preflight.model.stuck_evidence import SCHEMA_VERSION, NodeEvidence
from preflight.system.files import PRIVATE, write_atomically
from preflight.system.inputs import as_text, read_bytes

NAME = re.compile(r"stuck-.+\.json")
UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
POLL_S = 0.2


def write_node(directory: str, evidence: NodeEvidence) -> str:
    """Write `evidence` to this host's file in the folder `directory`, and return the file's path."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{directory}: {error.strerror}") from None
    path = os.path.join(directory, f"stuck-{UNSAFE.sub('_', evidence.host)[:100]}.json")
    write_atomically(path, json.dumps(encode(evidence), allow_nan=False) + "\n", PRIVATE)
    return path


def read_nodes(directory: str) -> tuple[tuple[NodeEvidence, ...], tuple[str, ...]]:
    """Return the evidence in the files of the folder `directory`, and a message for each unreadable file.

    Raise UsageError if the folder can't be read.
    """
    try:
        names = sorted(name for name in os.listdir(directory) if NAME.fullmatch(name))
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}") from None
    nodes, problems = [], []
    for name in names:
        path = os.path.join(directory, name)
        try:
            nodes.append(_read(path))
        except UsageError as error:
            problems.append(f"{name}: {str(error).removeprefix(f'{path}: ')}")
    return tuple(nodes), tuple(problems)


def wait_for_nodes(directory: str, count: int, since: float, limit_s: float) -> None:
    """Wait at most `limit_s` seconds until the folder `directory` has `count` files newer than `since`.

    `since` is a time of the file system's clock.
    """
    end_at = time.monotonic() + limit_s
    while time.monotonic() < end_at:
        paths = [os.path.join(directory, name) for name in os.listdir(directory) if NAME.fullmatch(name)]
        if sum(os.path.getmtime(path) >= since for path in paths if os.path.exists(path)) >= count:
            return
        time.sleep(POLL_S)


def _read(path: str) -> NodeEvidence:
    if not os.path.isfile(path):  # reading a pipe without a writer would wait
        raise MalformedInput("no regular file")
    node = decode(NodeEvidence, parse_json(as_text(read_bytes(path, STUCK_NODE)), STUCK_NODE, path))
    if node.schema_version > SCHEMA_VERSION:
        raise MalformedInput(f"written by a newer preflight (schema {node.schema_version})")
    return node
