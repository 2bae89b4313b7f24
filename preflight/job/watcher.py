"""Watch a job. Run `stuck` if the job makes no progress, and `explain` after a failure.

The watcher process may be killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import signal
import time
from collections.abc import Mapping, Sequence, Set

from preflight import pg_timeout
from preflight.errors import UsageError
from preflight.job.children import start_beside
from preflight.job.folder import Folder, remove_abandoned
from preflight.job.kept import create
from preflight.job.left_behind import Family, named
from preflight.job.movement import Look, Movement
from preflight.job.order import Order
from preflight.job.output import Streams
from preflight.job.say import contained, say, write_all
from preflight.job.silences import Silences
from preflight.job.stuck_look import AGAIN_S, NOT_STUCK, STUCK, Found, StuckLook
from preflight.system.own_command import own_argv

DEFAULT_TIMEOUT_S = 600  # torch's own for NCCL since 2.2
OWN_S = 120.0  # `stuck` and `explain` end long before
OWN_BYTES = 4 << 30  # of address space for either
POLL_S = 0.05  # while one of them runs
TICK_S = 1.0  # between two looks at what the job has printed
SHORT = ("--watch", "2s")  # how long `stuck` observes a job that prints such a text: it may end at any moment
# What a job prints while a collective of it does not come to an end: torch's watchdog, JAX, vLLM.
TIMED_OUT = re.compile(
    rb"caught collective operation timeout|has been waiting for .{1,200} and may be stuck"
    rb"|No available shared memory broadcast block found"
)
HEARD_BY_NONE = {signal.SIGTSTP, signal.SIGINT, signal.SIGQUIT}  # they are the job's; our own end with us
# What is said around the pages of `stuck` and `explain`.
TIMES_OUT = "a collective timed out; details: `preflight stuck -v {}`"
STILL = "no progress for {:.0f} s; details: `preflight stuck -v {}`"
ELSEWHERE = "node {}: {} ({})"  # its number, the page's first sentence, and the file of the page
LEFT = "{} is left running"
MOVES = "the job has made progress again since {}"
UNCLEAR = "no progress for {:.0f} s, and `preflight stuck` {}; details: `preflight stuck -v {}`"
ENDED, KEPT = "{} ended with {}", "; the output is in {}"
MORE = "details: `preflight explain -v {}`"


class Watcher:
    """A monitor of one job until the job's end. It prints the results of `stuck` and `explain`."""

    def __init__(
        self, order: Order, streams: Streams, environ: Mapping[str, str], folder: Folder,
        mask: Set[signal.Signals | int],
    ) -> None:  # fmt: skip
        self._order = order
        self._streams = streams
        self._after_s = order.stuck_after_s or _half_timeout_s(environ)
        self._folder = folder
        self._mask = mask  # of signals, as our caller had it
        self._stuck = StuckLook(folder, lambda arguments, page: self._own(arguments, page, is_for_a_running_job=True))
        self._family = Family(0)
        self._silences = Silences(time.monotonic())
        self._was_stuck = False
        self._ended = -1  # the descriptor on which the job's exit code arrives

    def run(self, ended: int, job_pid: int) -> None:
        """Watch the job `job_pid` until its exit code arrives on the descriptor `ended`. Then explain the job's end."""
        self._ended = ended
        with contextlib.suppress(OSError):
            remove_abandoned()
        self._family = Family(job_pid)
        with contained("the job is no longer watched"):
            self._watch(job_pid)
        told = os.read(ended, 64).split()  # nothing where who would tell it is gone
        if told:
            with contained("the job's end is not explained"):
                self._explain(int(told[0]), is_users=told[1] == b"1")

    def _watch(self, pid: int) -> None:
        """Run `stuck` if the job makes no progress. Print the output of `stuck` once for each hang."""
        movement = Movement(self._after_s, lambda: self._streams.written, pid)
        is_said = is_unclear = False
        deaf_until = 0.0
        while not self._has_ended(min(TICK_S, movement.look_s)):
            self._family.look()
            news, now = self._streams.news(), time.monotonic()
            self._silences.hear(news, now)
            times_out = not is_said and now >= deaf_until and any(map(TIMED_OUT.search, news))
            look = Look.DUE if times_out else movement.look()
            if look is Look.NO or (look is Look.DUE and is_said):
                continue
            if times_out:
                deaf_until = now + self._after_s
            pause_s = min(AGAIN_S, movement.look_s)
            found = (
                self._stuck.look(pid, *SHORT) if times_out else self._stuck.look_twice(pid, pause_s, self._has_ended)
            )
            movement.examined()
            if self._has_ended(0.0):
                return
            if found.code == STUCK:
                self._was_stuck = True
                movement.found_stuck()
                if look is Look.DUE:
                    self._say_stuck(TIMES_OUT.format(pid) if times_out else STILL.format(movement.still_s, pid), found)
                    is_said = True
            elif found.code == NOT_STUCK:
                if is_said:
                    say(MOVES.format(time.strftime("%H:%M:%S", time.localtime(time.time() - movement.still_s))))
                movement.found_moving()
                is_said = False
            elif found.works:
                movement.found_stuck()  # once the job goes on, it is not the lead any more
            elif look is Look.EARLY:
                movement.found_nothing()
            if found.code not in (STUCK, NOT_STUCK) and look is Look.DUE and not is_unclear and not times_out:
                say(UNCLEAR.format(movement.still_s, found.why, pid))
                is_unclear = True
            if look is not Look.EARLY:
                movement.look_later()

    def _say_stuck(self, first: str, found: Found) -> None:
        """On the first node, print the output of `stuck`. On other nodes, print only the first paragraph.

        All nodes may write to one log, so the other nodes write the output to a file. If this fails, they print the
        output.
        """
        say(first)
        kept = self._keep(found.page) if self._order.node_rank else ""
        if kept:
            say(ELSEWHERE.format(self._order.node_rank, found.headline, kept))
        else:
            with contextlib.suppress(OSError):
                write_all(2, found.page)
        say(LEFT.format(self._order.name))

    def _keep(self, page: bytes) -> str:
        """Write the output of `stuck` into a file in the run's folder, and return the path of the file.

        Return "" if the file could not be written.
        """
        path = self._folder.file("stuck.txt") if self._folder.path else ""
        try:
            if path:
                with open(create(path), "wb") as file:
                    file.write(page)
        except OSError:
            return ""
        return path

    def _has_ended(self, wait_s: float) -> bool:
        return bool(select.select([self._ended], [], [], wait_s)[0])

    def _own(self, arguments: Sequence[str], output: int, *, is_for_a_running_job: bool = False) -> int | None:
        """Run a command of preflight and return its exit code.

        Return None if the command was killed at its limit or at the job's end.
        """
        argv = own_argv(*arguments, *self._order.detail)
        own = start_beside(argv, output, {*self._mask, *HEARD_BY_NONE}, OWN_BYTES)
        until = time.monotonic() + OWN_S
        while own.poll() is None:
            if time.monotonic() > until or (is_for_a_running_job and self._has_ended(0.0)):
                own.kill()
                own.wait()
                return None
            time.sleep(POLL_S)
        return own.returncode

    def _explain(self, code: int, *, is_users: bool) -> None:
        """Print how the job failed, and the first screen of `explain`. Keep the job's output if the job failed.

        `explain` does not run if the user ended the job. It also does not run if the reader of the job's output has
        ended, as in `| head`.
        """
        streams, name = self._streams, self._order.name
        if code != 0 or self._folder.is_users:
            streams.finish()
        if code != 0 and not streams.ends_line:
            with contextlib.suppress(OSError):
                write_all(2, b"\n")
        if code == 0:
            self._stuck.forget()
            if not self._was_stuck:
                now, folder = time.monotonic(), os.path.dirname(self._order.env_path)
                self._silences.hear(streams.news(), now)
                self._silences.keep(folder, os.uname().nodename, now)
        kept = streams.paths if code != 0 else []
        if self._stuck.is_held:
            kept = [self._stuck.path, *kept]
        self._folder.stays() if kept else self._folder.remove()
        if code == 0:
            return
        how = f"exit code {code}" if code > 0 else f"signal {-code} ({signal.strsignal(-code)})"
        if streams.lost_reader:
            how += ", and its output is no longer read"
        say(ENDED.format(name, how) + (KEPT.format(self._folder.path) if kept else ""))
        if left := self._family.left():
            say(named(left))
        if is_users or streams.lost_reader or not kept:
            return
        say(MORE.format(shlex.quote(self._folder.path)))
        ranks = self._folder.file("ranks")
        self._own(["explain", *kept, *([ranks] if os.path.isdir(ranks) else [])], 2)


def _half_timeout_s(environ: Mapping[str, str]) -> float:
    """Return half of the process group's timeout, in seconds.

    `stuck` must run before torch's watchdog ends the job, because the job's stacks are gone afterwards.
    """
    try:
        said = pg_timeout(environ)
    except UsageError:
        said = None  # the job's own call of it will tell
    return (said.total_seconds() if said else DEFAULT_TIMEOUT_S) / 2
