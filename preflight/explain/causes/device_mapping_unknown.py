"""torch guesses the GPU of a rank, and the guess can be wrong."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence
from preflight.model.job_phases import Phase

ID = "device_mapping_unknown"
VERDICT = (
    "After torch warned that it guesses the GPU of each rank, the job made no progress. Ranks may use the wrong GPU or "
    "share a GPU, or the path between the GPUs may hang."
)
GUESS = re.compile(r"using (?:best-guess )?GPU (\d{1,3})")
NEAR_END = 10
WAITING = re.compile(r"\b[Rr]etrying\b|not (?:up|ready|reachable|available) yet|\b[Ww]aiting (?:for|until|on)\b")
VISIBLE = re.compile(r"CUDA_VISIBLE_DEVICES[=: \['\"]{1,5}(\d{1,3}(?:,\d{1,3}){0,63})\b")


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that a rank uses the wrong GPU, based on a warning from torch.

    Return None unless the warning comes before a timeout or at the end of the log.
    """
    # Healthy logs contain the warning, too.
    if evidence.successes() or evidence.exceptions:
        return None
    others = [event for event in evidence.failures() if event.cause != ID]
    if others:
        return _before_a_timeout(evidence, events, others)
    went_on = evidence.phase(Phase.TRAINING, Phase.EVALUATING, Phase.SAVING)
    if went_on is not None and went_on.line > events[-1].line:
        return None
    # Standard error holds little else: what counts is that the job said nothing after it.
    if evidence.sources[events[-1].source].lines - events[-1].line > NEAR_END:
        return None
    if _waits_for_something_else(evidence, events[-1]):
        return None
    because = "the log ends with this warning, which says that a hang can follow"
    return Claim(Authority.SILENCE, events, Confidence.LOW, because, VERDICT)


def _waits_for_something_else(evidence: LogEvidence, warned: Event) -> bool:
    """Return whether a line after the warning names what the job waits for, such as a server that does not run yet."""
    source = evidence.sources[warned.source]
    after = source.lines - warned.line
    return after > 0 and any(WAITING.search(line) for line in source.tail[-after:])


def _before_a_timeout(evidence: LogEvidence, events: tuple[Event, ...], others: list[Event]) -> Claim | None:
    """Return this cause if the first collective timed out, and if ranks shared a GPU or some GPUs are hidden.

    Otherwise return None.
    """
    if any(event.authority < Authority.REFINED_TIMEOUT for event in others):
        return None
    if any(wait.seq > 1 or wait.last_completed > 0 for wait in evidence.waits.all()):
        return None
    chosen = [(event.rank, match[1]) for event in events if (match := GUESS.search(event.text))]
    if len({gpu for _, gpu in chosen}) < len({rank for rank, _ in chosen}):
        because = "ranks guessed the same GPU"
    elif evidence.visible_gpus:
        because = "CUDA_VISIBLE_DEVICES hides GPUs, and the first collective never ended"
    else:
        return None
    return Claim(Authority.REFINED_TIMEOUT, events, Confidence.LOW, because, VERDICT)


def remedy(evidence: LogEvidence, _claim: Claim) -> Remedy:
    """Return the steps for a wrong GPU: bind the ranks to their GPUs, then run `preflight check`."""
    found = VISIBLE.search(evidence.visible_gpus)
    check = f"preflight check --gpus {found[1]}" if found else "preflight check"
    return Remedy(
        "Bind every rank to its GPU before anything else: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])), "
        "and init_process_group('nccl', device_id=torch.device('cuda', int(os.environ['LOCAL_RANK']))).",
        "If the job still hangs, test these three variables, which are often set together: "
        "NCCL_SOCKET_IFNAME=<interface>, "
        "NCCL_IB_DISABLE=1, NCCL_P2P_DISABLE=1. Usually only some of the variables are needed, and each one costs "
        "speed.",
        f"On the machine of the job, run `{check}`. This command tests the variables, and writes only those that the "
        f"job needs.",
        env=(("NCCL_IB_DISABLE", "1"), ("NCCL_P2P_DISABLE", "1")),
        confirm_with=f"{check}   # on the job's machine: tests which of the three variables are needed",
    )


CAUSE = Cause(
    promise="Each process should use its own GPU. Here torch had to guess the GPU.",
    signs=(
        Sign("mapping.guess", Authority.SILENCE, "torch guesses the GPU of a rank",
             r"using (?:best-guess )?GPU \d{1,3} (?:to perform barrier )?as devices? used by this process (?:are|"
             r"is) currently unknown|devices? used by this process (?:are|is) currently unknown|"
             r"Guessing device ID based on global rank|No device id is provided via `?init_process_group"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the job runs with device_id set, or with only one of the variables of step 2",
    confirm_with="preflight check",
    outranks=("watchdog_timeout_straggler", "hang_no_error"),
)  # fmt: skip
