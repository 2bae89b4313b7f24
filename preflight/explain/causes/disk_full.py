"""A disk or a quota is full."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Sign, fill_in, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

SHARED = re.compile(r"/dev/shm|shared memory|nccl-|psm_|torch_\d|posix_fallocate|shmutils|\(shm\)")
FULL = "A disk is full, or a quota is used up{host}: {who} could not write."
PARTLY = "A file could not be written to its end{host}, as on a full disk or after a quota was reached."


def judge(evidence: LogEvidence, own_events: tuple[Event, ...]) -> Claim | None:
    """Claim the system's error; /dev/shm is memory and has its own cause."""
    events = tuple(event for event in own_events if not SHARED.search(event.text))
    if not events or (evidence.has("shm.nccl", "shm.loader") and events[0].sign == "disk.full"):
        return None
    if events[0].sign == "disk.partly":
        because = "the library was cut off in the middle of a file; the system's own error is not in the log"
        return Claim(events[0].authority, events, Confidence.MEDIUM, because, fill_in(PARTLY, events))
    return Claim(events[0].authority, events, Confidence.HIGH, "the system says so", fill_in(FULL, events))


CAUSE = Cause(
    promise="There was no room left to write: a checkpoint, a cache of data, temporary files.",
    signs=(
        Sign("disk.full", Authority.OWN_ERROR, "there was no room left to write",
             r"No space left on device|\bENOSPC\b|\[Errno (?:28|122)\]|[Dd]isk quota exceeded|EDQUOT|"
             r"StorageFull|code: 28, kind|There is not enough space on the disk|[Nn]ot enough (?:free )?disk space|"
             r"low on resource: ephemeral-storage|ephemeral (?:local )?storage[^\n]{0,40}exceed|"
             r"write error: (?:No space|Disk quota)|no space left on device|out of disk space|[Dd]isk is full\b"),
        Sign("disk.partly", Authority.OWN_ERROR, "a file could not be written to its end",
             r"PytorchStreamWriter failed writing file|unexpected pos \d{1,20} vs \d|"
             r"enforce fail at inline_container\.cc[^\n]{0,60}(?:unexpected pos|failed writing)"),
    ),
    judge=judge,
    remedy=fixed(
        "See where, on the host that failed: df -h; df -i; quota -s (Lustre: lfs quota -h -u $USER PATH), for the "
        "output "
        "folder, ~/.cache and /tmp.",
        "Free it: old checkpoints (save_total_limit, max_keep_ckpts), caches (HF_HOME, TRITON_CACHE_DIR, TMPDIR to a "
        "larger disk).",
        "Kubernetes: resources.limits.ephemeral-storage, or a volume of its own for the output.",
        "Look at the last checkpoint before you resume: what was being written is not whole.",
    ),
    needs="df or the quota shows it full where the job writes",
    confirm_with="df -h; df -i   # on that host, for the folder that the line names",
    outranks=("not_nccl", "dataset_worker_died", "checkpoint_save_timeout"),
)  # fmt: skip
