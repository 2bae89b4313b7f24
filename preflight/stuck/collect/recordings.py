"""Files that the job has written: the flight recorder dumps and the output of the ranks."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass

from preflight.errors import MalformedInput, UnreadableFact
from preflight.explain.flight_recorder import Recording, find_clash, find_lag, read_recording
from preflight.model.gap import Gap
from preflight.model.input_limits import RECORDING
from preflight.model.stuck_evidence import OutputTail, RecordedLag
from preflight.stuck.collect.jobs import ListedProcess
from preflight.system.machine import Machine

# Where torch writes them, by the names of 2.9 and of older ones; the rank's number follows.
FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DEFAULT_FILE = "/tmp/nccl_trace_rank_"
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"  # followed by the rank's number and .pipe
MOST_AGE_S = 600.0  # older ones tell of another hang
BUFFER = "TORCH_FR_BUFFER_SIZE (older TORCH_NCCL_TRACE_BUFFER_SIZE)"
WAIT_S = 8.0  # torch looks into its pipe once a second, and takes seconds to name the functions of its C++ stacks
POLL_S = 0.2
CLOCK_S = 2.0  # by which the clock of a file system may be behind
TAIL_BYTES = 4096
MOST_LINES, LINE_CHARS = 3, 300  # of a rank's output


@dataclass(frozen=True, slots=True)
class Dump:
    """The paths of a rank's flight recorder dump and of the pipe for dump requests."""

    rank: str
    uid: int
    path: str
    pipe: str  # "" if the rank listens to none

    @classmethod
    def of(cls, process: ListedProcess) -> Dump | None:
        """Return the dump paths of the rank `process`, or None if the process has no rank number."""
        if process.identity is None:
            return None
        rank, pipe = process.identity.number, process.places.get(PIPE)
        start = next((process.places[name] for name in FILES if process.places.get(name)), DEFAULT_FILE)
        return cls(rank, process.uid, f"{start}{rank}", f"{pipe}{rank}.pipe" if pipe else "")

    def request(self) -> bool:
        """Ask the rank to write a dump. Return False if the rank does not accept the request."""
        try:
            fd = os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            status = os.fstat(fd)
            return stat.S_ISFIFO(status.st_mode) and status.st_uid == self.uid and os.write(fd, b"1") == 1
        except OSError:
            return False
        finally:
            os.close(fd)

    def is_made_since(self, since: float) -> bool:
        """Return whether the dump was written after `since`, in seconds of this host's clock."""
        try:
            return os.stat(self.path).st_mtime >= since - CLOCK_S
        except OSError:
            return False

    def read(self) -> Recording | None:
        """Return the dump's content, or None if the dump is missing, old, incomplete, or from another user."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            return None
        with open(fd, "rb") as file:
            status = os.fstat(file.fileno())
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == self.uid
            if not is_own or status.st_size > RECORDING.most_bytes or time.time() - status.st_mtime >= MOST_AGE_S:
                return None
            try:
                return read_recording(f"nccl_trace_rank_{self.rank}", file.read(RECORDING.most_bytes))
            except MalformedInput:
                return None


def read_recordings(ranks: Sequence[ListedProcess], dumps: bool) -> RecordedLag | Gap:
    """Return the ranks that are behind, or in another collective, as shown by the flight recorder dumps.

    The result is a Gap object if the dumps show no rank of either kind.
    """
    # If `dumps` is True, new dumps are requested first.
    places = [place for place in map(Dump.of, ranks) if place is not None]
    silent = ""
    if dumps:
        asked_at, end_at = time.time(), time.monotonic() + WAIT_S
        asked = [place for place in places if place.request()]
        if not asked:
            return Gap(f"no rank accepts a request to dump, because {PIPE} was not set when the ranks started")
        while (waiting := [p.rank for p in asked if not p.is_made_since(asked_at)]) and time.monotonic() < end_at:
            time.sleep(POLL_S)
        silent = f"; rank {', '.join(waiting)} wrote no dump on request" if waiting else ""
    found = tuple(recording for place in places if (recording := place.read()) is not None)
    if not found:
        return Gap(f"there are no flight recorder dumps: {BUFFER} was not set, or no rank wrote a dump{silent}")
    if lag := find_lag(found):
        return RecordedLag(lag.ranks, f"has enqueued {lag.seq} collectives, others {lag.ahead_seq}: not {lag.missing}")
    if clash := find_clash(found):
        (one, what), (other, else_) = clash.one, clash.other
        return RecordedLag(
            clash.differ or (one, other), f"under number {clash.seq} rank {one} has {what} and rank {other} {else_}"
        )
    return Gap(f"{len(found)} flight recorder dumps show their ranks level{silent}")


def read_output_tail(machine: Machine, pid: int) -> OutputTail | Gap:
    """Return the last lines of the output file of process `pid`, or a Gap if the output goes to no file."""
    for fd in (1, 2):
        try:
            path = machine.link(f"proc/{pid}/fd/{fd}")
            if not path.startswith("/") or path.startswith("/dev/"):
                continue
            with open(f"/proc/{pid}/fd/{fd}", "rb", opener=_without_waiting) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    continue
                file.seek(max(0, status.st_size - TAIL_BYTES))
                lines = file.read(TAIL_BYTES).decode("utf-8", "backslashreplace").splitlines()
        except UnreadableFact as error:
            return Gap(str(error))
        except OSError as error:
            return Gap(f"{path}: {error.strerror}")
        kept = tuple(line[:LINE_CHARS] for line in lines if line.strip())[-MOST_LINES:]
        return OutputTail(path, kept, max(0.0, time.time() - status.st_mtime))
    return Gap("the output of this rank goes to no file")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
