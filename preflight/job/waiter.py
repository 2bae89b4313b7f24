"""Wait for the job in the process that the caller of `preflight run` started.

This process passes signals on, waits, and exits as the job did.
"""
# Helper processes do everything else and may die at any time. The copiers pass the output on, and the watcher examines
# a hang and explains a failure. No failure in this module ends the job or changes how the job ends.

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from preflight.job.children import Children, Process, end_helper, how_it_ended
from preflight.job.output import RETRY_S, Streams, close_surely
from preflight.job.say import contained

WATCHER_S = 150.0  # for what the watcher has left to say; it limits itself to less
PATIENCE_S = 3600.0  # nothing is waited for that does not wake us
USER_S_OWN_END = {signal.SIGINT, signal.SIGQUIT}


def accompany(children: Children, job: Process, streams: Streams, watch: Callable[[int], None]) -> int:
    """Wait for the job, pass signals on, and return the job's exit code.

    If signal N ended the job, return -N. The function `watch` runs in a separate process. It gets a descriptor on which
    the exit code arrives.
    """
    children.on_resize = streams.resize
    watcher, tell = 0, -1
    with contained("the job is not watched"):
        hears, tell = os.pipe()
        watcher = children.fork("preflight-looks", lambda: watch(hears), [hears, *streams.kept_files])
        children.stops_with_us = watcher
        close_surely(hears)
    code = _wait(children, job, streams)
    with contained("the end of the job's output may be missing"):
        children.take_up_pending()
        streams.drain(children)
    with contained("the job's end is not explained"):
        is_users = children.last_signal in USER_S_OWN_END
        os.write(tell, f"{code} {int(is_users)}".encode())
        _wait_for_helper(children, watcher)
    return code


def _wait(children: Children, job: Process, streams: Streams) -> int:
    code = None
    while code is None:
        try:
            streams.look_after(children)
        except Exception:  # noqa: BLE001  it is tried again
            time.sleep(RETRY_S)
        try:
            code = how_it_ended(job.pid)
            if code is None:
                children.hear(RETRY_S if streams.lack_a_copier else PATIENCE_S)
        except Exception:  # noqa: BLE001  so is this
            time.sleep(RETRY_S)
    children.has_ended(code)
    return code


def _wait_for_helper(children: Children, helper: int) -> None:
    """Wait until a helper has ended.

    Kill the helper after WATCHER_S seconds, or as soon as a signal asks this process to end.
    """
    until = time.monotonic() + WATCHER_S
    while how_it_ended(helper) is None:
        if children.is_asked_to_end(until - time.monotonic()) or time.monotonic() > until:
            end_helper(helper)
            return
