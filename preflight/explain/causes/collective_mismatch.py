"""Ranks of one group called different collectives, or the same one with different sizes."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Sign, fixed, said
from preflight.explain.event import Authority
from preflight.explain.flight_recorder import find_clash
from preflight.explain.seen import Seen
from preflight.explain.watchdog import find_mismatch, find_overtaken
from preflight.model.explanation import Confidence

ID = "collective_mismatch"
VERDICT = (
    "Ranks called different collectives, or different sizes, at the same point: their program took "
    "different paths ({who})."
)


def judge(seen: Seen) -> Claim | None:
    """Claim by the library's own report, else by two ranks with different work under one sequence number."""
    events = seen.best(ID)
    if events:
        because = "the library compared the ranks and says so"
        return Claim(Authority.MISMATCH, events, Confidence.HIGH, because, said(VERDICT, events))
    if (mismatch := find_mismatch(seen.waits.all())) is not None:
        one, other = mismatch.one, mismatch.other
        detail = (
            f"collective {mismatch.seq}: rank {one.rank} waits in {one.op} ({one.numel_in} elements), "
            f"rank {other.rank} in {other.op} ({other.numel_in} elements)",
        )
        caught = seen.of("watchdog.caught")
        proof = tuple(event for event in caught if event.rank in (one.rank, other.rank)) or caught
        because = f"under the same sequence number {mismatch.seq} the ranks wait in different work"
        return Claim(Authority.MISMATCH, proof[:4], Confidence.HIGH, because, said(VERDICT, proof[:4]), detail)
    if (overtaken := find_overtaken(seen.waits.all())) is not None:
        one, other = overtaken
        detail = (
            f"rank {one.rank} waits in collective {one.seq}, {one.op}, which rank {other.rank} has completed; that one "
            f"waits in {other.seq}, {other.op}",
        )
        proof = tuple(e for e in seen.of("watchdog.caught") if e.rank in (one.rank, other.rank))
        because = "a rank waits in a collective that another has completed: to that one it was a different collective"
        return Claim(Authority.MISMATCH, proof[:4], Confidence.MEDIUM, because, said(VERDICT, proof[:4]), detail)
    if (clash := find_clash(seen.recordings)) is not None:
        detail = (
            f"collective {clash.seq}: rank {clash.one[0]} {clash.one[1]}, rank {clash.other[0]} {clash.other[1]}",
        )
        because = "the flight recorder's dumps hold different work under one sequence number"
        verdict = VERDICT.replace("{who}", f"ranks {clash.one[0]}, {clash.other[0]}")
        return Claim(Authority.MISMATCH, (), Confidence.HIGH, because, verdict, detail)
    return None


CAUSE = Cause(
    id=ID,
    promise="All processes must call the same communication in the same order; here they did not.",
    signs=(
        # "inconsistent 0 params" is what torch's check reads where its own collective never ended: an echo.
        Sign(
            "mismatch.detected",
            r"Detected mismatch between collectives|Mismatched collective detected|collective mismatch error|"
            r"running collective: CollectiveFingerPrint\(|Shape mismatch in the collective|"
            r"Collectives? (?:call )?mismatch|"
            r"mismatched ranks that caused the desync[^\n]{0,40}mismatch|"
            r"DDP expects same model [^\n]{1,160}inconsistent [1-9]|"
            r"appears not to match (?:sizes|strides) of the same param|"
            r"Cannot apply desired operation due to shape mismatches|message truncated : receiving|"
            r"input shapes into the collective are mismatched|Mismatch between collective operation types|"
            r"Collectives differ in the following aspects|"
            r"op\.preamble\.length <= op\.nbytes|[Dd]isagreement error: rank|"
            r"Mismatched (?:allreduce|allgather|broadcast|alltoall|reducescatter|MPI|data types|reduction)\b",
            Authority.MISMATCH,
            "ranks called different collectives",
        ),
    ),
    judge=judge,
    remedy=fixed(
        "Find the branch that only some ranks take: if rank == 0: around anything that communicates, logging with "
        "sync_dist=True, batches without images or labels, early stopping, a loop whose length depends on the data.",
        "Run once with TORCH_DISTRIBUTED_DEBUG=DETAIL: torch then names the line on each rank (slow; "
        "for finding it only).",
        "Give every rank the same number of steps: drop_last=True, a DistributedSampler that pads, or "
        "the Join context manager.",
        "No timeout cures this.",
    ),
    needs="TORCH_DISTRIBUTED_DEBUG=DETAIL names two ranks with different collectives",
    confirm_with="the same command with TORCH_DISTRIBUTED_DEBUG=DETAIL; preflight check clears the machine",
    outranks=frozenset({"not_nccl"}),
)
