"""Measure how fast a checkpoint directory is written and read, with one writer and then with all writers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from preflight.errors import UnreadableFact, UsageError
from preflight.facts.reading import gap_or
from preflight.model.gap import Gap
from preflight.model.storage import NOTHING, StorageSpeed
from preflight.model.units import size_text
from preflight.system.kernel_queries import live_machine
from preflight.system.storage_file import BLOCK_BYTES
from preflight.system.storage_writers import LOOK, READ, WRITE, Task, WriterOutcome, Writers, start_writers

MOST_FILE_BYTES = 1 << 30
SHARE_OF_FREE = 10  # at most a tenth of the free space, all files together
MOST_WRITERS = 256
NODE_WRITERS = 8  # ranks of one node that write together
BUDGET_S = 5.0
WORK_SHARE = 0.6  # of a step's time; the rest is for fsync
UNTIL_SHARE = 0.75  # of the budget that the steps share; the rest is for what throttled storage owes at the end
LEAST_STEP_S = 0.01
LEAST_BUDGET_S = 1.0

Watch = Callable[[float], None]


@dataclass(slots=True)
class _Run:
    """The state of a storage measurement.

    The remaining steps share the remaining time.
    """

    end_at: float
    work_until: float
    steps: int
    watch: Watch
    file_bytes: int  # per writer: at first the most, then what there is room for
    done_steps: int = 0
    is_direct: bool | Gap = NOTHING
    least_bytes: list[int] = field(default_factory=list)

    def do(self, what: str, writers: Writers, count: int, after: float | Gap = 0.0) -> float | Gap:
        """Run step `what` with `count` writers, and return the sum of the writers' speeds in bytes per second.

        Return a Gap object with the reason if the step fails or if `after`, the previous result, is a Gap object.
        """
        # If `after` is a Gap, the step is skipped.
        if isinstance(after, Gap):
            return self.skip(after)
        now = time.monotonic()
        if now >= self.end_at:
            return self.skip(Gap("the time for measuring was up"))
        step_s = max(LEAST_STEP_S, self.work_until - now) / (self.steps - self.done_steps)
        # What flushes for long takes from the steps after it; only what takes all the time that is left has stalled.
        task = Task(what, now + WORK_SHARE * step_s, self.end_at, self.file_bytes)
        whole = self.file_bytes * count

        def watch(done_bytes: int) -> None:
            share = max(done_bytes / whole, (time.monotonic() - now) / step_s)
            self.watch((self.done_steps + min(1.0, share)) / self.steps)

        paused_s = writers.crew.paused_s
        outcomes = writers.carry_out(task, count, watch)
        paused_s = writers.crew.paused_s - paused_s
        self.done_steps += 1
        self.watch(self.done_steps / self.steps)
        return (
            Gap(f"preflight itself was paused for {paused_s:.0f} s in that time") if paused_s else self._speed(outcomes)
        )

    def skip(self, speed: Gap) -> Gap:
        """Count a step as completed without running the step.

        Return a Gap object with the reason from `speed`.
        """
        self.done_steps += 1
        self.watch(min(1.0, self.done_steps / self.steps))
        return Gap(f"not tried: {speed.reason.removeprefix('not tried: ')}")

    def _speed(self, outcomes: Sequence[WriterOutcome]) -> float | Gap:
        for number, outcome in enumerate(outcomes):
            if outcome.failure:
                which = f"writer {number} of {len(outcomes)}: " if len(outcomes) > 1 else ""
                return Gap(f"{which}{outcome.failure}")
        values = [outcome.value for outcome in outcomes]
        self.is_direct = all(value["is_direct"] for value in values)
        done_bytes = [int(value["done_bytes"]) for value in values]
        self.least_bytes.append(min(done_bytes))
        took_s = float(max(value["end"] for value in values) - min(value["start"] for value in values))
        return sum(done_bytes) / max(took_s, 1e-9)


def measure_storage(
    directory: str, writers: int, budget_s: float, watch: Watch = lambda _: None, most_bytes: int = MOST_FILE_BYTES
) -> StorageSpeed:
    """Return the speed at which `writers` processes write and read one file each, within `budget_s` seconds.

    The function forks, so call the function only from a process with a single thread. Raise UsageError if the directory
    does not exist, or Interrupted if a signal arrives.
    """
    # All files together take at most a tenth of the free space. The files have no names, so the files disappear when
    # the writing processes end. A symbolic link to a directory is followed. `watch` gets the completed share, from 0 to
    # 1. If a speed can't be measured, a Gap with the reason replaces the speed.
    if not 1 <= writers <= MOST_WRITERS:
        raise UsageError(f"{writers} writers: from 1 to {MOST_WRITERS} can be tried")
    start = time.monotonic()
    budget_s = max(LEAST_BUDGET_S, budget_s)
    run = _Run(start + budget_s, start + UNTIL_SHARE * budget_s, 4 if writers > 1 else 2, watch, most_bytes)
    try:
        with start_writers(directory, writers) as started:
            return _measure(started, writers, run, start)
    except UnreadableFact as error:
        return _speeds(directory, writers, run, start, *[Gap(str(error))] * 4)


def _measure(writers: Writers, count: int, run: _Run, start: float) -> StorageSpeed:
    run.watch(0.0)
    path, room_bytes = _room(writers, count, run)
    run.file_bytes = min(run.file_bytes, room_bytes)
    write_one = write_all = run.do(WRITE, writers, 1)
    read_one = read_all = run.do(READ, writers, 1, write_one)
    failed = next((speed for speed in (write_one, read_one) if isinstance(speed, Gap)), None)
    if count > 1 and failed is not None:
        write_all = read_all = run.skip(failed)
    elif count > 1:
        write_all = run.do(WRITE, writers, count)
        read_all = run.do(READ, writers, count, write_all)
    return _speeds(path, count, run, start, write_one, write_all, read_one, read_all)


def _room(writers: Writers, count: int, run: _Run) -> tuple[str, int]:
    """Return the real path of the directory, and the maximum number of bytes for each writer's file."""
    now = time.monotonic()
    by = now + (run.end_at - now) / (run.steps + 1)
    (look,) = writers.carry_out(Task(LOOK, by, by), 1, lambda _: None)
    if look.failure:
        raise (UsageError if look.is_usage else UnreadableFact)(look.failure)
    file_bytes = file_size_bytes(look.value["free_bytes"], count)
    if not file_bytes:
        need = size_text(SHARE_OF_FREE * BLOCK_BYTES * count)
        free = size_text(look.value["free_bytes"])
        raise UnreadableFact(f"{free} free; at most a tenth is used, so that measuring needs {need}")
    return look.value["path"], file_bytes


