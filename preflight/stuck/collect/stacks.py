"""Python stacks from py-spy.

py-spy stops a process only if C frames are requested. Local variables are never requested, because they may hold
private data.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sysconfig
import time
from collections.abc import Mapping, Sequence

from preflight.errors import MalformedInput
from preflight.model.gap import Gap, known_or
from preflight.model.stuck_evidence import BUSY_S, NO_PTRACE, NO_PY_SPY, Frame, Stack, ThreadState
from preflight.system.processes import may_read_memory
from preflight.system.side_by_side import Ended, run_side_by_side

Stacks = tuple[Stack, ...] | Gap  # of a process, or why there are none

PY_SPY = "py-spy"
STACKS_S, AGAIN_S = 6.0, 3.0  # for all processes, at the beginning and at the end of the watch
MORE_S = 6.0  # for several looks at its end
EACH_S = 4.0
MOST_AT_ONCE = 4
MOST_FRAMES, NAME_CHARS, PATH_CHARS, THREAD_CHARS = 200, 200, 300, 80
TRIES = 4
MAIN, FAILED = "MainThread", "py-spy failed"
OUTERMOST = ("<module>", "_run_module_as_main")  # of a program, also of `python -m`
MOST_LOOKS, PAUSE_S = 12, 0.1  # at the end of the watch, at who computes and is found in the same line
HAS_ENDED = Gap("the process had ended")
READ_ONCE = Gap("the stacks could not be read a second time")
FORBIDDEN = re.compile(r"(?i)permission denied|operation not permitted|EPERM|os error 1\b|os error 13\b")
NOT_PYTHON = re.compile(r"(?i)failed to find python version|not a python|python interpreter")
GONE = re.compile(r"(?i)no such (file|process)|os error 3\b|os error 2\b")


def find_py_spy() -> str | None:
    """Return the path of py-spy, or None if py-spy is not installed."""
    beside = os.path.join(sysconfig.get_path("scripts"), PY_SPY)
    return beside if os.access(beside, os.X_OK) else shutil.which(PY_SPY)


def read_stacks(pids: Sequence[int], is_native: bool, limit_s: float, uid: int) -> dict[int, Stacks]:
    """Return the stacks of user `uid`'s processes, as {pid: stacks}, after at most `limit_s` seconds.

    With `is_native`, C frames are included, and py-spy stops each process during the read.
    """
    # A stack that can't be read is a Gap.
    program = find_py_spy()
    if program is None:
        return {pid: Gap(f"{NO_PY_SPY}: pip install py-spy") for pid in pids}
    # --native has to stop the process: the frames of C can't be walked while they change.
    how = ["--native"] if is_native else ["--nonblocking"]
    environ = {"PATH": os.defpath, "LC_ALL": "C"}
    end_at = time.monotonic() + limit_s
    found: dict[int, Stacks] = {}
    for pid in pids:
        if not may_read_memory(pid):
            found[pid] = Gap(f"{NO_PTRACE} for this user")
    for _ in range(TRIES):
        missing = [pid for pid in pids if not is_whole(found.get(pid))]
        left_s = end_at - time.monotonic()
        if not missing or left_s <= 0:
            break
        commands = {pid: [program, "dump", "--json", *how, "--pid", str(pid)] for pid in missing}
        ended = run_side_by_side(commands, environ, EACH_S, left_s, MOST_AT_ONCE, uid)
        for pid in missing:
            stacks = _read(ended.get(pid))
            if not (isinstance(stacks, Gap) and has_frames(found.get(pid))):  # a part is more than nothing
                found[pid] = stacks
    return found


def _read(ended: Ended | None) -> Stacks:
    if ended is None:
        return Gap("py-spy was not started, because its time limit had expired")
    if ended.code is None:
        return Gap(f"py-spy gave no answer within {EACH_S:.0f} s")
    if ended.code != 0:
        return Gap(why_not(ended.stderr))
    try:
        return parse_dump(ended.stdout)
    except MalformedInput as error:
        return Gap(str(error))


def reread_stacks(
    earlier: Mapping[int, Stacks], threads: Mapping[int, tuple[ThreadState, ...]], was_native: bool, uid: int
) -> tuple[dict[int, Stacks], dict[int, Stacks]]:
    """Return the stacks at the start and at the end of the observation, each as {pid: stacks}.

    `earlier` has the stacks at the start. If a second read of a process fails, the earlier stacks are returned as the
    stacks at the end. The stacks at the start are then unknown.
    """
    # Only processes with threads that may have run since the start are read again.
    end_at = time.monotonic() + MORE_S
    moving = [
        pid
        for pid, stacks in earlier.items()
        if not isinstance(stacks, Gap) and (own := threads.get(pid)) and (own[0].may_have_run or _busy(own))
    ]
    last, unread = dict(earlier), set(moving)
    for look in range(MOST_LOOKS):
        left_s = end_at - time.monotonic()
        if not moving or left_s <= 0:
            break
        if look:
            time.sleep(PAUSE_S)
        again = []
        for pid, stacks in read_stacks(moving, False, min(AGAIN_S, left_s), uid).items():
            first = earlier[pid]
            if isinstance(first, Gap):
                continue
            if isinstance(stacks, Gap) or not has_frames(stacks):
                again += [] if stacks == HAS_ENDED else [pid]
                continue
            unread.discard(pid)
            is_same = [each.python_frames for each in first] == [each.python_frames for each in stacks]
            if not (was_native and is_same):
                last[pid] = stacks
            busy = _busy(threads[pid])
            if any(_frames_of(first, tid) for tid in busy) and all(
                _frames_of(first, tid) == _frames_of(stacks, tid) for tid in busy
            ):
                again.append(pid)
        moving = again
    return {pid: READ_ONCE if pid in unread else stacks for pid, stacks in earlier.items()}, last


def _busy(threads: Sequence[ThreadState]) -> list[int]:
    """Return the ids of the threads that used much CPU time during the watch."""
    return [each.tid for each in threads if each.cpu_s >= BUSY_S]


def _frames_of(stacks: Sequence[Stack], tid: int) -> tuple[Frame, ...]:
    return next((each.python_frames for each in stacks if each.tid == tid), ())


def is_whole(stacks: Stacks | None) -> bool:
    """Return whether another read of the stacks is unnecessary.

    This is the case if the stacks are complete, or if they can't be read at all.
    """
    if isinstance(stacks, Gap):
        return not stacks.reason.startswith(FAILED)
    mains = [stack for stack in stacks or () if stack.thread == MAIN and stack.python_frames]
    return has_frames(stacks) and all(
        len(stack.frames) >= MOST_FRAMES or stack.python_frames[-1].function in OUTERMOST for stack in mains
    )


def has_frames(stacks: Stacks | None) -> bool:
    """Return whether stacks were read and the stack of the main thread is not empty."""
    found = known_or(stacks, ()) if stacks is not None else ()
    return any(stack.frames for stack in found) and all(stack.frames for stack in found if stack.thread == MAIN)


def why_not(stderr: str) -> str:
    """Return the reason why py-spy failed, in plain words, from its stderr."""
    if FORBIDDEN.search(stderr):
        return f"{NO_PTRACE} for this user: {' '.join(stderr.split())[:80]}"
    if NOT_PYTHON.search(stderr):
        return "the process runs no Python that py-spy knows"
    if GONE.search(stderr):
        return HAS_ENDED.reason
    return f"{FAILED}: {' '.join(stderr.split())[:120] or 'it said nothing'}"


def parse_dump(text: str) -> tuple[Stack, ...]:
    """Return the stacks in the output of `py-spy dump --json`. Raise MalformedInput for any other text."""
    try:
        threads = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"py-spy's answer is not JSON: {str(error)[:80]}") from None
    if not isinstance(threads, list):
        raise MalformedInput("py-spy's answer is not a list of threads")
    stacks = []
    try:
        for each in threads:
            frames = tuple(
                Frame(
                    str(item["name"])[:NAME_CHARS],
                    str(item.get("filename") or "")[-PATH_CHARS:],
                    item["line"] if isinstance(item.get("line"), int) else 0,
                )
                for item in each["frames"][:MOST_FRAMES]
            )
            name = str(each.get("thread_name") or "")[:THREAD_CHARS]
            stacks.append(Stack(int(each.get("os_thread_id") or 0), name, each.get("owns_gil") is True, frames))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise MalformedInput(f"py-spy's answer has an unknown form: {error!r}"[:160]) from None
    return tuple(stacks)
