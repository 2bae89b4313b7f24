"""What the job has written: flight recorder dumps (who is behind, or elsewhere), and each rank's last lines."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence

from preflight.errors import MalformedInput, UnreadableFact
from preflight.explain.flight_recorder import Recording, find_clash, find_lag, read_recording
from preflight.model.gap import Gap
from preflight.model.input_limits import RECORDING
from preflight.model.stuck_evidence import OutputTail, RecordedLag
from preflight.stuck.collect.find_ranks import identity
from preflight.stuck.collect.process_table import Listed
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


def read_recordings(ranks: Sequence[Listed], dumps: bool) -> RecordedLag | Gap:
    """Return what the ranks' dumps say; a Gap where there are none, or they tell nothing."""
    asked_at = time.time()
    asked = [each for each in ranks if dumps and _ask_for_dump(each)]
    if dumps and not asked:
        return Gap(f"no rank listens for a request to dump: {PIPE} was not set when it started")
    open_ = _wait_for(asked, asked_at)
    silent = f"; asked for one, made none: rank {', '.join(open_)}" if open_ else ""
    found = tuple(_recordings(ranks))
    if not found:
        return Gap(f"there are no flight recorder dumps: {BUFFER} was not set, or nothing dumped{silent}")
    if lag := find_lag(found):
        return RecordedLag(lag.ranks, f"has enqueued {lag.seq} collectives, others {lag.ahead_seq}: not {lag.missing}")
    if clash := find_clash(found):
        (one, what), (other, else_) = clash.one, clash.other
        return RecordedLag((one, other), f"under number {clash.seq} rank {one} has {what} and rank {other} {else_}")
    return Gap(f"{len(found)} flight recorder dumps show their ranks level{silent}")


def _ask_for_dump(each: Listed) -> bool:
    start, number = each.places.get(PIPE), _number(each)
    if not start or not number:
        return False
    path = f"{start}{number}.pipe"
    try:
        if not stat.S_ISFIFO(os.stat(path).st_mode) or os.stat(path).st_uid != each.uid:
            return False
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return os.write(fd, b"1") == 1
    except OSError:
        return False
    finally:
        os.close(fd)


def _wait_for(asked: Sequence[Listed], since: float) -> list[str]:
    """Wait for the dumps that were asked for; return the numbers of the ranks that made none."""
    end_at = time.monotonic() + WAIT_S
    while (open_ := [_number(each) for each in asked if not _has_dumped(each, since)]) and time.monotonic() < end_at:
        time.sleep(POLL_S)
    return open_


def _has_dumped(each: Listed, since: float) -> bool:
    try:
        return os.stat(_path(each)).st_mtime >= since - CLOCK_S
    except OSError:
        return False


def _path(each: Listed) -> str:
    return f"{next((each.places[name] for name in FILES if each.places.get(name)), DEFAULT_FILE)}{_number(each)}"


def _number(each: Listed) -> str:
    own = identity(each)
    return own[1] if own else ""


def _recordings(ranks: Iterable[Listed]) -> Iterable[Recording]:
    for each in ranks:
        number = _number(each)
        data = _own_and_new(_path(each), each.uid) if number else None
        if data is not None:
            try:
                yield read_recording(f"nccl_trace_rank_{number}", data)
            except MalformedInput:
                continue  # no dump, or one that is being written


def _own_and_new(path: str, uid: int) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(file.fileno())
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == uid and status.st_size <= RECORDING.most_bytes
        return file.read(RECORDING.most_bytes) if is_ours and time.time() - status.st_mtime < MOST_AGE_S else None


def read_output_tail(machine: Machine, pid: int) -> OutputTail | Gap:
    """Return the end of the file to which a process writes; a Gap where it writes into a terminal or a pipe."""
    try:
        targets = [machine.link(f"proc/{pid}/fd/{fd}") for fd in (1, 2)]
    except UnreadableFact as error:
        return Gap(str(error))
    for path in targets:
        try:
            if path.startswith("/") and not path.startswith("/dev/") and stat.S_ISREG(os.stat(path).st_mode):
                return _tail(path)
        except OSError as error:
            return Gap(f"{path}: {error.strerror}")
    return Gap("its output goes to no file")


def _tail(path: str) -> OutputTail:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        file.seek(max(0, status.st_size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).decode("utf-8", "backslashreplace").splitlines()
    kept = tuple(line[:LINE_CHARS] for line in lines if line.strip())[-MOST_LINES:]
    return OutputTail(path, kept, max(0.0, time.time() - status.st_mtime))
