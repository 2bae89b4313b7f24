"""Record every raw read of a machine, and answer from such a record later."""

from __future__ import annotations

from dataclasses import dataclass, field

from preflight.errors import NotRecorded, UnreadableFact
from preflight.system.machine import Json, Machine

Record = dict[str, dict[str, Json]]  # kind of read -> path or question -> {"value": ...} or {"unreadable": reason}


@dataclass(frozen=True, slots=True)
class Recorder(Machine):
    """A machine that notes every read and its answer, readable or not."""

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
    """A machine that answers from a record; a read that was not recorded is NotRecorded."""

    record: Record

    def read(self, kind: str, key: str) -> Json:
        note = self.record.get(kind, {}).get(key)
        if note is None:
            raise NotRecorded(f"{key}: not recorded")
        if "unreadable" in note:
            raise UnreadableFact(note["unreadable"])
        return note["value"]


def merged(one: Record, other: Record) -> Record:
    """Return the reads of both; where a file was read twice, the second answer."""
    return {kind: one.get(kind, {}) | other.get(kind, {}) for kind in sorted({*one, *other})}
