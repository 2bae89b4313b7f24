"""Run preflight as on macOS: without the modules, functions and folders that only Linux has."""

from __future__ import annotations

import builtins
import ctypes
import io
import os
import resource
import select
import signal
import socket
import sys
import sysconfig
from typing import Any

GONE: dict[Any, str] = {
    os: (
        "sched_getaffinity sched_setaffinity pidfd_open memfd_create splice setns unshare posix_fallocate "
        "posix_fadvise eventfd P_PIDFD O_DIRECT O_TMPFILE O_PATH O_NOATIME copy_file_range getxattr listxattr "
        "setxattr removexattr"
    ),
    signal: "sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGPWR SIGSTKFLT SIGPOLL",
    select: "epoll EPOLLIN EPOLLOUT EPOLLET EPOLLERR EPOLLHUP",
    socket: "AF_NETLINK AF_PACKET SO_BINDTODEVICE TCP_USER_TIMEOUT SO_PEERCRED",
    resource: "prlimit",
}
ONLY_IN_LINUX = ("prctl", "capset", "capget", "process_vm_readv", "tee", "splice", "mount", "unshare", "ppoll")
OPEN = builtins.open


class LibraryOfMacOs(ctypes.CDLL):
    """A C library without Linux's functions."""

    def __getattr__(self, name: str) -> Any:
        if name in ONLY_IN_LINUX:
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return super().__getattr__(name)


def open_without_proc(file: Any, *given: Any, **named: Any) -> Any:
    if isinstance(file, (str, os.PathLike)) and os.fspath(file).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", file)
    return OPEN(file, *given, **named)


def main() -> None:
    """Hide what Linux has, and run the command line."""
    # The name of a file of Python's own, which sys.platform is part of.
    os.environ["_PYTHON_SYSCONFIGDATA_NAME"] = sysconfig._get_sysconfigdata_name()  # type: ignore[attr-defined]
    sys.platform = "darwin"
    for module, names in GONE.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    ctypes.CDLL = LibraryOfMacOs  # type: ignore[misc]
    builtins.open = io.open = open_without_proc
    from preflight.__main__ import main as run  # noqa: PLC0415  Linux is hidden now

    run()


if __name__ == "__main__":
    main()
