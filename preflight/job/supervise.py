"""The small process that stays while the job runs: check, job, `stuck` where it hangs, `explain` where it fails."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import NoReturn

from preflight import pg_timeout
from preflight.errors import UsageError
from preflight.job.children import Children, Process
from preflight.job.movement import Movement
from preflight.job.order import VISIBLE, Order, inherited_environ, read_order
from preflight.job.output import Streams
from preflight.job.say import say, write_all
from preflight.system.own_command import own_argv
from preflight.system.ownership import open_own
from preflight.system.processes import name_process

NOT_READY, USAGE, UNKNOWN = 1, 2, 3  # exit codes of `preflight check`
NOT_STUCK, STUCK = 0, 1  # and of `preflight stuck`
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell says it
FIRST_SIGNAL_CODE = 128
DEFAULT_TIMEOUT_S = 600  # torch's own for NCCL since 2.2
OWN_S = 120.0  # `stuck` and `explain` end long before
KILLED_S = 5.0  # for what was killed
# What is said around the pages of `check`, `stuck` and `explain`.
REFUSED = "not ready, so {} was not started (exit code {})"
STOPPED = "unknown, so {} was not started (exit code 3; --on-unknown stop)"
CUT_SHORT = "the check was stopped, so {} was not started"
KILLED = "the check was ended by signal {} ({})"
STARTED = "unknown; {} starts all the same (see --on-unknown)"
STILL = "nothing has moved for {:.0f} s; more: `preflight stuck -v --pid {}`"
LEFT = "{} is left running"
UNCLEAR = "nothing has moved for {:.0f} s, and `preflight stuck` {}; more: `preflight stuck -v --pid {}`"
NO_TELLING = "could not tell why"
ENDED, KEPT = "{} ended with {}", "; its output is kept in {}"
MORE = "`preflight explain -v {}` shows more than this page:"
# Names the settings that sourcing the file makes: the variables before and after it, as a shell has them.
SOURCE = "env -0; printf '\\0\\0'; . \"$0\"; env -0"


def main() -> NoReturn:
    """Carry the order out and exit as the job did, or with the code for why it did not start.

    The order's descriptor is the first argument.
    """
    name_process("preflight-run")
    order = read_order(int(sys.argv[1]))
    children = Children()
    try:
        environ = _environment(order, children) if _check(order, children) else inherited_environ()
        folder = order.keep_dir or _private_folder()
        prefix = f"{os.uname().nodename}." if order.keep_dir else ""
        if order.splits_ranks and folder:
            environ |= {"PET_LOG_DIR": os.path.join(folder, f"{prefix}ranks"), "PET_TEE": "3"}
        streams = Streams(folder, prefix)
        job = _start(order, children, environ, streams)
    except Exception as error:  # noqa: BLE001  nothing runs yet; Python's own code for it, 1, could be a job's
        say(f"{order.command[0]} was not started: {_reason(error)}")
        children.end(UNKNOWN)
    children.end(_accompany(order, children, job, environ, streams, folder, prefix))


def _private_folder() -> str:
    """Return a new folder for the job's output; "" where none can be made."""
    try:
        return tempfile.mkdtemp(prefix="preflight-job-")  # mode 0700
    except OSError as error:
        say(f"the job's output is not kept: {error.strerror}")
        return ""


