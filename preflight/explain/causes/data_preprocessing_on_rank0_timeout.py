"""Ranks waited while rank 0 prepared the data set."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, Remedy
from preflight.explain.event import Authority, Event
from preflight.explain.phases import Phase, PhaseSeen, bar_elapsed_s, is_full_bar
from preflight.explain.seen import Seen
from preflight.explain.timeouts import duration, longer_timeout
from preflight.model.explanation import Confidence

ID = "data_preprocessing_on_rank0_timeout"
DEFAULTS_S = (600.0, 1800.0)  # NCCL groups since torch 2.2, and before
WAITING = ("store_wait_timeout", "rendezvous_failed", "watchdog_timeout_straggler", "heartbeat_monitor")


def judge(seen: Seen) -> Claim | None:
    """Claim a timeout, of a collective or of the store, whose last phase before it is the preparation of data.

    A progress bar that had run for just the timeout is one rank's long work, whatever it is called.
    """
    timeouts = seen.timeouts() or tuple(e for cause in WAITING for e in seen.best(cause))
    phase = seen.phase(Phase.PREPROCESSING, Phase.LOADING, Phase.TRAINING)
    elapsed_s = bar_elapsed_s(phase.text) if phase is not None else None
    limits_s = [seen.timeout_ms() / 1000] if seen.timeout_ms() else list(DEFAULTS_S)
    is_just = elapsed_s is not None and any(0.97 <= elapsed_s / limit_s <= 1.03 for limit_s in limits_s)
    is_preparing = phase is not None and phase.phase is Phase.PREPROCESSING
    if phase is not None and elapsed_s is not None and is_full_bar(phase.text) and elapsed_s < min(limits_s) / 2:
        is_preparing = False  # it was done long before anybody gave up
    frames = seen.of("context.data_frame")
    if timeouts:
        if not is_just and not is_preparing and (not frames or seen.phase(Phase.SAVING, Phase.TRAINING) is not None):
            return None
        return _claim(seen, timeouts, phase, frames, Confidence.MEDIUM)
    raised = seen.of("context.traceback")
    if is_just and is_preparing and raised and not seen.failures() and not seen.exceptions:
        return _claim(seen, raised, phase, frames, Confidence.LOW)
    return None


def _claim(
    seen: Seen, events: tuple[Event, ...], phase: PhaseSeen | None, frames: tuple[Event, ...], confidence: Confidence
) -> Claim:
    timeout_ms = seen.timeout_ms()
    wait = f" longer than the timeout of {duration(timeout_ms)}" if timeout_ms else " longer than the timeout"
    verdict = f"Preparing the data set on one rank took{wait}; the other ranks waited at a barrier for it."
    if phase is not None:
        because = f"the last thing before the timeout is line {phase.line}: {phase.text.strip()[:110]}"
    else:
        because = f"a rank stands in the preparation of data when the timeout comes: {frames[0].text.strip()[:100]}"
    return Claim(Authority.REFINED_TIMEOUT, events, confidence, because, verdict)


def remedy(seen: Seen, _claim: Claim) -> Remedy:
    """Prepare once, outside of the job."""
    return Remedy(
        (
            "Prepare the data once, in one process without the launcher, and train from the cache: save_to_disk / "
            "load_from_disk, tokenized_path (LLaMA-Factory), dataset_prepared_path (Axolotl), Megatron's "
            "preprocess_data.py.",
            "Keep the cache on a disk that all ranks share; on local disks every node must do it "
            "(main_process_first is per job).",
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
    confirm_with="time the preparation alone, then: preflight timeout --params N --preprocess TIME",
    outranks=frozenset(
        {
            "device_mapping_unknown",
            "heartbeat_monitor",
            "p2p_broken",
            "remote_peer_died",
            "rendezvous_failed",
            "store_wait_timeout",
            "watchdog_timeout_straggler",
        }
    ),
)
