from __future__ import annotations

import math
import shlex

from preflight.errors import NotApplicable
from preflight.judge.check import Case, Findings, node_check
from preflight.judge.finding_text import fine_size
from preflight.judge.node_limits import (
    BYTES_PER_CONNECTION,
    CHANNELS,
    is_contained,
    local_ranks_of,
    nccl_shm_bytes,
    owner,
)
from preflight.judge.symptoms import SHM, SHM_HINTS, symptoms_of
from preflight.judge.workarounds import proven_severity, works
from preflight.model.facts import NodeFacts, ShmFacts, known
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.repairs import shm_room
from preflight.model.transport import Transport


@node_check(
    "shm-too-small",
    blame=Blame.HOST,
    unseen=Unseen.NOTHING,
    reads=("shm", "system", "gpus"),
    bounds=(CHANNELS, BYTES_PER_CONNECTION),
)
def shm_too_small(node: NodeFacts, case: Case) -> Findings:
    """/dev/shm has room for NCCL's segments of all local ranks.

    Yields a FAIL if a test run failed for lack of room, or a WARN if other settings avoid the failure. If no test run
    failed, yields a WARN if NCCL may need more room. Yields only an INFO if a test run with shared memory worked, or if
    the run uses no GPU.

    Can't see: that NCCL needs little room over NVLink, and none with NCCL_CUMEM_HOST_ENABLE=1 (NCCL 2.24, driver 560).
    """
    shm = known(node.shm)
    local_ranks = local_ranks_of(node, case)
    is_small = shm.free_bytes < nccl_shm_bytes(local_ranks)
    proofs = symptoms_of(case, SHM + (SHM_HINTS if is_small else ()))
    if local_ranks < 2 and not proofs:
        raise NotApplicable("fewer than two ranks would use it")
    if not is_small and not proofs:
        return
    severity = proven_severity(case) if proofs else Severity.WARN
    ways = {carrier.transport for trial in case.trials if works(trial) for carrier in trial.transport}
    yield shm_too_small.finding(
        severity if case.wants_gpus and (proofs or Transport.SHM not in ways) else Severity.INFO,
        f"{node.host} /dev/shm",
        _too_small_problem(case, shm, local_ranks, failed=bool(proofs)),
        shm_room(max(1, math.ceil(nccl_shm_bytes(local_ranks) / (1 << 30)))).where(is_contained(node)),
        Evidence("size of /dev/shm", fine_size(shm.size_bytes), "statvfs /dev/shm"),
        Evidence("free in /dev/shm", fine_size(shm.free_bytes), "statvfs /dev/shm"),
        Evidence(
            "needed in /dev/shm",
            fine_size(nccl_shm_bytes(local_ranks)),
            f"{local_ranks} local ranks, {CHANNELS.whole} channels",
        ),
        *(proof.evidence() for proof in proofs),
        blame=owner(node),
    )


def _too_small_problem(case: Case, shm: ShmFacts, local_ranks: int, *, failed: bool) -> str:
    if failed:
        return f"/dev/shm has {fine_size(shm.size_bytes)}, but a trial needed more"
    need = f"NCCL may need {fine_size(nccl_shm_bytes(local_ranks))} for {local_ranks} local ranks"
    idle = "" if case.wants_gpus else "; gloo needs none, but data loaders and a later NCCL job need some"
    return f"{fine_size(shm.free_bytes)} of {fine_size(shm.size_bytes)} are free, but {need}{idle}"


MOST_NAMED = 5


@node_check("shm-stale", blame=Blame.HOST, unseen=Unseen.NOTHING, reads=("shm", "system"))
def shm_stale(node: NodeFacts, case: Case) -> Findings:
    """/dev/shm holds no nccl-* segments of jobs that have ended.

    Yields an INFO if there are stale segments, and a WARN if the segments take more than half of /dev/shm.

    Can't see: whether a process of another user or container, whose maps can't be read, still uses a segment.
    """
    # Segments that a dead job left in /dev/shm take memory until someone removes the segments.
    shm = known(node.shm)
    files = tuple(name if name.startswith("/") else f"/dev/shm/{name}" for name in shm.stale_nccl_files)
    if not files:
        return
    named = " ".join(shlex.quote(name) for name in files[:MOST_NAMED])
    rest = " (`preflight probe --json -` lists the others)" if len(files) > MOST_NAMED else ""
    yield shm_stale.finding(
        Severity.WARN if shm.stale_nccl_bytes * 2 > shm.size_bytes else Severity.INFO,
        f"{node.host} /dev/shm",
        f"{len(files)} segment{'s' if len(files) > 1 else ''} of dead NCCL jobs "
        f"take{'' if len(files) > 1 else 's'} {fine_size(shm.stale_nccl_bytes)} of {fine_size(shm.size_bytes)}",
        f"run `rm {named}`{rest} when no NCCL job runs here",
        Evidence("stale files", ", ".join(files[:MOST_NAMED]), "/dev/shm against /proc/*/maps"),
        Evidence("stale bytes", str(shm.stale_nccl_bytes), "stat"),
        blame=owner(node),
    )
