"""A process was killed, most likely because the host ran out of memory."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, fill_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

EXPLICIT = "Host memory (not GPU memory) ran out{host}, so the system killed {who}."
IMPLIED = (
    "Signal 9 killed {who}{host}, which printed no error. Usually the kernel's out-of-memory killer sends it, but "
    "an administrator, a scheduler or a launcher may have sent it."
)
OF_ENGINE = (
    "The engine lost {worker}{host}, which printed no error. The kernel's out-of-memory killer is the usual cause; "
    "the engine does not name the signal."
)
OF_SGLANG = re.compile(r"Subprocess (\w{1,40}) \(pid=\d{1,9}\) crashed")  # scheduler_1, detokenizer
NEAR = 20  # lines
STACKS = 2000  # lines
ALLOCATION = "{who}{host} could not get host memory."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that the host ran out of memory, or that something sent SIGKILL.

    Return None if only a wrapper process got SIGKILL, or if the watchdog of a serving engine sent the signal.
    """
    match events[0].authority:
        case Authority.KILLED:
            because = "the scheduler or the kernel says that memory ran out"
            return Claim(Authority.KILLED, events, Confidence.HIGH, because, fill_in(EXPLICIT, events))
        case Authority.OWN_ERROR:
            because = "the process reports that the system refused its request for host memory"
            return Claim(Authority.OWN_ERROR, events, Confidence.HIGH, because, fill_in(ALLOCATION, events))
        case _ if events[0].sign == "oom.engine":
            because = "the engine reports that a worker died, and the worker printed no error"
            told = OF_ENGINE.replace("{worker}", events[0].match.split()[2])
            return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(told, events))
        case _:
            if all(event.sign == "oom.bare" for event in events) and _is_wrapper(evidence, events[0]):
                return None
            if any(_is_by_watchdog(event, events[0]) for event in evidence.of("watchdog.engine")):
                return None
            because = (
                "the exit code is that of SIGKILL, and the process printed no Python error; no line names the sender"
            )
            name = OF_SGLANG.search(events[0].text)
            implied = IMPLIED.replace("{who}", f"SGLang's {name[1]}") if name else IMPLIED
            return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(implied, events))


def _is_by_watchdog(timeout: Event, killed: Event) -> bool:
    """Return whether SGLang's watchdog killed a scheduler that made no progress.

    The watchdog prints stacks between its message and the kill. The kill may therefore be up to STACKS lines below the
    message.
    """
    is_near = timeout.source == killed.source and 0 < killed.line - timeout.line <= STACKS
    return is_near and "atchdog timeout" in timeout.text


def _is_wrapper(evidence: LogEvidence, killed: Event) -> bool:
    """Return whether a line that reports a failure is at most NEAR lines above the kill.

    If so, the launcher sent the kill, to end the remaining processes of the job.
    """
    before = (event for event in evidence.alarms() if event.source == killed.source)
    return any(0 < killed.line - event.line <= NEAR for event in before)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a killed process.

    If the log does not say why the process was killed, the first step is to read the kernel log.
    """
    ask = (
        'Find out what killed it: sudo dmesg -T | grep -i -e "killed process" -e oom   (Slurm: sacct -j JOBID '
        "--format=JobID,State,MaxRSS,ReqMem; Kubernetes: kubectl describe pod, look for OOMKilled)"
    )
    steps = (
        "Use less host memory: use fewer data-loader workers (num_workers, num_proc), no CPU offload and "
        "low_cpu_mem_usage=True. Do not load the full model on every rank.",
        "Or request more host memory with --mem (Slurm), resources.limits.memory (Kubernetes) or docker run --memory.",
        "Watch the memory during the run: while sleep 5; do free -m; done",
    )
    return Remedy(*steps) if claim.authority is Authority.KILLED else Remedy(ask, *steps)


CAUSE = Cause(
    promise="The host (not the GPU) ran out of memory, so the system ended a process.",
    signs=(
        Sign("oom.slurm", Authority.KILLED, "the scheduler reports that the memory limit was hit",
             r"oom[-_]kill|task \d{1,6}: Out Of Memory|cgroup out-of-memory handler|"
             r"[Ee]xceeded (?:job |step |virtual )?memory limit|TERM_MEMLIMIT|job killed: v?mem\b"),
        Sign("oom.kernel", Authority.KILLED, "the kernel ran out of memory and killed a process",
             r"Out of memory: Kill|Memory cgroup out of memory|invoked oom-killer|OOMKilled|oom_reaper: reaped|"
             r"low on resource: memory|systemd-oomd killed|(?:State ?[=:] ?|exited with status )OUT_OF_ME"),
        Sign("oom.ray", Authority.KILLED, "Ray killed a worker because the node ran out of memory",
             r"ray\.exceptions\.OutOfMemoryError|NODE_OUT_OF_MEMORY|"
             r"[Kk]illed due to (?:the node running low on memory|memory pressure)"),
        Sign("oom.cpu", Authority.OWN_ERROR, "a process could not get host memory",
             r"DefaultCPUAllocator: (?:can't|not enough memory)|DefaultCPUAllocator[^\n]{0,40}allocate memory|"
             r"\[Errno 12\] Cannot allocate memory|\bMemoryError(?:: |\r?$)|std::bad_alloc|"
             r"Unable to allocate [\d.]{1,10} [KMGT]iB for an array"),
        Sign("oom.sigkill", Authority.UNEXPLAINED_DEATH,
             "a process was killed from outside (SIGKILL, -9) and could not print an error",
             r"exitcode {0,4}: {0,2}-9\b|Exit code: -9\b|Signals\.SIGKILL|[Ss]ignal 9 \(SIGKILL\)|return code = -9\b|"
             r"[Ee]xit(?:ed)?(?: with)?(?: exit)?(?: code| status)? (?:137|-9)\b|exited on signal 9|"
             r"terminated with signal SIGKILL|code: 137\b|KILLED BY SIGNAL: 9\b|\"exitCode\": ?137"),
        Sign("oom.engine", Authority.UNEXPLAINED_DEATH, "a worker of the serving engine ended without an error",
             r"Worker proc \S{1,40} died unexpectedly"),
        Sign("oom.bare", Authority.UNEXPLAINED_DEATH, "a process was killed from outside",
             r'(?:^|: |(?:it/s|s/it)\]|[\d\]] {1,20})Killed(?: +[\w./$\"{(-][^\n]{0,200})? *\r?$|'
             r"^\[\d{1,3}\] +[-+ ]? *\d{1,9} killed |: line \d{1,6}: {1,4}\d{1,9} Killed {4}"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="a message of the kernel or the scheduler names the process, or if the job's memory reaches the limit",
    confirm_with='sudo dmesg -T | grep -i -e "killed process" -e oom   '
    "# on the host of the killed rank; `preflight check` tests the machine",
    outranks=("dataset_worker_died",),
)  # fmt: skip
