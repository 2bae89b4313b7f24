"""Record every raw read of a machine, and answer from such a record later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from preflight.errors import NotRecorded, UnreadableFact
from preflight.system.machine import Json, Machine

T = TypeVar("T")

Record = dict[str, dict[str, Json]]  # kind of read -> path or question -> {"value": ...} or {"unreadable": reason}


@dataclass(frozen=True, slots=True)
class Recorder:
    """A machine that notes every read and its answer, readable or not."""

    machine: Machine
    record: Record = field(default_factory=dict)

    def text(self, path: str) -> str:
        return self._note("text", path, lambda: self.machine.text(path))

    def data(self, path: str) -> bytes:
        return bytes.fromhex(self._note("data", path, lambda: self.machine.data(path).hex()))

    def names(self, path: str) -> tuple[str, ...]:
        return self._note("names", path, lambda: self.machine.names(path))

    def link(self, path: str) -> str:
        return self._note("link", path, lambda: self.machine.link(path))

    def exists(self, path: str) -> bool:
        return self._note("exists", path, lambda: self.machine.exists(path))

    def ask(self, question: str) -> Json:
        return self._note("ask", question, lambda: self.machine.ask(question))

    def _note(self, kind: str, key: str, read: Callable[[], T]) -> T:
        notes = self.record.setdefault(kind, {})
        try:
            value = read()
        except UnreadableFact as error:
            notes[key] = {"unreadable": str(error)}
            raise
        notes[key] = {"value": list(value) if isinstance(value, tuple) else value}
        return value


@dataclass(frozen=True, slots=True)
class Replay:
    """A machine that answers from a record; a read that was not recorded is NotRecorded."""

    record: Record

    def text(self, path: str) -> str:
        return str(self._answer("text", path))

    def data(self, path: str) -> bytes:
        return bytes.fromhex(str(self._answer("data", path)))

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(self._answer("names", path))

    def link(self, path: str) -> str:
        return str(self._answer("link", path))

    def exists(self, path: str) -> bool:
        return bool(self._answer("exists", path))

    def ask(self, question: str) -> Json:
        return self._answer("ask", question)

    def _answer(self, kind: str, key: str) -> Json:
        note = self.record.get(kind, {}).get(key)
        if note is None:
            raise NotRecorded(f"{key}: not recorded")
        if "unreadable" in note:
            raise UnreadableFact(note["unreadable"])
        return note["value"]


def merged(one: Record, other: Record) -> Record:
    """Return the reads of both; where a file was read twice, the second answer."""
    return {kind: one.get(kind, {}) | other.get(kind, {}) for kind in sorted({*one, *other})}
