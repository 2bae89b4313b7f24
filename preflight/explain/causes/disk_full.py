"""A disk or a quota is full."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Sign, fill_in, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

NO_DISK = re.compile(r"inotify|/dev/shm|shared memory|nccl-|psm_|torch_\d|posix_fallocate|shmutils|\(shm\)")
FULL = "{who} could not write{host}, because a disk is full or a quota is used up."
PARTLY = "A file was only partly written{host}. A full disk or a used-up quota causes this."


def judge(evidence: LogEvidence, own_events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a disk or a quota is full.

    Return None if no line of `own_events` is about a disk.
    """
    # A full /dev/shm and the limit of file watches do not count.
    events = tuple(event for event in own_events if not NO_DISK.search(event.text))
    if not events or (evidence.has("shm.nccl", "shm.loader") and events[0].sign == "disk.full"):
        return None
    if events[0].sign == "disk.partly":
        because = (
            "the library stopped in the middle of a file, but the log does not show the error of the operating system"
        )
        return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(PARTLY, events))
    return Claim(
        events[0].authority, events, Confidence.HIGH, "the operating system reports the error", fill_in(FULL, events)
    )


CAUSE = Cause(
    promise="A checkpoint, a data cache or a temporary file did not fit on the disk.",
    signs=(
        Sign("disk.full", Authority.OWN_ERROR, "there was no room left to write",
             r"No space left on device|\bENOSPC\b|\[Errno (?:28|122)\]|[Dd]isk quota exceeded|EDQUOT|"
             r"StorageFull|code: 28, kind|There is not enough space on the disk|[Nn]ot enough (?:free )?disk space|"
             r"low on resource: ephemeral-storage|ephemeral (?:local )?storage[^\n]{0,40}exceed|"
             r"write error: (?:No space|Disk quota)|no space left on device|out of disk space|[Dd]isk is full\b"),
        Sign("disk.partly", Authority.OWN_ERROR, "a file was only partly written",
             r"PytorchStreamWriter failed writing file|unexpected pos \d{1,20} vs \d|"
             r"enforce fail at inline_container\.cc[^\n]{0,60}(?:unexpected pos|failed writing)"),
    ),
    judge=judge,
    remedy=fixed(
        "On the host that failed, check the output folder, ~/.cache and /tmp: df -h; df -i; quota -s (Lustre: lfs "
        "quota -h -u $USER PATH)",
        "Delete old checkpoints (limited by save_total_limit or max_keep_ckpts), and move caches to a larger disk "
        "(HF_HOME, TRITON_CACHE_DIR, TMPDIR).",
        "Kubernetes: raise resources.limits.ephemeral-storage, or give the output its own volume.",
        "Check the last checkpoint before you resume, because the file that the job was writing is incomplete.",
    ),
    confirmed_if="df or quota shows that the job's disk is full",
    confirm_with="df -h; df -i   # on that host, for the folder that the line names",
    outranks=("not_nccl", "dataset_worker_died", "checkpoint_save_timeout"),
)  # fmt: skip
