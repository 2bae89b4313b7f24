"""/dev/shm is too small for NCCL or for the data loader."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, fill_in, fixed, shared
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.repairs import shm_room

SHARED = re.compile(r"['/](?:dev/shm|psm_|torch_\d|sem\.)")
VERDICT = "Shared memory (/dev/shm){host} is too small or full: {who} could not get its part of it."
BUS_ERROR = "{who}{host} died of a bus error, which a full /dev/shm causes (so does a data file that was cut short)."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Claim the libraries' errors about /dev/shm.

    A bare bus error counts only if no native stack shows another cause.
    """
    full = tuple(event for event in evidence.of("disk.full") if SHARED.search(event.text))
    if full and (not events or events[0].authority is Authority.UNEXPLAINED_DEATH):
        because = "there was no room left in a file that is shared memory"
        return Claim(Authority.SETUP, full, Confidence.HIGH, because, fill_in(VERDICT, full))
    if not events:
        return None
    if events[0].authority is not Authority.UNEXPLAINED_DEATH:
        because = "the library that asked for the memory says so"
        return Claim(events[0].authority, events, Confidence.HIGH, because, fill_in(VERDICT, events))
    if evidence.has("segv.fatal_bus"):
        return None
    because = "a bus error (SIGBUS, -7) without any word on its reason"
    return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(BUS_ERROR, events))


CAUSE = Cause(
    promise="Processes on one machine hand data to each other through /dev/shm, a memory area that Docker "
    "limits to 64 MB by default.",
    signs=(
        *shared(Authority.SETUP, "shm.nccl", "shm.attach"),
        *shared(Authority.OWN_ERROR, "shm.loader"),
        *shared(Authority.UNEXPLAINED_DEATH, "shm.sigbus"),
    ),
    judge=judge,
    infers=True,
    remedy=fixed(
        "See its size where the job runs: df -h /dev/shm",
        *shm_room().steps,
        "If it can't be changed: num_workers=0 for the data loader, and NCCL_SHM_DISABLE=1 for NCCL as "
        "a last resort (much slower).",
        env=(("NCCL_SHM_DISABLE", "1"),),
    ),
    needs="df /dev/shm full or tiny where the job runs",
    confirm_with='preflight check   # its check "shm-too-small" reads the size and the need',
    outranks=("dataset_worker_died", "disk_full", "remote_peer_died", "segfault_worker"),
)  # fmt: skip
