"""Record how long a job prints nothing in each of its phases, for `preflight timeout --from-run`.

If no line of the output counts steps, nothing is recorded.
"""
# A silence is the time between two pieces of output. With several nodes, each node records only the lines that it
# prints itself.

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence

from preflight.job.kept import create
from preflight.model.job_phases import START, WORDS, Phase

NAME = "preflight-run.json"  # beside the `.env`
LAST_BYTES, LAST_LINES = 4096, 20  # of the news that are searched for a line that names a phase
END_OF_LINE = re.compile(r"[\r\n]+")


class Silences:
    """The longest times without output of a job in each phase. All `now_s` are seconds of the same clock."""

    def __init__(self, now_s: float) -> None:
        self._began_at_s = self._phase_at_s = self._heard_at_s = now_s
        self._phase = START
        self._kinds: list[tuple[Phase, re.Pattern[str]]] = []
        self._found: dict[str, tuple[float, float]] = {}  # silent_s and lasted_s by phase

    def hear(self, news: Sequence[bytes], now_s: float) -> None:
        """Record the output `news` that the job wrote since the last call. `now_s` is the time of this call."""
        if not news:
            return
        self._note(now_s - self._heard_at_s, 0.0)
        self._heard_at_s = now_s
        named = next(filter(None, map(self._named, news)), "")
        if not named or (self._phase == START and named != Phase.TRAINING):
            return
        if self._phase in (named, START):
            self._note(0.0, now_s - self._phase_at_s)
        if named != self._phase:
            self._phase, self._phase_at_s = named, now_s

    def keep(self, folder: str, host: str, now_s: float) -> None:
        """Write the record of a successful job on `host` into `folder`. Errors of writing are ignored."""
        self._note(now_s - self._heard_at_s, 0.0)
        if self._phase == START:
            return
        phases = {
            phase: {"silent_s": round(silent_s, 1), "lasted_s": round(lasted_s, 1)}
            for phase, (silent_s, lasted_s) in self._found.items()
        }
        record = {"ended_well": True, "host": host, "took_s": round(now_s - self._began_at_s, 1), "phases": phases}
        part = os.path.join(folder, f".{NAME}.{os.getpid()}")
        with contextlib.suppress(OSError):
            file = create(part)
            try:
                os.write(file, json.dumps(record, indent=1).encode() + b"\n")
                os.replace(part, os.path.join(folder, NAME))
            finally:
                os.close(file)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part)

    def _named(self, news: bytes) -> str:
        """Return the phase that the last line with a phase names, or "" if no line names a phase."""
        if not self._kinds:  # compiled once the job runs, so that it does not start later
            self._kinds = [(phase, re.compile(words)) for phase, words in WORDS.items()]
        for line in reversed(END_OF_LINE.split(news[-LAST_BYTES:].decode(errors="replace"))[-LAST_LINES:]):
            for phase, words in self._kinds:
                if words.search(line):
                    return phase.value
        return ""

    def _note(self, silent_s: float, lasted_s: float) -> None:
        before = self._found.get(self._phase, (0.0, 0.0))
        self._found[self._phase] = (max(before[0], silent_s), max(before[1], lasted_s))
