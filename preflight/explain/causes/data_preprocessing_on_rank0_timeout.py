"""Ranks waited while rank 0 prepared the data set."""

from __future__ import annotations

from preflight.explain.cause import Cause, Claim, fixed
from preflight.explain.causes.rendezvous_failed import without_echoes
from preflight.explain.event import Authority, Event
from preflight.explain.job_progress import bar_elapsed_s, is_full_bar
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.run_ends import TRACEBACK
from preflight.explain.timeout_advice import duration, longer_timeout
from preflight.model.explanation import Confidence
from preflight.model.job_phases import Phase

DEFAULTS_S = (600.0, 1800.0)  # NCCL groups since torch 2.2, and before
WAITING = ("store_wait_timeout", "rendezvous_failed", "watchdog_timeout_straggler", "heartbeat_monitor")


def judge(evidence: LogEvidence, _events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that one rank prepared data while other ranks timed out, or return None."""
    # The evidence is that data preparation was the last activity before the timeout. A progress bar that ran as long as
    # the timeout (within 3%) also counts as data preparation. Without a timeout, a progress bar of that length and a
    # traceback give low confidence.
    waits = (event for cause in WAITING for event in without_echoes(evidence, evidence.best(cause)))
    timeouts = evidence.timeouts() or tuple(each for each in waits if each.authority is not Authority.ECHO)
    phase = evidence.phase(Phase.PREPROCESSING, Phase.LOADING, Phase.TRAINING)
    elapsed_s = bar_elapsed_s(phase.text) if phase is not None else None
    limits_s = [evidence.timeout_ms() / 1000] if evidence.timeout_ms() else list(DEFAULTS_S)
    is_just = elapsed_s is not None and any(0.97 <= elapsed_s / limit_s <= 1.03 for limit_s in limits_s)
    is_preparing = phase is not None and phase.phase is Phase.PREPROCESSING
    if phase is not None and elapsed_s is not None and is_full_bar(phase.text) and elapsed_s < min(limits_s) / 2:
        is_preparing = False  # it was done long before anybody gave up
    frames = evidence.of("context.data_frame")
    raised = evidence.of(TRACEBACK)
    is_framed = bool(frames) and evidence.phase(Phase.SAVING, Phase.TRAINING) is None
    if timeouts and (is_just or is_preparing or is_framed):
        events, confidence = (*(evidence.of_phase(phase) or frames[:1]), *timeouts), Confidence.MEDIUM
    elif is_just and is_preparing and raised and not (timeouts or evidence.failures() or evidence.exceptions):
        events, confidence = raised, Confidence.LOW
    else:
        return None
    timeout_ms = evidence.timeout_ms()
    wait = f" longer than the timeout of {duration(timeout_ms)}" if timeout_ms else " longer than the timeout"
    verdict = f"One rank prepared the data set and took{wait}, while the other ranks waited for this rank at a barrier."
    if phase is not None:
        because = f"the last event before the timeout is line {phase.line}: {phase.text.strip()[:110]}"
    else:
        because = f"a rank was preparing data when the timeout expired: {frames[0].text.strip()[:100]}"
    return Claim(Authority.REFINED_TIMEOUT, events, confidence, because, verdict)


CAUSE = Cause(
    promise="One process prepared the data. The other processes waited for it until their timeout.",
    judge=judge,
    remedy=fixed(
        "Prepare a cache of the data once, in one process without the launcher, and train from this cache. Use "
        "save_to_disk / "
        "load_from_disk, tokenized_path (LLaMA-Factory), dataset_prepared_path (Axolotl) or Megatron's "
        "preprocess_data.py.",
        "Keep the cache on a disk that all ranks share. With local disks, prepare it on every node, because "
        "main_process_first runs once per job.",
        "If the CPU has idle cores, use more processes for the preparation (num_proc, preprocessing_num_workers).",
        then=longer_timeout,
    ),
    infers=True,
    confirmed_if="the preparation alone takes longer than the timeout",
    confirm_with="preflight timeout --params N --preprocess TIME   # TIME is the duration of the preparation alone",
    outranks=("device_mapping_unknown", "heartbeat_monitor", "p2p_broken", "remote_peer_died", "rendezvous_failed",
              "store_wait_timeout", "watchdog_timeout_straggler"),
)  # fmt: skip
