"""torch's heartbeat monitor reports that the watchdog was stuck, or that the store of rank 0 was gone."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

STUCK = (
    "torch's watchdog thread was stuck (in a CUDA call or a graph capture, or waiting for Python's lock), so the "
    "monitor ended the process."
)
STORE = (
    "torch's heartbeat monitor lost the store on rank 0, because rank 0 ended first. The log of rank 0 has the cause."
)


def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Return the conclusion that the watchdog was stuck or that the store of rank 0 was gone.

    The confidence is high for a stuck watchdog and medium for a lost store.
    """
    if events[0].authority is Authority.TIMEOUT:
        because = "the monitor says that the watchdog made no progress"
        return Claim(Authority.TIMEOUT, events, Confidence.HIGH, because, STUCK)
    because = "the monitor could no longer read its flag in rank 0's store"
    return Claim(Authority.ECHO, events, Confidence.MEDIUM, because, STORE)


def remedy(evidence: LogEvidence, _claim: Claim) -> Remedy:
    """Return the repair steps for a stuck watchdog, or for a lost store of rank 0."""
    if not evidence.has("heartbeat.stuck"):
        return Remedy(
            "Read the log of rank 0 before the time of these lines. The other ranks print them after rank 0 ended.",
            "If rank 0 succeeded, ignore these lines. To avoid them, call torch.distributed.destroy_process_group() "
            "on all ranks at the end.",
        )
    return Remedy(
        "To see which call is stuck, run py-spy dump --native --pid PID (or gdb -batch -ex 'thread apply all bt' -p "
        "PID) while the process hangs.",
        '"Could not acquire GIL" means that a C extension, a data loader or a debugger holds Python\'s lock (the GIL).',
        "If nvidia-smi hangs as well, the driver or the GPU is stuck: run `dmesg | grep -i xid`.",
        "Don't raise the heartbeat timeout, because a job with a stuck watchdog then hangs for longer. A compilation, "
        "a graph capture or a synchronous checkpoint under Python's lock can block the watchdog for minutes. Run such "
        "a step before the first collective, or split it.",
    )


CAUSE = Cause(
    promise="A monitor thread in torch found that the watchdog thread no longer ran, or that rank 0 had ended.",
    signs=(
        Sign("heartbeat.stuck", Authority.TIMEOUT, "torch's watchdog thread made no progress",
             r"Heartbeat monitor timed out|watchdog got stuck for|watchdog thread got stuck|"
             r"ProcessGroupNCCL watchdog hang|workMetaList_\.size|possible GIL induced hang"),
        Sign("heartbeat.store", Authority.ECHO, "the store on rank 0 is gone",
             r"Failed to check the .should dump. flag|Failed to get exception dump flag"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="two native stacks of the process are the same, or rank 0's log has an error",
    confirm_with="preflight check   # tests the GPUs and the paths between them",
    outranks=("remote_peer_died",),
)  # fmt: skip