def _start(order: Order, children: Children, environ: Mapping[str, str], streams: Streams) -> Process:
    try:
        job = children.start(order.command, environ, None, streams.stdout, streams.stderr, is_main=True, is_job=True)
    except OSError as error:
        say(f"{order.command[0]}: {error.strerror}")
        children.end(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
    streams.close_given()
    return job


def _accompany(
    order: Order, children: Children, job: Process, environ: Mapping[str, str], streams: Streams,
    folder: str, prefix: str,
) -> int:  # fmt: skip
    """Return how the job ended. From its start on only its end is ours; all that is done besides may fail."""
    children.on_resize = streams.resize
    code = None
    with _contained("the job is no longer watched"):
        movement = Movement(order.stuck_after_s or _half_timeout_s(environ), lambda: streams.written, job.pid)
        code = _watch(order, children, job, movement)
    if code is None:
        code = job.wait()
    with _contained("the end of the job's output may be missing"):
        children.take_up_pending()
        streams.finish(children.is_asked_to_end)
    with _contained("the job's end is not explained"):
        _explain(order, children, code, streams, folder, prefix)
    return code


@contextlib.contextmanager
def _contained(consequence: str) -> Iterator[None]:
    """Have what fails beside a job cost a line, and neither the job nor its exit code."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  whatever it is, it is ours
        say(f"{consequence}: {_reason(error)}")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or f"{type(error).__name__}: {error}"


def _check(order: Order, children: Children) -> bool:
    """Return whether it is ready, where the job may start; exit otherwise."""
    if not order.check:
        return True
    environ = inherited_environ() | {VISIBLE: order.visible} if order.visible else None
    check = children.start(own_argv(*order.check, *order.detail), environ, subprocess.DEVNULL, 2, 2, is_main=True)
    code = children.wait(check) or 0
    children.take_up_pending()
    if children.last_signal and (code < 0 or code > FIRST_SIGNAL_CODE):
        say(CUT_SHORT.format(order.command[0]))
        children.end(code)
    if code == NOT_READY:
        say(REFUSED.format(order.command[0], order.not_ready_code))
        children.end(order.not_ready_code)
    if code == USAGE:
        children.end(USAGE)
    if code < 0:  # the kernel, for want of memory; or somebody else
        say(KILLED.format(-code, signal.strsignal(-code)))
    if code != 0:
        if not order.starts_if_unknown:
            say(STOPPED.format(order.command[0]))
            children.end(UNKNOWN)
        say(STARTED.format(order.command[0]))
    return code == 0


def _environment(order: Order, children: Children) -> dict[str, str]:
    """Return our environment with what the `.env` makes of it; without one, as it is."""
    environ = inherited_environ()
    try:
        settings = open_own(order.env_path)  # where others may write, it may be theirs by now
    except FileNotFoundError:
        return environ
    except OSError as error:
        say(f"{order.env_path}: {error.strerror}; the job starts without it")
        return environ
    ran = children.output_of(["/bin/sh", "-c", SOURCE, f"/proc/self/fd/{settings}"], environ, settings)
    os.close(settings)
    parts = ran.stdout.split(b"\0\0\0")
    if ran.returncode != 0 or len(parts) != 2:
        say(f"{order.env_path} could not be sourced; the job starts without it")
        return environ
    before, after = (dict(os.fsdecode(line).split("=", 1) for line in part.split(b"\0") if line) for part in parts)
    kept = {name: value for name, value in environ.items() if name in after or name not in before}
    return kept | {name: value for name, value in after.items() if before.get(name) != value}


def _half_timeout_s(environ: Mapping[str, str]) -> float:
    """Return when to look: before the watchdog ends the job and what it could tell."""
    try:
        said = pg_timeout(environ)
    except UsageError:
        said = None  # the job's own call of it will tell
    return (said.total_seconds() if said else DEFAULT_TIMEOUT_S) / 2


def _watch(order: Order, children: Children, job: Process, movement: Movement) -> int | None:
    """Wait for the job; where nothing moves, have `stuck` look, and print its page once: that of a job that hangs."""
    is_said = False
    while (code := children.wait(job, time.monotonic() + movement.look_s)) is None:
        found, page = None, b""
        why = NO_TELLING
        try:
            if not movement.stands_still():
                continue
            found, page = _look(order, children, job)
        except OSError as error:  # no process can be started, no file opened: perhaps later
            why = f"could not look ({_reason(error)})"
        if found == STUCK:
            say(STILL.format(movement.still_s, job.pid))
            with contextlib.suppress(OSError):
                write_all(2, page)
            say(LEFT.format(order.command[0]))
            return children.wait(job)
        if found == NOT_STUCK:
            movement.seen_to_move()
        elif not is_said:
            say(UNCLEAR.format(movement.still_s, why, job.pid))
            is_said = True
        movement.look_later()
    return code


def _look(order: Order, children: Children, job: Process) -> tuple[int | None, bytes]:
    """Return what `stuck` found, None where it took too long, and its page."""
    page = os.memfd_create("preflight-stuck")
    try:
        argv = own_argv("stuck", "--no-ras", "--pid", str(job.pid), *order.detail)
        looking = children.start(argv, None, subprocess.DEVNULL, page, page)
        found = _wait_for_own(children, looking)
        return found, os.pread(page, os.fstat(page).st_size, 0)
    finally:
        os.close(page)


def _wait_for_own(children: Children, own: Process) -> int | None:
    found = children.wait(own, time.monotonic() + OWN_S)
    if found is None:
        own.kill()
        children.wait(own, time.monotonic() + KILLED_S)
    return found


def _explain(order: Order, children: Children, code: int, streams: Streams, folder: str, prefix: str) -> None:
    """Print explain's first screen, unless it was the user who ended the job, or its output (`| head`)."""
    if (streams.losses or code != 0) and not streams.ends_line:
        with contextlib.suppress(OSError):
            write_all(2, b"\n")
    for loss in streams.losses:
        say(loss)
    kept = streams.paths if code != 0 else []
    if folder and not kept and not order.keep_dir:
        shutil.rmtree(folder, ignore_errors=True)
    if code == 0:
        return
    how = f"exit code {code}" if code > 0 else f"signal {-code} ({signal.strsignal(-code)})"
    if streams.lost_reader:
        how += ", and nobody reads its output any more"
    say(ENDED.format(order.command[0], how) + (KEPT.format(folder) if kept else ""))
    if children.last_signal in (signal.SIGINT, signal.SIGQUIT) or streams.lost_reader or not kept:
        return
    say(MORE.format(shlex.quote(folder)))
    ranks = os.path.join(folder, f"{prefix}ranks")
    logs = [*kept, *([ranks] if os.path.isdir(ranks) else [])]
    explaining = children.start(own_argv("explain", *logs, *order.detail), None, subprocess.DEVNULL, 2, 2, is_main=True)
    _wait_for_own(children, explaining)
