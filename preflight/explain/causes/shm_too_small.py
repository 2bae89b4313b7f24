"""/dev/shm is too small for NCCL or for the data loader."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fixed, said
from preflight.explain.event import Authority
from preflight.explain.seen import Seen
from preflight.model.explanation import Confidence

ID = "shm_too_small"
VERDICT = "Shared memory (/dev/shm){host} is too small: {who} could not get its part of it."
BUS_ERROR = "{who}{host} died of a bus error, which a full /dev/shm causes (so does a data file that was cut short)."


def judge(seen: Seen) -> Claim | None:
    """Claim what the libraries say about /dev/shm; a bare bus error only where no native stack points elsewhere."""
    events = seen.best(ID)
    if not events:
        return None
    if events[0].authority is not Authority.UNEXPLAINED_DEATH:
        because = "the library that asked for the memory says so"
        return Claim(events[0].authority, events, Confidence.HIGH, because, said(VERDICT, events))
    if seen.has("segv.fatal_bus"):
        return None
    because = "a bus error (SIGBUS, -7) without any word on its reason"
    return Claim(events[0].authority, events, Confidence.MEDIUM, because, said(BUS_ERROR, events))


CAUSE = Cause(
    id="shm_too_small",
    promise="Processes on one machine hand data to each other through /dev/shm, a memory area that Docker "
    "limits to 64 MB unless told otherwise.",
    signs=(
        Sign(
            "shm.nccl",
            r"Error while (?:creating|attaching to) shared memory segment|failed to extend \S{0,60}(?:/dev/shm|"
            r"nccl-)|"
            r"[Cc]all to posix_fallocate failed|failed to extend /dev/shm|Error: failed to extend|"
            r"/dev/shm[^\n]{0,80}No space left|[Cc]all to shm_open failed|"
            r"[Cc]all to (?:ftruncate|fallocate) failed",
            Authority.SETUP,
            "NCCL could not get shared memory in /dev/shm",
        ),
        Sign(
            "shm.loader",
            r"insufficient shared memory|workers are out of shared memory|"
            r"DataLoader worker \(pid[^\n]{1,80}\) is killed by signal: Bus error|unable to (?:open|write to|"
            r"mmap|resize|allocate) (?:file |shared memory )[^\n]{0,60}(?:torch_|/dev/shm)|"
            r"unable to write to file </torch_|unable to mmap \d{1,20} bytes from file </torch_|"
            r"unable to allocate shared memory\(shm\)|unable to resize file <[^\n]{1,80}to the right size|"
            r"Unexpected bus error encountered in worker|No space left on device: '/(?:dev/shm|psm_)",
            Authority.OWN_ERROR,
            "a data-loader worker ran out of shared memory",
        ),
        Sign(
            "shm.sigbus",
            r"exitcode {0,4}: {0,2}-7\b|Signal 7 \(SIGBUS\)|Signals\.SIGBUS|terminated with signal SIGBUS|"
            r"Bus error(?: +\(core dumped\)|: +\d|$)|"
            r"return code = -7\b|exited on signal 7\b|[Ee]xit(?:ed with)?(?: exit)? code 135|Signal: Bus error",
            Authority.UNEXPLAINED_DEATH,
            "a process died of a bus error, as a full /dev/shm causes",
        ),
    ),
    judge=judge,
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
    outranks=frozenset({"dataset_worker_died", "remote_peer_died", "segfault_worker"}),
)
