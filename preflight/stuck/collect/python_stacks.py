"""Python stacks by py-spy, a child for each process: it reads memory and, unless asked for C's frames, stops nothing.

Local variables are never asked for: they hold what is nobody's business.
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
from preflight.model.gap import Gap
from preflight.model.stuck_evidence import NO_PTRACE, Frame, Stack
from preflight.system.processes import may_read_memory
from preflight.system.side_by_side import Ended, run_side_by_side

PY_SPY = "py-spy"
EACH_S = 4.0
MOST_AT_ONCE = 4
MOST_FRAMES = 200
TRIES = 4
FORBIDDEN = re.compile(r"(?i)permission denied|operation not permitted|EPERM|os error 1\b|os error 13\b")
NOT_PYTHON = re.compile(r"(?i)failed to find python version|not a python|python interpreter")
GONE = re.compile(r"(?i)no such (file|process)|os error 3\b|os error 2\b")


def find_py_spy() -> str | None:
    """Return where py-spy is: beside this Python, else on the path; None where it is not installed."""
    beside = os.path.join(sysconfig.get_path("scripts"), PY_SPY)
    return beside if os.access(beside, os.X_OK) else shutil.which(PY_SPY)


def read_stacks(pids: Sequence[int], is_native: bool, limit_s: float) -> dict[int, tuple[Stack, ...] | Gap]:
    """Return the stacks of processes, or why there are none; all of it takes at most `limit_s`."""
    program = find_py_spy()
    if program is None:
        return {pid: Gap("py-spy is not installed: pip install py-spy") for pid in pids}
    # --native has to stop the process: the frames of C can't be walked while they change.
    how = ["--native"] if is_native else ["--nonblocking"]
    commands = {pid: [program, "dump", "--json", *how, "--pid", str(pid)] for pid in pids}
    end_at = time.monotonic() + limit_s
    found: dict[int, tuple[Stack, ...] | Gap] = {
        pid: Gap(f"{NO_PTRACE} for this user") for pid in pids if not may_read_memory(pid)
    }
    for _ in range(TRIES):
        open_ = {pid: each for pid, each in commands.items() if not _is_caught(found.get(pid))}
        left_s = end_at - time.monotonic()
        if not open_ or left_s <= 0:
            break
        ended = run_side_by_side(open_, {"PATH": os.defpath, "LC_ALL": "C"}, EACH_S, left_s, MOST_AT_ONCE)
        found |= {pid: _stacks(ended, pid) for pid in open_}
    return found


def _is_caught(stacks: tuple[Stack, ...] | Gap | None) -> bool:
    """Tell whether there is a stack, or a reason that stays; that of a process that runs may come out empty."""
    return isinstance(stacks, Gap) or (stacks is not None and any(stack.frames for stack in stacks))


def _stacks(ended: Mapping[int, Ended], pid: int) -> tuple[Stack, ...] | Gap:
    each = ended.get(pid)
    if each is None:
        return Gap("py-spy was not started: the time for it was up")
    if each.code is None:
        return Gap(f"py-spy gave no answer within {EACH_S:.0f} s")
    if each.code != 0:
        return Gap(why_not(each.stderr))
    try:
        return parse_dump(each.stdout)
    except MalformedInput as error:
        return Gap(str(error))


def why_not(stderr: str) -> str:
    """Return in plain words why py-spy failed, from what it says."""
    if FORBIDDEN.search(stderr):
        return f"{NO_PTRACE} for this user: {' '.join(stderr.split())[:80]}"
    if NOT_PYTHON.search(stderr):
        return "no Python that py-spy knows runs in it"
    if GONE.search(stderr):
        return "the process had ended"
    return f"py-spy failed: {' '.join(stderr.split())[:120] or 'it said nothing'}"


def parse_dump(text: str) -> tuple[Stack, ...]:
    """Parse what `py-spy dump --json` prints; MalformedInput where it is something else."""
    try:
        threads = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"py-spy's answer is no JSON: {str(error)[:80]}") from None
    if not isinstance(threads, list):
        raise MalformedInput("py-spy's answer is no list of threads")
    try:
        return tuple(
            Stack(
                int(each.get("os_thread_id") or 0), str(each.get("thread_name") or "")[:80],
                each.get("owns_gil") is True, tuple(map(_frame, each["frames"][:MOST_FRAMES])),
            )
            for each in threads
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise MalformedInput(f"py-spy's answer has an unknown form: {error!r}"[:160]) from None


def _frame(item: Mapping[str, object]) -> Frame:
    line = item.get("line")
    name, file = str(item["name"])[:200], str(item.get("filename") or "")[-300:]
    return Frame(name, file, line if isinstance(line, int) else 0)
