"""The interface to a machine's files and to queries of its kernel.

A machine may be live, a recorded tree or a capture.
"""
# Probes read only through a Machine, so that probes work on all three. A Recorder writes a capture, and a Replay reads
# a capture.

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.errors import NotRecorded, UnreadableFact

MAX_FILE_BYTES = 4 << 20  # /proc and /sys files are smaller; a mistaken path must not fill memory
PIECE_BYTES = 1 << 16

Json = Any
Record = dict[str, dict[str, Json]]  # kind of read -> path or question -> {"value": ...} or {"unreadable": reason}


class Machine(ABC):
    """The interface through which a probe reads a machine.

    A read that fails raises UnreadableFact with the reason. Paths have no leading `/`.
    """

    __slots__ = ()

    @abstractmethod
    def read(self, kind: str, key: str) -> Json:
        """Return the result of one read as JSON.

        `key` is the path. If `kind` is `ask`, `key` is the question.
        """
        # `kind` is the name of the method that reads: `text`, `data`, `names`, `link`, `exists` or `ask`.

    def text(self, path: str) -> str:
        """Return the text of the file `path` without surrounding white space."""
        return str(self.read("text", path))

    def data(self, path: str) -> bytes:
        """Return the bytes of the file `path`."""
        return bytes.fromhex(self.read("data", path))

    def names(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in the directory `path`, or () if the directory does not exist."""
        return tuple(self.read("names", path))

    def link(self, path: str) -> str:
        """Return the target of the symbolic link `path`."""
        return str(self.read("link", path))

    def exists(self, path: str) -> bool:
        """Return whether `path` exists."""
        return bool(self.read("exists", path))

    def ask(self, question: str) -> Json:
        """Return the result of the query `question` to the kernel or a library, as JSON."""
        return self.read("ask", question)


@dataclass(frozen=True, slots=True)
class Tree(Machine):
    """The files below a directory: `/` for the live machine, or a recorded tree.

    A recorded tree has no answers to queries of the kernel.
    """

    root: Path
    questions: Mapping[str, Callable[[], Json]] = field(default_factory=dict)

    def read(self, kind: str, key: str) -> Json:
        if kind == "ask" and key not in self.questions:
            raise NotRecorded(f"{key}: not recorded in this copy of another machine's files")
        if kind == "ask":
            return self.questions[key]()
        try:
            return READS[kind](os.path.join(self.root, key.lstrip("/")))
        except OSError as error:
            raise UnreadableFact(_reason(key, error)) from None


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _names(path: str) -> list[str]:
    try:
        return sorted(map(_printable, os.listdir(path)))
    except FileNotFoundError:
        return []


def _read(path: str) -> bytes:
    """Return the first MAX_FILE_BYTES of the file `path`.

    The file is read in pieces, because /proc/sys refuses a single read of several megabytes.
    """
    data = b""
    with open(path, "rb", buffering=0) as file:
        while len(data) < MAX_FILE_BYTES and (piece := file.read(PIECE_BYTES)):
            data += piece
    return data


READS: Mapping[str, Callable[[str], Json]] = {
    "text": lambda path: _read(path).decode("utf-8", "backslashreplace").strip("\0 \t\r\n"),
    "data": lambda path: _read(path).hex(),
    "names": _names,
    "link": lambda path: _printable(os.readlink(path)),
    "exists": os.path.lexists,
}


def _reason(path: str, error: OSError) -> str:
    """Return the reason for a failed read, as `/path: why`.

    The path is the path on the machine, never the path in the recorded tree.
    """
    why = os.strerror(error.errno) if error.errno else str(error)
    why = "not there" if error.errno == errno.ENOENT else f"{why[0].lower()}{why[1:]}"
    return f"/{path.lstrip('/')}: {why}"


@dataclass(frozen=True, slots=True)
class Recorder(Machine):
    """A machine that passes every read on to `machine`, and stores the result or failure in `record`."""

    machine: Machine
    record: Record = field(default_factory=dict)

    def read(self, kind: str, key: str) -> Json:
        notes = self.record.setdefault(kind, {})
        try:
            notes[key] = {"value": self.machine.read(kind, key)}
        except UnreadableFact as error:
            notes[key] = {"unreadable": str(error)}
            raise
        return notes[key]["value"]


@dataclass(frozen=True, slots=True)
class Replay(Machine):
    """A machine that returns recorded results. A read without a recorded result raises NotRecorded."""

    record: Record

    def read(self, kind: str, key: str) -> Json:
        note = self.record.get(kind, {}).get(key)
        if note is None:
            raise NotRecorded(f"{key}: not recorded")
        if "unreadable" in note:
            raise UnreadableFact(note["unreadable"])
        return note["value"]


def merged(one: Record, other: Record) -> Record:
    """Return a record with the reads of `one` and `other`.

    If both records have the same read, the result in `other` is used.
    """
    return {kind: one.get(kind, {}) | other.get(kind, {}) for kind in sorted({*one, *other})}
