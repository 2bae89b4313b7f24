"""Examine the job with `preflight stuck`, and keep the result in the run's folder while the result is valid."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from preflight.job.folder import Folder
from preflight.job.say import reason

NOT_STUCK, STUCK = 0, 1  # exit codes of `preflight stuck`
AGAIN_S = 10.0  # at most between two examinations, both of which must find the job stuck before a page is printed
NO_TELLING = "could not find the reason"
NOT_YET = re.compile(r"Not stuck yet: .+?(?=\n\s*\n|\Z)", re.DOTALL)  # as its page names ranks that work


class Found(NamedTuple):
    """The result of an examination by `preflight stuck`, with the exit code and the text.

    `why` is the reason if the examination was inconclusive.
    """

    code: int | None  # exit code of `stuck`; None if it took too long, or the job ended
    page: bytes = b""
    why: str = NO_TELLING  # the answer is neither "stuck" nor "not stuck"
    works: bool = False  # others wait for a rank that makes progress

    @property
    def headline(self) -> str:
        """Return the first paragraph of the output of `preflight stuck`, in one line."""
        first = self.page.decode("utf-8", "replace").strip().partition("\n\n")[0]
        return " ".join(first.split())


class StuckLook:
    """A runner of `preflight stuck` for one job, which keeps the last JSON report while the report is valid.

    The callable `own(arguments, fd)` runs a command of preflight and writes the command's output to `fd`. The callable
    returns the exit code, or None if the command was killed.
    """

    # `own` returns None if the command was killed.

    def __init__(self, folder: Folder, own: Callable[[Sequence[str], int], int | None]) -> None:
        self.path = folder.file("stuck.json") if folder.path else ""
        self._before = self.path + ".before"
        self._own = own
        self._last_code: int | None = NOT_STUCK

    @property
    def is_held(self) -> bool:
        """Return whether there is a valid report of a stuck job. A report is valid until the job makes progress."""
        return bool(self.path) and os.path.exists(self.path)

    def look(self, pid: int, *options: str) -> Found:
        """Examine the process `pid` and its job once, and return the result.

        A valid JSON report stays at `path`.
        """
        # If the examination is inconclusive, an earlier report of a stuck job stays valid.
        output = ["--json", self.path] if self.path else []
        self._rename(self.path, self._before)
        found = Found(None)
        try:
            page = os.memfd_create("preflight-stuck")
            try:
                code = self._own(["stuck", "--no-ras", "--pid", str(pid), *options, *output], page)
                found = Found(code, os.pread(page, os.fstat(page).st_size, 0))
            finally:
                os.close(page)
        except OSError as error:  # no process can be started, no file opened: perhaps later
            found = Found(None, why=f"failed ({reason(error)})")
        not_yet = NOT_YET.search(found.page.decode("utf-8", "replace"))
        if not_yet:
            found = found._replace(why=f"says: {' '.join(not_yet[0].split()).rstrip('.')}", works=True)
        if found.code == STUCK or not_yet:  # what it names is the lead, should the others time out
            self._remove(self._before)
        elif found.code == NOT_STUCK:
            self.forget()
        else:  # the earlier result holds until the job makes progress
            self._remove(self.path)
            self._rename(self._before, self.path)
        return found

    def look_twice(self, pid: int, pause_s: float, has_ended: Callable[[float], bool]) -> Found:
        """Examine the job of process `pid`, and return the result.

        If the job is newly stuck, examine the job once more after a pause, and return the last result.
        """
        # At the first examination, a rank may have been between two steps. `has_ended(pause_s)` waits at most `pause_s`
        # seconds between the examinations, and returns whether the job has ended.
        found = self.look(pid)
        if found.code == STUCK != self._last_code and not has_ended(pause_s):
            found = self.look(pid)
        self._last_code = found.code
        return found

    def forget(self) -> None:
        """Remove the kept report, because the job has made progress since the report."""
        self._remove(self.path)
        self._remove(self._before)

    def _rename(self, one: str, other: str) -> None:
        if self.path:
            with contextlib.suppress(OSError):
                os.rename(one, other)

    def _remove(self, path: str) -> None:
        if self.path:
            with contextlib.suppress(OSError):
                os.unlink(path)
