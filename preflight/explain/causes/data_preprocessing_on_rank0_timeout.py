"""Ranks waited while rank 0 prepared the data set."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy
from preflight.explain.event import Authority
from preflight.explain.phases import Phase
from preflight.explain.seen import Seen
from preflight.explain.timeouts import duration, longer_timeout
from preflight.model.explanation import Confidence

ID = "data_preprocessing_on_rank0_timeout"
WAITING = ("store_wait_timeout", "rendezvous_failed", "watchdog_timeout_straggler", "heartbeat_monitor")


def judge(seen: Seen) -> Claim | None:
    """Claim a timeout, of a collective or of the store, whose last phase before it is the preparation of data."""
    timeouts = seen.timeouts() or tuple(e for cause in WAITING for e in seen.best(cause))
    phase = seen.phase(Phase.PREPROCESSING)
    frames = seen.of("context.data_frame")
    if not timeouts or (phase is None and not frames) or seen.phase(Phase.SAVING, Phase.TRAINING) is not None:
        return None
    timeout_ms = seen.timeout_ms()
    wait = f" longer than the timeout of {duration(timeout_ms)}" if timeout_ms else " longer than the timeout"
    verdict = f"Preparing the data set on one rank took{wait}; the other ranks waited at a barrier for it."
    if phase is not None:
        because = f"the last thing before the timeout is line {phase.line}: {phase.text.strip()[:110]}"
    else:
        because = f"a rank stands in the preparation of data when the timeout comes: {frames[0].text.strip()[:100]}"
    return Claim(Authority.REFINED_TIMEOUT, timeouts, Confidence.MEDIUM, because, verdict)


def remedy(seen: Seen, _claim: Claim) -> Remedy:
    """Prepare once, outside of the job."""
    return Remedy(
        (
            "Prepare the data once, in one process without the launcher, and train from the cache: save_to_disk / "
            "load_from_disk, tokenized_path (LLaMA-Factory), dataset_prepared_path (Axolotl), Megatron's preprocess_data.py.",
            "Keep the cache on a disk that all ranks share; on local disks every node must do it (main_process_first is per job).",
            "More processes for it (num_proc, preprocessing_num_workers) help as far as the CPU has cores.",
            *longer_timeout(seen),
        )
    )


CAUSE = Cause(
    id=ID,
    promise="One process got the data ready while all others waited, and they gave up before it was done.",
    signs=(),
    judge=judge,
    remedy=remedy,
    needs="the preparation, run alone, takes longer than the timeout",
    confirm_with="time the preparation alone; preflight timeout argues the timeout, preflight check clears the machine",
    outranks=frozenset(
        {"watchdog_timeout_straggler", "store_wait_timeout", "rendezvous_failed", "heartbeat_monitor", "remote_peer_died", "p2p_broken",
         "device_mapping_unknown"}
    ),
)  # fmt: skip
