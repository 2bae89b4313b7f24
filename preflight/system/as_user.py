"""Switch a process permanently to another user, so that root reads a job's data with that user's rights.

The process keeps only the right to inspect processes (CAP_SYS_PTRACE).
"""

from __future__ import annotations

import ctypes
import os
import pwd

from preflight.system.processes import die_with_parent

PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
CAP_SYS_PTRACE = 19
CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):  # one of two words
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def become_user(uid: int) -> None:
    """Switch this process from root to the ids and groups of user `uid`.

    Do nothing if this process is not root's or the user is root. Raise PermissionError if the switch is not allowed.
    """
    if os.geteuid() != 0 or uid == 0:
        return
    parent = os.getppid()
    _libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    try:
        user = pwd.getpwuid(uid)
    except KeyError:  # of a container, say
        os.setgroups([])
        os.setresgid(uid, uid, uid)
    else:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(uid, uid, uid)
    _keep_ptrace()
    die_with_parent(parent)


def _keep_ptrace() -> None:
    """Drop all capabilities except CAP_SYS_PTRACE.

    If the process lacks CAP_SYS_PTRACE, as in a container, only the stacks can't be read.
    """
    header, bit = _Header(CAPABILITY_VERSION_3, 0), 1 << CAP_SYS_PTRACE
    for kept in (bit, 0):
        sets = (_Sets * 2)(_Sets(kept, kept, kept), _Sets(0, 0, 0))
        if _libc.capset(ctypes.byref(header), sets) == 0:
            break
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_PTRACE, 0, 0)
