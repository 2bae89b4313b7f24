"""The order of `preflight run`: what to run, and what to do at a failure.

One process writes the order, and another process carries it out.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from preflight.system.own_command import own_argv

# Without site and the user's paths: it starts at once, stays small, and the job's environment is left alone.
SMALL = ("-I", "-S")
VISIBLE = "CUDA_VISIBLE_DEVICES"


class Order(NamedTuple):  # no dataclass: importing those takes a third of what stays beside the job takes in all
    """The instructions for `preflight run`: the job, the check, and what to do if the job hangs or fails.

    The check runs before the job.
    """

    command: list[str]
    check: list[str]  # arguments of `preflight`; empty if a report is reused
    env_path: str  # the settings file of the check, or of the reused report
    not_ready_code: int
    starts_if_unknown: bool
    stuck_after_s: float  # 0: half of the timeout that the job's environment says
    keep_dir: str  # where the job's output is kept in any case; "" keeps it only if the job fails
    splits_ranks: bool  # have torchrun write each rank's output into a file of its own
    detail: Sequence[str] = ()  # -v or -q, for the pages of `check`, `stuck` and `explain`
    node_rank: int = 0  # of this node; the first one's log has the whole page if the job hangs
    visible: str = ""  # CUDA_VISIBLE_DEVICES of the check, if the job's launcher uses some GPUs only

    @property
    def name(self) -> str:
        """Return the name of the job's program. Characters that can't be printed are replaced."""
        return "".join(char if char.isprintable() else "?" for char in self.command[0])


def supervisor_argv(order: Order) -> list[str]:
    """Return the command line of the process that carries out the order.

    The process must inherit the descriptor of the order, and can read the order only once.
    """
    # The order is in memory, because an argument holds at most 128 KiB, and because `pkill -f train.py` must match only
    # the job.
    descriptor = os.memfd_create("preflight-order", 0)  # without MFD_CLOEXEC
    with open(descriptor, "w", encoding="ascii", closefd=False) as file:
        json.dump(order._asdict(), file)
    return own_argv(str(descriptor), module="preflight.job.supervise", options=SMALL)


def become_supervisor(order: Order, ignored: Iterable[signal.Signals]) -> NoReturn:
    """Replace the program of this process by the program that carries out the order.

    As a result, the parent has only one child.
    """
    # `ignored` are the signals that this process ignored when it started.
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    argv = supervisor_argv(order)
    os.execve(argv[0], argv, inherited_environ())


def inherited_environ() -> dict[str, str]:
    """Return the environment that preflight inherited, without the LC_CTYPE that Python sets in the C locale."""
    try:
        with open("/proc/self/environ", "rb") as file:
            was_set = b"\0LC_CTYPE=" in b"\0" + file.read()
    except OSError:  # no /proc here
        was_set = True
    return {name: value for name, value in os.environ.items() if was_set or name != "LC_CTYPE"}


def read_order(descriptor: int) -> Order:
    """Return the order that `become_supervisor` passed on, and close the order's descriptor."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, encoding="ascii") as file:
        return Order(**json.load(file))
