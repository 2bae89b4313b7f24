"""The small process that stays while the job runs: check, job, `stuck` where it hangs, `explain` where it fails."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import NoReturn

from preflight import pg_timeout
from preflight.errors import UsageError
from preflight.jobrun.children import Children
from preflight.jobrun.movement import Movement
from preflight.jobrun.order import VISIBLE, Order, inherited_environ, read_order
from preflight.jobrun.output import PRIVATE, Streams
from preflight.system.own_command import own_argv
from preflight.system.processes import name_process

NOT_READY, USAGE, UNKNOWN = 1, 2, 3  # exit codes of `preflight check`
NOT_STUCK = 0  # and of `preflight stuck`
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell says it
FIRST_SIGNAL_CODE = 128
DEFAULT_TIMEOUT_S = 600  # torch's own for NCCL since 2.2
OWN_S = 120.0  # `stuck` and `explain` end long before
# What is said around the pages of `check`, `stuck` and `explain`.
REFUSED = "not ready, so {} was not started (exit code {})"
STOPPED = "unknown, so {} was not started (exit code 3; --on-unknown stop)"
CUT_SHORT = "the check was stopped, so {} was not started"
STARTED = "unknown; {} starts all the same (see --on-unknown)"
STILL = "nothing has moved for {:.0f} s; more: `preflight stuck -v --pid {}`"
LEFT = "{} is left running"
ENDED, KEPT = "{} ended with {}", "; its output is kept in {}"
MORE = "`preflight explain -v {}` shows more than this page:"
# Names the settings that sourcing the file makes: the variables before and after it, as a shell has them.
SOURCE = "env -0; printf '\\0\\0'; . \"$0\"; env -0"


def main(text: str) -> NoReturn:
    """Carry the order out and exit as the job did, or with the code for why it did not start."""
    name_process("preflight-run")
    order = read_order(text)
    children = Children()
    _check(order, children)
    environ = _environment(order)
    folder = order.keep_dir or tempfile.mkdtemp(prefix="preflight-job-")  # mode 0700
    prefix = f"{os.uname().nodename}." if order.keep_dir else ""
    if order.splits_ranks:
        environ |= {"PET_LOG_DIR": os.path.join(folder, f"{prefix}ranks"), "PET_TEE": "3"}
    streams = Streams(folder, prefix)
    try:
        job = children.start(order.command, environ, None, streams.stdout, streams.stderr, is_main=True)
    except OSError as error:
        _say(f"{order.command[0]}: {error.strerror}")
        children.end(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
    streams.begin()
    children.on_resize = streams.resize
    movement = Movement(order.stuck_after_s or _half_timeout_s(environ), lambda: streams.written, job.pid)
    code = _watch(order, children, job, movement, folder)
    streams.finish()
    if code != 0:
        _explain(order, children, code, streams, folder, prefix)
    elif not order.keep_dir:
        shutil.rmtree(folder, ignore_errors=True)
    children.end(code)


def _check(order: Order, children: Children) -> None:
    """Return where the job may start; exit otherwise."""
    if not order.check:
        return
    environ = inherited_environ() | {VISIBLE: order.visible} if order.visible else None
    check = children.start(own_argv(*order.check, *order.detail), environ, subprocess.DEVNULL, 2, 2, is_main=True)
    code = children.wait(check) or 0
    if code < 0 or code > FIRST_SIGNAL_CODE:
        _say(CUT_SHORT.format(order.command[0]))
        children.end(code)
    if code == NOT_READY:
        _say(REFUSED.format(order.command[0], order.not_ready_code))
        children.end(order.not_ready_code)
    if code == USAGE:
        children.end(USAGE)
    if code != 0:
        if not order.starts_if_unknown:
            _say(STOPPED.format(order.command[0]))
            children.end(UNKNOWN)
        _say(STARTED.format(order.command[0]))


def _environment(order: Order) -> dict[str, str]:
    """Return our environment with what the `.env` makes of it; without one, as it is."""
    environ = inherited_environ()
    if not os.path.exists(order.env_path):
        return environ
    path = os.path.abspath(order.env_path)
    ran = subprocess.run(
        ["/bin/sh", "-c", SOURCE, path], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    parts = ran.stdout.split(b"\0\0\0")
    if ran.returncode != 0 or len(parts) != 2:
        _say(f"{order.env_path} could not be sourced; the job starts without it")
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


def _watch(order: Order, children: Children, job: subprocess.Popen[bytes], movement: Movement, folder: str) -> int:
    """Wait for the job; where nothing moves, have `stuck` look, and print its page once."""
    while (code := children.wait(job, time.monotonic() + movement.look_s)) is None:
        if not movement.stands_still():
            continue
        page = os.path.join(folder, "stuck.txt")
        found = _look(order, children, job, page)
        if found == NOT_STUCK:
            movement.seen_to_move()
            continue
        _say(STILL.format(movement.still_s, job.pid))
        _print(page)
        _say(LEFT.format(order.command[0]))
        code = children.wait(job)
        break
    return code or 0


def _look(order: Order, children: Children, job: subprocess.Popen[bytes], page: str) -> int | None:
    with open(page, "wb", opener=lambda path, flags: os.open(path, flags, PRIVATE)) as file:
        argv = own_argv("stuck", "--pid", str(job.pid), *order.detail)
        looking = children.start(argv, None, subprocess.DEVNULL, file.fileno(), file.fileno())
        found = children.wait(looking, time.monotonic() + OWN_S)
    if found is None:
        looking.kill()
        children.wait(looking)
    return found


def _explain(order: Order, children: Children, code: int, streams: Streams, folder: str, prefix: str) -> None:
    """Print explain's first screen, unless it was the user who ended the job, or its output (`| head`)."""
    how = f"exit code {code}" if code > 0 else f"signal {-code} ({signal.strsignal(-code)})"
    if not streams.ends_line:
        sys.stderr.write("\n")
    if streams.lost_reader:
        how += ", and nobody reads its output any more"
    _say(ENDED.format(order.command[0], how) + (KEPT.format(folder) if streams.paths else ""))
    if not streams.paths and not order.keep_dir:
        shutil.rmtree(folder, ignore_errors=True)
    if children.last_signal in (2, 3) or streams.lost_reader or not streams.paths:
        return
    _say(MORE.format(shlex.quote(folder)))
    ranks = os.path.join(folder, f"{prefix}ranks")
    logs = [*streams.paths, *([ranks] if os.path.isdir(ranks) else [])]
    explaining = children.start(own_argv("explain", *logs, *order.detail), None, subprocess.DEVNULL, 2, 2)
    if children.wait(explaining, time.monotonic() + OWN_S) is None:
        explaining.kill()


def _print(path: str) -> None:
    with open(path, "rb") as file:
        shutil.copyfileobj(file, sys.stderr.buffer)
    sys.stderr.flush()


def _say(message: str) -> None:
    sys.stderr.write(f"preflight: {message}\n")
    sys.stderr.flush()
