"""Ranks timed out during or after a checkpoint, or only some ranks entered the call that writes the checkpoint."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy
from preflight.explain.collective_waits import behind_by_seq, find_mismatch
from preflight.explain.event import Authority, Event
from preflight.explain.job_progress import PhaseRecord
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.timeout_advice import duration, longer_timeout, parted_at
from preflight.model.explanation import Confidence
from preflight.model.job_phases import Phase

GATHERS = frozenset({"_ALLGATHER_BASE", "ALLGATHER", "BROADCAST", "COALESCED"})  # what collects sharded weights
STOPPED = "The job stopped during or after a checkpoint: {who}, and the other ranks timed out{timeout}."
NOW_MISSING = ("is missing", "are missing")  # one rank, several ranks
CLOCK = re.compile(r"\b(\d\d:\d\d:\d\d)\b")
MOST_RANKS = 4096  # that are looked through
FEW = 4  # missing ranks that are listed
PLACE = re.compile(r"(?:^|[\s'\"=])([\w./+-]{1,80})/(?:checkpoint|global_step|step|epoch|iter)[-_=]?\d+\b", re.ASCII)
SIZE = re.compile(r"[\w]-(\d{1,3}(?:\.\d{1,2})?)[bB](?![\w.])", re.ASCII)  # of a model: Qwen2.5-1.5B
DEADLOCK = (
    "Only some ranks entered a checkpoint, so the ranks wait in different collectives. A longer timeout does not end "
    "this deadlock."
)


def judge(evidence: LogEvidence, _events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that ranks timed out during or right after a checkpoint.

    Return None if there is no timeout, or if nothing in the logs shows a checkpoint before the timeout.
    """
    # If ranks waited in different collectives, the conclusion is that only some ranks entered the call that writes the
    # checkpoint.
    timeouts, waits = evidence.timeouts(), evidence.waits.all()
    if not timeouts:
        return None
    phase = evidence.phase(Phase.SAVING)
    confidence = Confidence.MEDIUM
    if phase is None and {wait.op for wait in waits} & GATHERS:
        phase, confidence = evidence.phase(Phase.FINISHED), Confidence.LOW
    frames = evidence.of("context.save_frame")
    if phase is None and not frames:
        return None
    proof = (*(evidence.of_phase(phase) or frames[:1]), *timeouts)
    is_deadlock = find_mismatch(waits) is not None or bool(behind_by_seq(waits))
    if phase is not None:
        because = f"the last event before the timeout is line {phase.line}: {phase.text.strip()[-100:]}"
    else:
        because = f"a rank was in a checkpoint when the timeout expired: {frames[0].text.strip()[:100]}"
    if is_deadlock:
        return Claim(Authority.REFINED_TIMEOUT, proof, confidence, because, DEADLOCK, ("deadlock",))
    timeout_ms = evidence.timeout_ms()
    waited = f" after {duration(timeout_ms)}" if timeout_ms else ""
    verdict = STOPPED.replace("{timeout}", waited).replace("{who}", _missing(evidence, phase))
    return Claim(Authority.REFINED_TIMEOUT, proof, confidence, because, verdict)


def _missing(evidence: LogEvidence, phase: PhaseRecord | None) -> str:
    """Return a text about the missing ranks, such as "rank 3 has been missing since 12:30:00".

    The missing ranks are those that reported no timeout. If too many ranks are missing, the text names no rank.
    """
    reported = _reported(evidence)
    missing = [str(rank) for rank in range(min(MOST_RANKS, _ranks(evidence))) if rank not in reported]
    clock = CLOCK.search(phase.text) if phase is not None else None
    parted = parted_at(evidence)
    when = parted[0] if parted else clock[1] if clock else ""
    one, several = (f"has been missing since {when}", f"have been missing since {when}") if when else NOW_MISSING
    if not reported or not 0 < len(missing) <= min(FEW, len(reported)):
        return f"a rank {one}"
    return f"rank{'s' * (len(missing) > 1)} {', '.join(missing)} {several if missing[1:] else one}"


def _reported(evidence: LogEvidence) -> set[int]:
    return {int(wait.rank) for wait in evidence.waits.all() if wait.rank.isdigit()}


def _ranks(evidence: LogEvidence) -> int:
    """Return the smallest number of ranks that fits the logs; 0 if the logs show no rank."""
    return max(evidence.world_size, max(_reported(evidence), default=-1) + 1)


def _command(evidence: LogEvidence) -> str:
    """Return the command that measures a checkpoint of this job, with the job's values from the logs."""
    phase = evidence.phase(Phase.SAVING)
    place = PLACE.search(phase.text) if phase is not None else None
    size = SIZE.search(phase.text) if phase is not None else None
    ranks = f" --world-size {_ranks(evidence)}" if _ranks(evidence) > 1 else ""
    named = place[1] if place is not None and not place[1].startswith("-") else "DIR"
    return f"preflight timeout --params {f'{size[1]}B' if size else 'N'}{ranks} --checkpoint-dir {named}"


def remedy(evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a timeout during a checkpoint."""
    # If the ranks called different collectives, the steps repair the call. Otherwise the steps show how to tell a slow
    # checkpoint from a missing rank, before they raise timeouts.
    all_ranks = (
        "Call the checkpoint code on all ranks. With FSDP and ZeRO-3, save_pretrained, state_dict and "
        "save_checkpoint gather the weights, so rank 0 must not call them alone. Put only file writes under `if "
        "rank == 0:`."
    )
    if "deadlock" in claim.detail:
        also = "Call evaluation and logging code near the checkpoint on all ranks too. A longer timeout does not help."
        return Remedy(all_ranks, also)
    died_at_s = evidence.timeout_ms() // 1000
    command = f"{_command(evidence)}{f' --current {died_at_s}' if died_at_s else ''}"
    return Remedy(
        f"To measure a checkpoint, run {command}. If the checkpoint is much shorter than the timeout, the missing rank "
        f"died or waited for something else. Read its log. Then start the job with `preflight run`, which "
        f"shows where ranks wait.",
        "If the checkpoint is slow, let each rank write its own shard (FSDP: StateDictType.SHARDED_STATE_DICT or "
        "torch.distributed.checkpoint; DeepSpeed: stage3_gather_16bit_weights_on_model_save=false), or write "
        "asynchronously to a local disk.",
        all_ranks,
        "Watch host and GPU memory during the checkpoint. If rank 0 gathers the whole model, the host may swap "
        "or kill rank 0 (exit code -9).",
        *longer_timeout(evidence),
        confirm_with=f"{command}   # times one checkpoint, and computes the timeout that the job needs",
    )


CAUSE = Cause(
    promise="Some processes wrote the model to disk. The other processes waited until their timeout.",
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="a checkpoint takes about as long as the timeout, on one rank or on all ranks",
    confirm_with="preflight timeout --params N --checkpoint-dir DIR   # measures a checkpoint and computes the "
    "timeout for it",
    outranks=("collective_mismatch", "device_mapping_unknown", "heartbeat_monitor", "p2p_broken", "remote_peer_died",
              "store_wait_timeout", "watchdog_timeout_straggler"),
)  # fmt: skip
