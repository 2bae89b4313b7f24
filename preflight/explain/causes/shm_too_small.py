"""/dev/shm is too small for NCCL or for the data loader."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Sign, fill_in, fixed
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

SHARED = re.compile(r"['/](?:dev/shm|psm_|torch_\d|sem\.)")
VERDICT = "Shared memory (/dev/shm){host} is too small: {who} could not get its part of it."
BUS_ERROR = "{who}{host} died of a bus error, which a full /dev/shm causes (so does a data file that was cut short)."


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Claim what the libraries say about /dev/shm; a bare bus error only where no native stack points elsewhere."""
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
    "limits to 64 MB unless told otherwise.",
    signs=(
        Sign("shm.nccl", Authority.SETUP, "NCCL could not get shared memory in /dev/shm",
             r"Error while (?:creating|attaching to) shared memory segment|failed to extend \S{0,60}(?:/dev/shm|nccl-)|"
             r"[Cc]all to posix_fallocate failed|failed to extend /dev/shm|Error: failed to extend|"
             r"/dev/shm[^\n]{0,80}(?:No space left|is too small|is full)|[Cc]all to shm_open failed|"
             r"[Cc]all to (?:ftruncate|fallocate) failed"),
        Sign("shm.loader", Authority.OWN_ERROR, "a data-loader worker ran out of shared memory",
             r"insufficient shared memory|workers are out of shared memory|"
             r"DataLoader worker \(pid[^\n]{1,80}\) is killed by signal: Bus error|"
             r"unable to (?:open|write to|mmap|resize|allocate) (?:file |shared memory )[^\n]{0,60}(?:torch_|/dev/shm)|"
             r"unable to write to file </torch_|unable to mmap \d{1,20} bytes from file </torch_|"
             r"unable to allocate shared memory\(shm\)|unable to resize file <[^\n]{1,80}to the right size|"
             r"Unexpected bus error encountered in worker|No space left on device: '/(?:dev/shm|psm_)"),
        Sign("shm.sigbus", Authority.UNEXPLAINED_DEATH, "a process died of a bus error, as a full /dev/shm causes",
             r"exitcode {0,4}: {0,2}-7\b|Signal 7 \(SIGBUS\)|Signals\.SIGBUS|terminated with signal SIGBUS|"
             r"Bus error(?: +\(core dumped\)|: +\d|$)|return code = -7\b|exited on signal 7\b|KILLED BY SIGNAL: 7\b|"
             r"[Ee]xit(?:ed with)?(?: exit)? code 135|Signal: Bus error"),
    ),
    judge=judge,
    infers=True,
    remedy=fixed(
        "See its size where the job runs: df -h /dev/shm",
        "Docker: docker run --shm-size=16g ... (or --ipc=host). Kubernetes: an emptyDir volume with "
        "medium: Memory, mounted at /dev/shm. Podman: --shm-size.",
        "If it can't be changed: num_workers=0 for the data loader, and NCCL_SHM_DISABLE=1 for NCCL as "
        "a last resort (much slower).",
        env=(("NCCL_SHM_DISABLE", "1"),),
    ),
    needs="df /dev/shm full or tiny where the job runs",
    confirm_with='preflight check   # its check "shm-too-small" reads the size and the need',
    outranks=("dataset_worker_died", "disk_full", "remote_peer_died", "segfault_worker"),
)  # fmt: skip
