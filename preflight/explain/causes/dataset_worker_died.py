"""A helper process that prepares data died."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, by_signs, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import CLEARLY_LINES, LogEvidence

ABORTED = "killed by signal: Aborted"
claim = by_signs("A data worker of {who} died{host}. The rank then failed, and the other ranks lost their connections.")


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a worker of a data loader died.

    Return None if the workers only aborted, and each abort is close to another error in the log.
    """
    errors = [event for event, error in evidence.raised() if "DataLoader worker" not in error.message]

    def is_echo(event: Event) -> bool:
        near = (e for e in errors if e.source == event.source and abs(e.line - event.line) <= CLEARLY_LINES)
        return ABORTED in event.text and any(near)

    left = tuple(event for event in events if not is_echo(event))
    return claim(evidence, left) if left else None


CAUSE = Cause(
    promise="Training reads its data through helper processes. One of them died, usually because memory ran out.",
    signs=(
        Sign("dataset.loader", Authority.OWN_ERROR, "a data-loader worker died",
             r"DataLoader worker \(pid[^\n]{0,80}\) (?:is killed by signal: (?:Killed|Segmentation fault|"
             r"Aborted|Illegal|Unknown|Floating)|exited unexpectedly)|DataLoader timed out after|"
             r"Pin memory thread exited unexpectedly"),
        Sign("dataset.map", Authority.OWN_ERROR, "a process that was preparing the data set died",
             r"One of the subprocesses has abruptly died|A process in the process pool was terminated abruptly|"
             r"BrokenProcessPool|[Ww]orker process [^\n]{0,40}died while (?:loading|mapping)"),
    ),
    judge=judge,
    remedy=fixed(
        'Run: sudo dmesg -T | grep -i -e "killed process" -e oom. If the output names the worker, the host ran '
        "out of memory. If not, the decoder crashed.",
        "Set num_workers=0 (for data preparation: num_proc=1, map_num_proc=1 or preprocessing_num_workers=1). If the "
        "job then works, raise the number step by step. If the job still fails, the log has the real error.",
        "Give the container more memory (--memory) and /dev/shm (--shm-size).",
        'Put the start of the script under `if __name__ == "__main__":`, as the start method "spawn" requires.',
    ),
    confirmed_if="the job runs without workers, or the kernel log names the worker's pid",
    confirm_with="run the same command with num_workers=0 (num_proc=1)",
    outranks=("not_nccl", "segfault_worker"),
)  # fmt: skip
