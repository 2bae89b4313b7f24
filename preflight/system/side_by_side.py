"""Run short programs in parallel, with a time limit for each program and one limit for all programs together."""

from __future__ import annotations

import os
import resource
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from preflight.system.as_user import become_user
from preflight.system.child import Parent, run_program
from preflight.system.crew import Crew

MOST_OUTPUT_BYTES = 8 << 20
CANNOT_START = 127  # as a shell has it
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit code and the output of a program. `code` is None if the time limit ended the program."""

    code: int | None
    stdout: str
    stderr: str


def run_side_by_side(
    commands: Mapping[K, Sequence[str]], environ: Mapping[str, str], each_s: float, all_s: float, most_at_once: int,
    uid: int = 0,
) -> dict[K, Ended]:  # fmt: skip
    """Run `commands` in parallel, at most `most_at_once` at a time, and return how each command ended.

    Call this function from a process with a single thread, because the function forks.
    """
    # Each command has `each_s` seconds, and all commands together have `all_s` seconds. A command that never started is
    # not in the result. If this process runs as root, the commands run as the user `uid`.
    waiting, ended = list(commands), dict[K, Ended]()
    with Crew[K]() as crew:
        end_at = crew.now() + all_s
        while crew.children or (waiting and crew.now() < end_at):
            while waiting and len(crew.children) < most_at_once and (left_s := end_at - crew.now()) > 0:
                key = waiting.pop(0)
                crew.fork(key, partial(_run, commands[key], environ, uid), min(each_s, left_s))
            for key, told, lost in crew.listen():
                ended[key] = Ended(None, "", "") if lost else Ended(*told)
                crew.end(key)
    return ended


def _run(command: Sequence[str], environ: Mapping[str, str], uid: int, parent: Parent) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    most_bytes = MOST_OUTPUT_BYTES if hard == resource.RLIM_INFINITY else min(MOST_OUTPUT_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))  # its output goes to files, in memory
    try:
        program = os.open(command[0], os.O_RDONLY)  # which may lie where only root can reach it
        become_user(uid)
        parent.send(run_program((f"/proc/self/fd/{program}", *command[1:]), environ, (program,)))
    except OSError as error:
        parent.send((CANNOT_START, "", str(error)))
