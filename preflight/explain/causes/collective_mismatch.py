"""Ranks of one group called different collectives, or the same collective with different sizes."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Sign, fill_in, fixed
from preflight.explain.collective_waits import CLEARLY, Wait, find_mismatch, find_overtaken
from preflight.explain.event import Authority, Event, by_number
from preflight.explain.flight_recorder import find_clash
from preflight.explain.last_frames import LastFrame
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

VERDICT = "Ranks called different collectives, or used different sizes, at the same point of the program ({who})."

MOST_NAMED = 8
TIMED_OUT = re.compile(r"[Tt]im(?:ed|e) ?out")
WAITED = re.compile(rf"{TIMED_OUT.pattern}|gloo[^\n]{{0,90}}Connection closed by peer")


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that ranks called different collectives or used different sizes, or return None."""
    # The evidence is the library's own comparison (`events`), two timed-out waits, the tracebacks of all ranks, or two
    # flight recorder dumps, in this order.
    if events:
        because = "the library compared the ranks and found the difference"
        return Claim(Authority.MISMATCH, events, Confidence.HIGH, because, fill_in(VERDICT, events))
    if (mismatch := find_mismatch(evidence.waits.all())) is not None:
        one, other = mismatch
        detail = (
            f"rank {one.rank} waits in {one.op} ({one.numel_in} elements), but rank {other.rank} waits in {other.op} "
            f"({other.numel_in} elements)",
        )
        caught = evidence.of("watchdog.caught")
        proof = tuple(event for event in caught if event.rank in (one.rank, other.rank)) or caught
        because = f"at sequence number {one.seq}, two ranks wait in different collectives"
        return Claim(Authority.MISMATCH, proof[:4], Confidence.HIGH, because, fill_in(VERDICT, proof[:4]), detail)
    overtaken = find_overtaken(evidence.waits.all())
    if overtaken is not None and (_is_far_ahead(*overtaken) or not _data_were_lost(evidence)):
        one, other = overtaken
        detail = (
            f"rank {one.rank} waits in collective {one.seq}, {one.op}; rank {other.rank} has completed this "
            f"collective and waits in {other.seq}, {other.op}",
        )
        proof = tuple(e for e in evidence.of("watchdog.caught") if e.rank in (one.rank, other.rank))
        because = (
            "a rank waits in a collective, but another rank completed a different collective under the same number"
        )
        return Claim(Authority.MISMATCH, proof[:4], Confidence.MEDIUM, because, fill_in(VERDICT, proof[:4]), detail)
    if (calls := _calls(evidence)) is not None:
        who = ", ".join(f"rank {event.rank} waited in {at.call} at {at.place}" for event, at in calls)
        proof = tuple(event for event, _ in calls)
        because = "the tracebacks of the ranks end in different collectives, and no rank is missing"
        return Claim(Authority.MISMATCH, proof, Confidence.MEDIUM, because, VERDICT.replace("{who}", who))
    if (clash := find_clash(evidence.recordings)) is not None:
        proof = tuple(
            event
            for rank, work in (clash.one, clash.other)
            for event in evidence.recorded(rank, f"collective {clash.seq} is {work}")
        )
        because = "the flight recorder's dumps have different work under one sequence number"
        parted = f"rank{'s' * (len(clash.differ) > 1)} {', '.join(clash.differ[:MOST_NAMED])}, unlike most"
        both = f"ranks {', '.join(by_number((clash.one[0], clash.other[0])))}"
        verdict = VERDICT.replace("{who}", parted if clash.differ else both)
        return Claim(Authority.MISMATCH, proof, Confidence.HIGH, because, verdict)
    return None


def _calls(evidence: LogEvidence) -> tuple[tuple[Event, LastFrame], tuple[Event, LastFrame]] | None:
    """Return two ranks that waited in different collectives, each with the last frame of its traceback.

    The first rank timed out. The other rank also timed out, or lost the connection to the first rank. Return None if
    nothing is proved. If any rank has no traceback, nothing is proved: ranks of different groups may wait for this rank
    in different calls.
    """
    waited = [(event, at) for event, at in evidence.waited() if event.rank and WAITED.search(event.text)]
    waited.sort(key=lambda one: TIMED_OUT.search(one[0].text) is None)
    if not waited or not TIMED_OUT.search(waited[0][0].text):
        return None
    if any(row.rank and row.raised is None for row in evidence.processes):
        return None
    for other in waited[1:]:
        if other[0].rank != waited[0][0].rank and other[1].call != waited[0][1].call:
            return waited[0], other
    return None


def _is_far_ahead(one: Wait, other: Wait) -> bool:
    return other.last_completed >= one.seq + CLEARLY


def _data_were_lost(evidence: LogEvidence) -> bool:
    """Return whether data may be lost, because the network or the hardware failed or a process was killed.

    If data are lost, a rank may still wait for the last data of a collective that other ranks have completed.
    """
    kinds = (Authority.HARDWARE, Authority.KILLED, Authority.TRANSPORT)
    return any(event.authority in kinds for event in evidence.failures())


CAUSE = Cause(
    promise="All processes must call the same collectives in the same order. Here they did not.",
    signs=(
        # "inconsistent 0 params" is what torch's check reads where its own collective never ended: an echo.
        Sign("mismatch.detected", Authority.MISMATCH, "ranks called different collectives",
             r"Detected mismatch between collectives|Mismatched collective detected|collective mismatch error|"
             r"running collective: CollectiveFingerPrint\(|Shape mismatch in the collective|"
             r"Collectives? (?:call )?mismatch|mismatched ranks that caused the desync[^\n]{0,40}mismatch|"
             r"DDP expects same model [^\n]{1,160}inconsistent [1-9]|"
             r"appears not to match (?:sizes|strides) of the same param|"
             r"Cannot apply desired operation due to shape mismatches|message truncated : receiving|"
             r"input shapes into the collective are mismatched|Mismatch between collective operation types|"
             r"Collectives differ in the following aspects|op\.preamble\.length <= op\.nbytes|"
             r"[Dd]isagreement error: rank|SIZE_OR_SYNTAX_MISMATCH|COLLECTIVE_(?:TYPE|STATE|DTYPE)_MISMATCH|"
             r"COLLECTIVE_MISMATCH|(?:collective|Collective)s? (?:type |size )?mismatch(?:ed)? (?:at|between|on|"
             r"detected)|EI0005|"
             r"Mismatched (?:allreduce|allgather|broadcast|alltoall|reducescatter|MPI|data types|reduction)\b"),
    ),
    judge=judge,
    remedy=fixed(
        "Find the branch that only some ranks take. Common cases are `if rank == 0:` around a collective, logging "
        "with sync_dist=True, batches without images or labels, early stopping, and a loop whose length depends on "
        "the data.",
        "Run once with TORCH_DISTRIBUTED_DEBUG=DETAIL. Torch then names the line of code on each rank, but the job is "
        "slower.",
        "Give every rank the same number of steps: use drop_last=True, a DistributedSampler that pads, or the Join "
        "context.",
        "A longer timeout does not help here.",
    ),
    infers=True,
    confirmed_if="torch names ranks with different collectives under TORCH_DISTRIBUTED_DEBUG=DETAIL",
    confirm_with="run the same command with TORCH_DISTRIBUTED_DEBUG=DETAIL",
    outranks=("not_nccl",),
)  # fmt: skip
