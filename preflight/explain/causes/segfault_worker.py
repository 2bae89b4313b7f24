"""A process crashed in native code."""

from __future__ import annotations

from preflight.explain.cause import Cause, Sign, by_signs, fixed
from preflight.explain.event import Authority

CAUSE = Cause(
    promise="A library (not Python code) touched memory that is not its own and the system ended the process.",
    signs=(
        Sign("segv.signal", Authority.UNEXPLAINED_DEATH, "a process died of a segmentation fault",
             r"Signals\.SIGSEGV|exitcode {0,4}: {0,2}-11\b|Signal 11 \(SIGSEGV\)|return code = -11\b|"
             r"[Ee]xit(?:ed with)?(?: exit)? code 139|exited on signal 11|terminated with signal SIGSEGV|"
             r"exit code -11\b|code: 139\b"),
        Sign("segv.fatal_bus", Authority.UNEXPLAINED_DEATH,
             "a process died of a bus error in native code, as when a mapped file is cut short",
             r"Fatal Python error: Bus error"),
        Sign("segv.text", Authority.UNEXPLAINED_DEATH, "a process died of a segmentation fault",
             r"Segmentation fault|Caught signal 11|SIGSEGV (?:received|\(@)|general protection fault|"
             r"Signal: Segmentation|segfault at [0-9a-f]{1,16}|Segfault encountered|double free or corruption|"
             r"free\(\): invalid|malloc\(\): |corrupted size vs\. prev_size|munmap_chunk\(\): invalid|"
             r"stack smashing detected|KILLED BY SIGNAL: 11|malloc_consolidate"),
    ),
    judge=by_signs("{who}{host} crashed in native code (segmentation fault); the others only lost it."),
    remedy=fixed(
        "Get the place: python -X faulthandler train.py ..., or: gdb -batch -ex bt python core. The "
        "last library before the crash is the suspect.",
        "Common reasons: two versions of one library (see pip list, LD_LIBRARY_PATH), a compiled "
        "extension built for another torch, a damaged data file read by a decoder.",
        "Reinstall the extension named in the last frames against this torch.",
    ),
    needs="the same native frame twice",
    confirm_with="python -X faulthandler with the same command; preflight check tests NCCL and the GPUs",
)  # fmt: skip
