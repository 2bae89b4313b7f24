"""/dev/shm is too small for NCCL or for the data loader."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, fill_in, shared
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.repairs import shm_room

SHARED = re.compile(r"['/](?:dev/shm|psm_|torch_\d|sem\.)")
VERDICT = "Shared memory (/dev/shm){host} is too small or full, so {who} got no shared memory."
DENIED = "{who} may not write to /dev/shm{host}: its mode must be 1777 (ls -ld /dev/shm)."
MISSING = (
    "{who} could not open a peer's shared memory in /dev/shm{host}. The peer had ended, or runs as another user or "
    "in another container or IPC namespace."
)
# What the kernel answered where the memory is neither too small nor full, by what NCCL did.
IS_DENIED = re.compile(r"(?:creating shared memory segment|shm_open failed)[^\n]{0,160}Permission denied")
IS_MISSING = re.compile(r"attaching to shared memory segment[^\n]{0,160}(?:No such file|Permission denied)")
FULL = "No space left"
BUS_ERROR = "{who}{host} died of a bus error. A full /dev/shm or a truncated data file causes this error."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that /dev/shm is too small, or return None.

    The evidence is an error about /dev/shm, or a bus error (SIGBUS) without a reason.
    """
    # The bus error does not count if a native stack shows another cause.
    full = tuple(event for event in evidence.of("disk.full") if SHARED.search(event.text))
    if full and (not events or events[0].authority is Authority.UNEXPLAINED_DEATH):
        because = "a shared-memory file had no room left"
        return Claim(Authority.SETUP, full, Confidence.HIGH, because, fill_in(VERDICT, full))
    if not events:
        return None
    if events[0].authority is not Authority.UNEXPLAINED_DEATH:
        because = "the library that asked for the memory reports the error"
        return Claim(events[0].authority, events, Confidence.HIGH, because, fill_in(_verdict(events), events))
    if evidence.has("segv.fatal_bus", "segv.loading"):
        return None
    because = "a bus error (SIGBUS, -7) without a reason"
    return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(BUS_ERROR, events))


def _verdict(events: tuple[Event, ...]) -> str:
    """Return the headline for the error that the kernel returned about /dev/shm.

    If there are several errors, a full /dev/shm takes precedence. A full /dev/shm may be the reason why a peer found no
    segment.
    """
    texts = [event.text for event in events]
    if any(FULL in text for text in texts):
        return VERDICT
    return next((DENIED for text in texts if IS_DENIED.search(text)), "") or next(
        (MISSING for text in texts if IS_MISSING.search(text)), VERDICT
    )


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for /dev/shm, which depend on the error that the kernel returned."""
    verdict = _verdict(claim.events)
    if verdict is DENIED:
        return Remedy(
            "Run `sudo chmod 1777 /dev/shm` where the job runs. `ls -ld /dev/shm` must then show drwxrwxrwt.",
            "In a container, mount /dev/shm so that the job's user may write to it.",
            confirm_with="touch /dev/shm/x   # as the job's user",
        )
    if verdict is MISSING:
        return Remedy(
            "Check whether the peer's process had ended before the error: read its log, and run sudo dmesg -T | grep "
            "-i -e "
            "oom -e killed.",
            "If the ranks of one machine run in several containers, give them one /dev/shm: --ipc=host or "
            "--ipc=container:NAME (docker, podman), one pod (Kubernetes).",
            confirm_with="preflight check   # its ranks use /dev/shm too, in one container",
        )
    return Remedy(
        "Check the size where the job runs: df -h /dev/shm",
        *shm_room().steps,
        "If you can't change the size, set num_workers=0 for the data loader. As a last resort, set "
        "NCCL_SHM_DISABLE=1 for NCCL (much slower).",
        env=(("NCCL_SHM_DISABLE", "1"),),
    )


CAUSE = Cause(
    promise="Processes on one machine exchange data through /dev/shm. Docker limits this memory to 64 MB by default.",
    signs=(
        *shared(Authority.SETUP, "shm.nccl", "shm.attach"),
        *shared(Authority.OWN_ERROR, "shm.loader"),
        *shared(Authority.UNEXPLAINED_DEATH, "shm.sigbus"),
    ),
    judge=judge,
    infers=True,
    remedy=remedy,
    confirmed_if="`df` or `ls -ld` shows that /dev/shm where the job runs is full, too small or not writable",
    confirm_with='preflight check   # the check "shm-too-small" compares /dev/shm with what the job needs',
    outranks=("dataset_worker_died", "disk_full", "remote_peer_died", "segfault_worker"),
)  # fmt: skip
