"""A machine that can be read: its files below a root, and the kernel's answers that are not files.

Probes take a Machine and nothing else, so that they read the live machine, a recorded tree or a capture alike.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from preflight.errors import NotRecorded, UnreadableFact

MAX_FILE_BYTES = 4 << 20  # /proc and /sys files are smaller; a mistaken path must not fill memory
PIECE_BYTES = 1 << 16

Json = Any


class Machine(Protocol):
    """What a probe may ask. All reads raise UnreadableFact, whose message is the reason."""

    def text(self, path: str) -> str:
        """Return the file's text without surrounding white space."""

    def data(self, path: str) -> bytes:
        """Return the file's bytes."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, sorted; empty where the directory does not exist."""

    def link(self, path: str) -> str:
        """Return where a symbolic link points, as written."""

    def exists(self, path: str) -> bool:
        """Tell whether the path exists."""

    def ask(self, question: str) -> Json:
        """Return the kernel's or a library's answer to a question of `system/questions.py`, as JSON."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Files below a directory: `/` for the live machine, or a recorded tree.

    A recorded tree answers no questions: limits, names and addresses of another machine are not in its files.
    """

    root: Path
    questions: Mapping[str, Callable[[], Json]] = field(default_factory=dict)

    def text(self, path: str) -> str:
        try:
            return _read(self._at(path)).decode("utf-8", "backslashreplace").strip("\0 \t\r\n")
        except OSError as error:
            raise UnreadableFact(_reason(path, error)) from None

    def data(self, path: str) -> bytes:
        try:
            return _read(self._at(path))
        except OSError as error:
            raise UnreadableFact(_reason(path, error)) from None

    def names(self, path: str) -> tuple[str, ...]:
        try:
            found = os.listdir(self._at(path))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise UnreadableFact(_reason(path, error)) from None
        return tuple(sorted(os.fsencode(name).decode("utf-8", "backslashreplace") for name in found))

    def link(self, path: str) -> str:
        try:
            return os.fsencode(os.readlink(self._at(path))).decode("utf-8", "backslashreplace")
        except OSError as error:
            raise UnreadableFact(_reason(path, error)) from None

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._at(path))

    def ask(self, question: str) -> Json:
        if question not in self.questions:
            raise NotRecorded(f"{question}: not recorded, this is another machine's file tree")
        return self.questions[question]()

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))


def _read(path: str) -> bytes:
    """Return at most MAX_FILE_BYTES, in pieces: /proc/sys refuses one read of megabytes."""
    data = b""
    with open(path, "rb", buffering=0) as file:
        while len(data) < MAX_FILE_BYTES and (piece := file.read(PIECE_BYTES)):
            data += piece
    return data


def _reason(path: str, error: OSError) -> str:
    """Return `/path: why`, always with the machine's own path, never with the tree's."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return (
        f"/{path.lstrip('/')}: {why[0].lower()}{why[1:]}"
        if error.errno != errno.ENOENT
        else f"/{path.lstrip('/')}: not there"
    )
