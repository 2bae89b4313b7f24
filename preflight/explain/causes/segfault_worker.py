"""A process crashed in native code."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Sign, fill_in, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

VERDICT = (
    "{who}{host} crashed in native code (segmentation fault). The other ranks only lost their connection to this rank."
)
LOADING = (
    "A process crashed while it loaded {name}. This file is probably damaged or cut short: compare its size with the "
    "original, and install it again."
)
LIBRARY = re.compile(r'name=(?:name@entry=)?(?:0x[0-9a-f]{1,16} )?"([^"\n]{1,200})"')
NEAR_STACK = 20  # lines from the crash to its frame
ABORTED = (
    "{who}{host} aborted in native code and printed its Python stack. The other ranks only lost their connection to "
    "this rank."
)

ABSL, AT_ONCE = "SIGSEGV received at", 3  # the handler of Ray's processes; lines


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a process crashed in native code.

    Return None for an abort if another failure may explain the abort.
    """
    # A watchdog timeout or a C++ exception also aborts the process. A worker of vLLM crashes while it raises the error
    # that NCCL reported: the crash is then a consequence.
    crashes = evidence.of("segv.text", "segv.signal", "segv.fatal_bus", "shm.sigbus")
    loading = [
        event
        for event in evidence.of("segv.loading")
        if any(each.source == event.source and 0 < event.line - each.line <= NEAR_STACK for each in crashes)
    ]
    if not loading and events[0].authority is Authority.SILENCE:
        return None
    if loading:
        name = next((match[1] for event in loading if (match := LIBRARY.search(event.text))), "a library")
        because = "the native stack ends in the dynamic linker"
        return Claim(Authority.SETUP, (*loading[:1], *events), Confidence.MEDIUM, because, LOADING.format(name=name))
    if ABSL in events[0].text and any(
        each.source == events[0].source and 0 < events[0].line - each.line <= AT_ONCE
        for each in evidence.of("context.system_error")
    ):
        return None
    if events[0].authority is not Authority.ECHO:
        because = "the log states the cause"
        return Claim(events[0].authority, events, Confidence.HIGH, because, fill_in(VERDICT, events))
    others = [event for event in evidence.failures() if event.cause != events[0].cause]
    gone = evidence.dead_workers()
    if not others or evidence.exceptions or any(e not in gone or e.order < events[0].order for e in others):
        return None
    because = "its stack comes before the framework's report that a worker has ended"
    return Claim(Authority.UNEXPLAINED_DEATH, events, Confidence.MEDIUM, because, fill_in(ABORTED, events))


CAUSE = Cause(
    promise="A native library (not Python code) accessed memory outside its own, so the system ended the process.",
    signs=(
        Sign("segv.signal", Authority.UNEXPLAINED_DEATH, "a process died of a segmentation fault",
             r"Signals\.SIGSEGV|exitcode {0,4}: {0,2}-11\b|Signal 11 \(SIGSEGV\)|return code = -11\b|"
             r"[Ee]xit(?:ed with)?(?: exit)? code 139|exited on signal 11|terminated with signal SIGSEGV|"
             r"exit code -11\b|code: 139\b|[Ee]xit code (?:-1073741819|3221225477)\b"),
        Sign("segv.fatal_bus", Authority.UNEXPLAINED_DEATH,
             "a process died of a bus error in native code; a truncated mapped file can cause this",
             r"Fatal Python error: Bus error"),
        Sign("segv.loading", Authority.SILENCE, "a library was being loaded when the process died",
             r"_dl_map_(?:object_from_fd|segments) \("),
        Sign("segv.text", Authority.UNEXPLAINED_DEATH, "a process died of a segmentation fault",
             r"Segmentation fault|Caught signal 11|SIGSEGV (?:received|\(@)|general protection fault|"
             r"Signal: Segmentation|segfault at [0-9a-f]{1,16}|Segfault encountered|double free or corruption|"
             r"free\(\): (?:invalid|corrupted|double free detected)|tcache_thread_shutdown\(\): |"
             r"(?:malloc|realloc)\(\): |"
             r"corrupted size vs\. prev_size|munmap_chunk\(\): invalid|"
             r"stack smashing detected|KILLED BY SIGNAL: 11|malloc_consolidate"),
        Sign("segv.abort", Authority.ECHO, "a process aborted, and Python printed its stack",
             r"Fatal Python error: Aborted|\*\*\* SIGABRT received at"),
    ),
    judge=judge,
    remedy=fixed(
        "Find the place of the crash: python -X faulthandler train.py ..., or gdb -batch -ex bt python core. The "
        "last library before the crash is the suspect.",
        "Common reasons are two versions of one library (see pip list, LD_LIBRARY_PATH), a compiled extension that "
        "was built for another torch, and a damaged data file.",
        "For this torch, rebuild the extension that the last frames name.",
    ),
    confirmed_if="two crashes end in the same native frame",
    confirm_with="python -X faulthandler ...   # the same command; `preflight check` tests NCCL and the GPUs",
)  # fmt: skip
