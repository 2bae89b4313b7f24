"""Find failures with a cause outside the run, such as a kill by another process or a limit.

A failure of this kind says nothing about the node.
"""
# The container is responsible if its cgroup shows the kill or the limit. The host is responsible only if its memory
# failed. Otherwise the environment that started preflight is responsible.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from preflight.judge.check import Case
from preflight.judge.finding_text import fine_size
from preflight.judge.node_limits import is_contained
from preflight.judge.symptoms import NOFILE, PIDS, symptoms_in
from preflight.model.counters import OutsideEvent, OutsideKind
from preflight.model.finding import Blame, Evidence
from preflight.model.trial import FAILED, Outcome, RankEnd, TrialResult

# What a process brings upon itself, or the kernel upon it for what it did; another process sent any other signal.
OWN_SIGNALS = frozenset(
    {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTRAP", "SIGSYS", "SIGPIPE", "SIGALRM", "SIGSTKFLT"}
)
MEMORY_SIGNALS = frozenset({"SIGBUS", "SIGKILL"})  # the kernel sends these to a process that uses failed memory
DIED_BY = re.compile(r"\bdied by (SIG\w+|signal \d+)")
BEFORE_THE_BACKEND = ("spawned", "store")
NO_BLAME_FOR = frozenset({"done", "killed", "timeout", "connection"})  # ranks that waited, lost a peer or were stopped
RAISE_LIMIT = (
    "raise the limit with `--pids-limit` or `--ulimit nofile=65536` (docker, podman) or `TasksMax=` (systemd), then "
)
AGAIN = "rerun the check"
MORE_MEMORY = f"give the job more memory with `--mem` (Slurm), `--memory` (docker) or the pod's limit, then {AGAIN}"
REFUSED = "the cgroup's limit did not allow a process or thread that it needed"
OUT_OF_TIME = frozenset({"SIGKILL", "SIGXCPU"})  # at the hard limit and at the soft one
LONG_NAME = "label too long"  # Python's IDNA codec
NO_ADDRESSES = re.compile(r"failed to map segment|bad_alloc|(cannot|can't) allocate memory|\bMemoryError\b", re.I)


@dataclass(frozen=True, slots=True)
class OutsideCause:
    """A cause outside the run: the responsible component, the reason, the fix, and the evidence."""

    blame: Blame
    why: str
    fix: str
    evidence: tuple[Evidence, ...]


def signal_from_outside(text: str) -> str:
    """Return the signal that ended a process if another process must have sent the signal, else "".

    `text` says how the process ended, such as `died by SIGKILL`.
    """
    found = DIED_BY.search(text)
    return found[1] if found and found[1] not in OWN_SIGNALS else ""


def outside_cause(case: Case, trial: TrialResult) -> OutsideCause | None:
    """Return the cause of a failed test run if the cause is outside the run, else None."""
    if trial.outcome not in FAILED or trial.outcome is Outcome.WRONG_DATA:
        return None
    ends = [end for end in trial.ranks if end.ended not in NO_BLAME_FOR]
    return _broken_memory(case, ends) or _by_signal(case, ends) or _by_limit(case, trial) or _too_early(case, ends)


def traced(problem: str, outside: Sequence[OutsideEvent], limits: Mapping[str, int]) -> str:
    """Return `problem`, the text of a failure, with the cause and the fix added if the cause is known.

    `limits` are the limits of this process: `bytes` of mapped memory and `cpu_s` seconds of CPU time.
    """
    # `outside` lists what the kernel did to processes.
    counted = {each.kind: f"{each.source}: {each.times}" for each in outside}
    if OutsideKind.OOM_KILL in counted and signal_from_outside(problem) == "SIGKILL":
        return f"{problem}: the host ran out of memory ({counted[OutsideKind.OOM_KILL]} OOM kills); {MORE_MEMORY}"
    if OutsideKind.PIDS_LIMIT in counted:
        return f"{problem}: {REFUSED} ({counted[OutsideKind.PIDS_LIMIT]} times); {RAISE_LIMIT}{AGAIN}"
    if "bytes" in limits and NO_ADDRESSES.search(problem):
        return (
            f"{problem}: `ulimit -v` allows only {fine_size(limits['bytes'])}; run `ulimit -v unlimited`, then {AGAIN}"
        )
    if "cpu_s" in limits and signal_from_outside(problem) in OUT_OF_TIME:
        return f"{problem}: `ulimit -t` allows {limits['cpu_s']} s of CPU time; run `ulimit -t unlimited`, then {AGAIN}"
    if LONG_NAME in problem:
        return f"{problem}: torch does not accept host names above 63 characters; shorten the host name, then {AGAIN}"
    return problem


def _times(case: Case, kind: OutsideKind) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(f"{each.kind.value} during the run", str(each.times), each.source)
        for each in case.outside
        if each.kind is kind
    )


def _broken_memory(case: Case, ends: list[RankEnd]) -> OutsideCause | None:
    failures = _times(case, OutsideKind.MEMORY_FAILURE)
    died = [end for end in ends if (found := DIED_BY.search(end.detail)) and found[1] in MEMORY_SIGNALS]
    if not (failures and died):
        return None
    fix = (
        "run `dmesg | grep -i 'memory failure'` and `ras-mc-ctl --errors` to find the memory module. Drain the node "
        "and replace the module"
    )
    return OutsideCause(Blame.HOST, "the host's memory failed during the run", fix, failures)


def _by_signal(case: Case, ends: list[RankEnd]) -> OutsideCause | None:
    signals = [name for end in ends if end.ended == "signal" and (name := signal_from_outside(end.detail))]
    if not signals:
        return None
    kills = _times(case, OutsideKind.OOM_KILL)
    if kills and "SIGKILL" in signals:
        return OutsideCause(Blame.CONTAINER, "the kernel killed the rank because memory ran out", MORE_MEMORY, kills)
    why = (
        f"{signals[0]} came from outside (the OOM killer, an operator or a scheduler); a GPU fault does not send this "
        f"signal"
    )
    return OutsideCause(Blame.HARNESS, why, f"read `dmesg | grep -i oom` and the scheduler's log, then {AGAIN}", ())


def _by_limit(case: Case, trial: TrialResult) -> OutsideCause | None:
    refused = _times(case, OutsideKind.PIDS_LIMIT)
    if refused:
        return OutsideCause(Blame.CONTAINER, REFUSED, RAISE_LIMIT + AGAIN, refused)
    lines = symptoms_in(trial, PIDS + NOFILE)
    if not lines:
        return None
    blame = limit_blame(case)
    why = "a limit on processes, threads or open files stopped the rank"
    return OutsideCause(blame, why, RAISE_LIMIT + AGAIN, tuple(each.evidence() for each in lines))


def limit_blame(case: Case) -> Blame:
    """Return who set the limit that stopped a rank: the container or, if there is none, preflight's environment."""
    return Blame.CONTAINER if any(map(is_contained, case.nodes)) else Blame.HARNESS


def _too_early(case: Case, ends: list[RankEnd]) -> OutsideCause | None:
    """Return a cause outside the node for a failure before the backend was used.

    Return None for several nodes, because the network between them may make the store fail.
    """
    early = ends and all(end.stage in BEFORE_THE_BACKEND for end in ends)
    if not early or len(case.nodes) > 1:
        return None
    why = "the trial failed before it used the backend, so the failure shows nothing about the machine"
    return OutsideCause(Blame.HARNESS, why, f"read the error, check `TMPDIR` and the installation, then {AGAIN}", ())
