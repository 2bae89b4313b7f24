"""Run everything that comes before the job, such as the check and the setup of the output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import NoReturn

from preflight.job.children import Children, Process
from preflight.job.folder import make_folder
from preflight.job.order import VISIBLE, Order, inherited_environ, read_order
from preflight.job.output import Streams
from preflight.job.say import reason, say
from preflight.job.waiter import accompany
from preflight.job.watcher import Watcher
from preflight.system.own_command import own_argv
from preflight.system.ownership import opened_own
from preflight.system.processes import name_process

NOT_READY, USAGE, UNKNOWN = 1, 2, 3  # exit codes of `preflight check`
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell says it
FIRST_SIGNAL_CODE = 128
# What is said around the page of `check`.
REFUSED = "not ready, so {} was not started (exit code {})"
STOPPED = "unknown, so {} was not started (exit code 3; --on-unknown stop)"
CUT_SHORT = "the check was stopped, so {} was not started"
KILLED = "the check was ended by signal {} ({})"
STARTED = "unknown; {} starts anyway (see --on-unknown)"
# Names the settings that sourcing the file makes: the variables before and after it, as a shell has them.
SOURCE = "env -0; printf '\\0\\0'; . \"$0\"; env -0"


def main() -> NoReturn:
    """Carry out the order and exit with the job's exit code, or with a code for a failed start.

    The order is read from the descriptor with the number in the first argument.
    """
    name_process("preflight-run")
    order = read_order(int(sys.argv[1]))
    children = Children()
    try:
        environ = _environment(order, children) if _check(order, children) else inherited_environ()
        folder = make_folder(order.keep_dir)
        if order.splits_ranks and folder.path:
            environ |= {"PET_LOG_DIR": folder.file("ranks"), "PET_TEE": "3"}
        streams = Streams(folder)
        watcher = Watcher(order, streams, environ, folder, children.mask)
        job = _start(order, children, environ, streams)
    except Exception as error:  # noqa: BLE001  nothing runs yet; Python's own code for it, 1, could be a job's
        say(f"{order.name} was not started: {reason(error)}")
        children.end(UNKNOWN)
    children.end(accompany(children, job, streams, lambda ended: watcher.run(ended, job.pid)))


def _start(order: Order, children: Children, environ: Mapping[str, str], streams: Streams) -> Process:
    try:
        job = children.start(order.command, environ, None, streams.stdout, streams.stderr, is_job=True)
    except OSError as error:
        say(f"{order.name}: {error.strerror}")
        children.end(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
    streams.close_given()
    return job


def _check(order: Order, children: Children) -> bool:
    """Run the check, and return whether the job is ready. Exit if the job must not start."""
    if not order.check:
        return True
    environ = inherited_environ() | {VISIBLE: order.visible} if order.visible else None
    children.start(own_argv(*order.check, *order.detail), environ, subprocess.DEVNULL, 2, 2)
    code = children.wait()
    children.take_up_pending()
    if children.last_signal and (code < 0 or code > FIRST_SIGNAL_CODE):
        say(CUT_SHORT.format(order.name))
        children.end(code)
    if code == NOT_READY:
        say(REFUSED.format(order.name, order.not_ready_code))
        children.end(order.not_ready_code)
    if code == USAGE:
        children.end(USAGE)
    if code < 0:  # killed by the kernel for lack of memory, or by another process
        say(KILLED.format(-code, signal.strsignal(-code)))
    if code != 0:
        if not order.starts_if_unknown:
            say(STOPPED.format(order.name))
            children.end(UNKNOWN)
        say(STARTED.format(order.name))
    return code == 0


def _environment(order: Order, children: Children) -> dict[str, str]:
    """Return preflight's environment with the changes that the `.env` file makes.

    If the `.env` file is missing or can't be sourced, nothing is changed.
    """
    environ = inherited_environ()
    try:
        with opened_own(order.env_path) as settings:
            ran = children.output_of(["/bin/sh", "-c", SOURCE, f"/proc/self/fd/{settings}"], environ, settings)
    except FileNotFoundError:
        return environ
    except OSError as error:
        say(f"{order.env_path}: {error.strerror}; the job starts without it")
        return environ
    parts = ran.stdout.split(b"\0\0\0")
    if ran.returncode != 0 or len(parts) != 2:
        say(f"{order.env_path} could not be sourced; the job starts without it")
        return environ
    before, after = (dict(os.fsdecode(line).split("=", 1) for line in part.split(b"\0") if line) for part in parts)
    kept = {name: value for name, value in environ.items() if name in after or name not in before}
    return kept | {name: value for name, value in after.items() if before.get(name) != value}
