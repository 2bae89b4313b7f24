"""Save everything that the probes read on a machine in one JSON document, a capture.

Names that identify the machine or its users are replaced.
"""
# With the capture, the probes can run again on any other machine.

from __future__ import annotations

import json
import re
from typing import Any

from preflight import __version__
from preflight.errors import MalformedInput
from preflight.facts.pci_bus import without_serial
from preflight.facts.run import Capture
from preflight.facts.scrub import VERSIONS, Scrubber
from preflight.model.input_limits import CAPTURE, parse_json
from preflight.system.machine import Json, Record, Replay

FORMAT = "preflight_capture"
FORMAT_VERSION = 1
FILES = ("text", "data", "names", "link", "exists")
KINDS = (*FILES, "ask")
CGROUP = "sys/fs/cgroup/"  # its paths may hold the host's name; those of /proc and /sys elsewhere must stay


def capture_document(capture: Capture) -> str:
    """Return the JSON text of a capture, without names that identify the machine or its users."""
    scrub = scrubber_of(capture.reads)
    document = {
        FORMAT: FORMAT_VERSION,
        "preflight_version": __version__,
        "reads": {
            kind: {_key(scrub, kind, key): _note(scrub, kind, key, note) for key, note in sorted(notes.items())}
            for kind, notes in sorted(capture.reads.items())
        },
        "silent": {name: scrub.text(why) for name, why in sorted(capture.silent.items())},
    }
    return json.dumps(document, indent=1, ensure_ascii=True, sort_keys=False) + "\n"


def open_capture(text: str) -> tuple[Replay, dict[str, str]]:
    """Return the machine captured in `text`, and {group of probes: reason} for each group without a result.

    Raise MalformedInput if the text is not a capture.
    """
    document = parse_json(text, CAPTURE, "the capture")
    if not isinstance(document, dict) or FORMAT not in document:
        raise MalformedInput(f"this is not a capture: the key {FORMAT!r} is missing; `preflight capture` writes one")
    if document[FORMAT] != FORMAT_VERSION or isinstance(document[FORMAT], bool):
        raise MalformedInput(f"the capture's format is {document[FORMAT]!r:.40}; this preflight reads {FORMAT_VERSION}")
    reads, silent = document.get("reads"), document.get("silent", {})
    if not isinstance(reads, dict) or not isinstance(silent, dict):
        raise MalformedInput("the capture's `reads` or `silent` is not an object")
    if not all(isinstance(why, str) for why in silent.values()):
        raise MalformedInput("the capture's `silent` has a value that is not text")
    for kind in KINDS:
        _check_notes(kind, reads.get(kind, {}))
    return Replay(reads), silent


def scrubber_of(reads: Record) -> Scrubber:
    """Return a Scrubber that also replaces the host names and the home directory found in `reads`."""
    names = [_answer(reads, "uname", "nodename"), _answer(reads, "host_addresses", "name")]
    full = [name for name in names if name]
    short = [name.partition(".")[0] for name in full]
    home = _answer(reads, "home", "home")
    hosts = sorted({*full, *short} - {"localhost", ""}, key=lambda name: (-len(name), name))
    return Scrubber(hosts=tuple(hosts), home="" if home in ("", "/", "/root") else home)


def _answer(reads: Record, question: str, key: str) -> str:
    value = reads.get("ask", {}).get(question, {}).get("value")
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _key(scrub: Scrubber, kind: str, key: str) -> str:
    return key if kind == "ask" else scrub.text(key, with_host=key.startswith(CGROUP))


def _note(scrub: Scrubber, kind: str, key: str, note: Json) -> Json:
    if kind == "data" and "value" in note:
        return {"value": without_serial(bytes.fromhex(note["value"])).hex()}
    if kind == "ask" and key in VERSIONS:  # nothing but the home directory: its numbers are versions, not addresses
        return json.loads(scrub.home_only(json.dumps(note)))
    return scrub.value(note)


def _check_notes(kind: str, notes: Any) -> None:
    if not isinstance(notes, dict):
        raise MalformedInput(f"the capture's reads.{kind} is not an object")
    for key, note in notes.items():
        is_note = isinstance(note, dict) and ("value" in note or isinstance(note.get("unreadable"), str))
        if not is_note or ("value" in note and not _fits(kind, note["value"])):
            raise MalformedInput(f"the capture's reads.{kind}: what it holds of {key[:80]!r} is no answer to that read")


def _fits(kind: str, value: Any) -> bool:
    if kind == "names":
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    if kind == "data":
        return isinstance(value, str) and re.fullmatch(r"(?:[0-9a-f]{2})*", value) is not None
    return isinstance(value, {"text": str, "link": str, "exists": bool}.get(kind, object))
