"""From paths to an explanation: logs are streamed, flight recorder dumps are taken whole."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from preflight.errors import MalformedInput
from preflight.explain.explain_logs import Log, explain
from preflight.explain.flight_recorder import MAX_BYTES, Recording, is_recording, read_recording
from preflight.model.explanation import Explanation
from preflight.system.log_source import LogSource, open_log


def explain_paths(paths: Sequence[str]) -> Explanation:
    """Explain the logs and dumps at some paths (`-` is standard input) as those of one run.

    UsageError: a path can't be opened, or all that was given is a dump that can't be read.
    """
    with contextlib.ExitStack() as opened:
        sources = [opened.enter_context(contextlib.closing(open_log(path))) for path in dict.fromkeys(paths)]
        dumps = [source for source in sources if is_recording(source.name, source.peek())]
        recordings, refused = _read(dumps)
        logs = [source for source in sources if source not in dumps]
        if refused and not logs and not recordings:
            raise refused[0]
        notes = {str(error).split(":", 1)[0]: str(error) for error in refused}
        return explain(map(_log, logs), recordings, notes)


def _log(source: LogSource) -> Log:
    return Log(source.name, source.chunks(), lambda: source.note)


def _read(dumps: Sequence[LogSource]) -> tuple[list[Recording], list[MalformedInput]]:
    recordings, refused = [], []
    for dump in dumps:
        try:
            recordings.append(read_recording(dump.name, dump.whole(MAX_BYTES)))
        except MalformedInput as error:
            refused.append(error)
    return recordings, refused
