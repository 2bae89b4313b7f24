"""Build an explanation from the files at the given paths.

Logs are read in pieces, one log after another. Flight recorder dumps are read completely.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from preflight.errors import MalformedInput, UsageError
from preflight.explain.explain_logs import Log, explain
from preflight.explain.flight_recorder import KEPT_PER_GROUP, Recording, is_recording, read_recording
from preflight.explain.log_scanner import rank_of
from preflight.explain.structured_lines import plain_lines
from preflight.explain.stuck_answer import StuckAnswer, is_stuck_report, read_stuck
from preflight.model.explanation import Explanation
from preflight.model.input_limits import RECORDING, STUCK_NODE
from preflight.system.archives import is_archive
from preflight.system.log_paths import find_logs, why_no_member
from preflight.system.log_source import LogSource, is_binary, open_log

MOST_ENTRIES = 300_000  # of all dumps together; of what is more, the last of each group


PICTURES = {b"\x89PNG": "a PNG picture", b"\xff\xd8\xff": "a JPEG picture", b"GIF8": "a GIF picture", b"%PDF": "a PDF"}
WEB_PAGE = re.compile(rb"\s{0,99}<(?:!doctype html|html)\b", re.IGNORECASE)
REPORT_FILE = re.compile(rb'\s{0,9}\{\s{0,9}"schema_version": ?\d{1,4},')
STUCK_FILE = re.compile(r"(?:^|/)stuck-[^/]+\.json$")  # of `preflight stuck --out`: what it saw, and no log


def explain_paths(paths: Sequence[str], stuck: Sequence[StuckAnswer] = ()) -> Explanation:
    """Explain the files and folders at `paths` as the logs of one run.

    The path `-` is standard input. Raise UsageError if a path can't be read, and MalformedInput if the only file is an
    unreadable dump.
    """
    # `stuck` has reports of `preflight stuck` from the time of the hang.
    found = find_logs(paths)
    reader = _Reader(found.in_folders, dict(found.left_out), stuck=list(stuck))
    explanation = explain(reader.logs(found.files), reader.recordings, reader.left_out, reader.stuck, reader.empty)
    if reader.refused and not reader.was_read and not reader.recordings and not reader.stuck:
        raise reader.refused[0]
    return explanation


def what_it_is(name: str, head: bytes) -> str:
    """Return a message if a file is not a log but a picture, a web page or a report.

    Return "" if the file may be a log.
    """
    # `head` has the first bytes of the file.
    for magic, kind in PICTURES.items():
        if head.startswith(magic):
            return f"this is {kind}, not a log: give it the text"
    if WEB_PAGE.match(head):
        return "this is a web page, not a log: save the text of the log"
    if REPORT_FILE.match(head):
        return f"this is a report of `preflight check`, not a log: preflight render {name}"
    return ""


def _log(source: LogSource) -> Log:
    return Log(source.name, plain_lines(source.chunks()), lambda: source.note, lambda: source.is_whole)


@dataclass(slots=True)
class _Reader:
    """A reader that opens one file after another, so that thousands of files need only one descriptor."""

    in_folders: set[str]
    left_out: dict[str, str]
    recordings: list[Recording] = field(default_factory=list)
    stuck: list[StuckAnswer] = field(default_factory=list)
    refused: list[MalformedInput] = field(default_factory=list)
    empty: set[str] = field(default_factory=set)  # ranks of empty logs
    was_read: bool = False
    entries: int = 0

    def logs(self, paths: Sequence[str]) -> Iterator[Log]:
        """Yield the logs one after another. Store flight recorder dumps and `preflight stuck` reports separately.

        The caller must read each log before the next log is opened.
        """
        for path in paths:
            is_named = path not in self.in_folders
            with contextlib.ExitStack() as opened:
                try:
                    source = opened.enter_context(contextlib.closing(open_log(path)))
                    head = source.peek()
                except UsageError as error:
                    if is_named:
                        raise
                    self.left_out[path] = str(error).partition(": ")[2]
                    continue
                yield from self._archive(source) if is_archive(head) else self._file(source, is_named=is_named)

    def _file(self, source: LogSource, *, is_named: bool) -> Iterator[Log]:
        head = source.peek()
        if is_recording(source.name, head):
            self._record(source)
        elif is_stuck_report(head):
            self._take_stuck(source)
        elif is_named:
            if why := what_it_is(source.name, head):
                raise UsageError(f"{source.name}: {why}")
            self.was_read = True
            yield _log(source)
        elif not head or STUCK_FILE.search(source.name):
            if rank := rank_of(source.name):  # torchrun makes a file for every rank and stream, and most stay empty
                self.empty.add(rank)
        elif is_binary(head):
            self.left_out[source.name] = "binary data"
        else:
            self.was_read = True
            yield _log(source)

    def _archive(self, source: LogSource) -> Iterator[Log]:
        """Yield the logs in an archive.

        If the archive was not read completely, or has no log, also yield the archive as a log without lines.
        """
        prefix, found = len(source.name) + 1, False
        for member in source.members():
            if why := member.note or why_no_member(member.name[prefix:]):
                self.left_out[member.name] = why
                continue
            try:
                head = member.peek()
            except UsageError as error:
                self.left_out[member.name] = str(error).removeprefix(f"{member.name}: ")
                continue
            if is_archive(head):
                self.left_out[member.name] = "an archive inside an archive: unpack it first"
            else:
                for log in self._file(member, is_named=False):
                    found = True
                    yield log
        note = source.note or ("" if found or self.recordings else "it contains no log")
        if note:
            yield Log(source.name, (), lambda: note, lambda: source.is_whole)

    def _take_stuck(self, source: LogSource) -> None:
        try:
            seen = read_stuck(source.name, source.whole(STUCK_NODE.most_bytes))
        except MalformedInput as error:
            self.refused.append(error)
            self.left_out[source.name] = str(error).removeprefix(f"{source.name}: ")
            return
        if seen is None:
            self.left_out[source.name] = "an output of `preflight stuck` that names no stuck rank"
        else:
            self.stuck.append(seen)

    def _record(self, source: LogSource) -> None:
        kept = KEPT_PER_GROUP if self.entries < MOST_ENTRIES else 1
        try:
            recording = read_recording(source.name, source.whole(RECORDING.most_bytes), kept)
        except MalformedInput as error:
            self.refused.append(error)
            self.left_out[source.name] = str(error).removeprefix(f"{source.name}: ")
            return
        self.entries += len(recording.entries)
        self.recordings.append(recording)