def file_size_bytes(free_bytes: int, writers_count: int) -> int:
    """Return the size of each writer's file in bytes, a multiple of the block size.

    The size is 0 if there is no space for one block.
    """
    # All files together take at most a tenth of `free_bytes`.
    size_bytes = min(MOST_FILE_BYTES, free_bytes // SHARE_OF_FREE // writers_count)
    return size_bytes // BLOCK_BYTES * BLOCK_BYTES


def _speeds(path: str, count: int, run: _Run, start: float, *speeds: float | Gap) -> StorageSpeed:
    write_one, write_all, read_one, read_all = speeds
    return StorageSpeed(
        directory=path,
        writers=count,
        file_bytes=min(run.least_bytes, default=0),
        write_one_bytes_per_s=write_one,
        write_all_bytes_per_s=write_all,
        read_one_bytes_per_s=read_one,
        read_all_bytes_per_s=read_all,
        took_s=time.monotonic() - start,
        is_direct=run.is_direct,
        file_system=gap_or(lambda: parse_file_system(live_machine().text("proc/self/mountinfo"), path)),
    )


def parse_file_system(mountinfo: str, path: str) -> str:
    """Return the type of the file system that holds `path`, from `mountinfo`, the text of /proc/self/mountinfo.

    Raise UnreadableFact if no mount point is above the path.
    """
    # The longest mount point above the path decides. If several mounts have this mount point, the last mount decides.
    best, found = -1, ""
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]).rstrip("/")
        if len(point) >= best and (path == point or path.startswith(f"{point}/")):
            best, found = len(point), after.split(" ")[0]
    if not found:
        raise UnreadableFact("/proc/self/mountinfo: it names no mount above the directory")
    return found
