"""The log stops, and nothing in it is an error."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy
from preflight.explain.event import UNKNOWN, Authority, Event, Moment
from preflight.explain.nccl_start import STEPS
from preflight.explain.phases import Phase
from preflight.explain.seen import Seen
from preflight.model.explanation import Confidence
from preflight.model.nccl_lines import Step

ID = "hang_no_error"
NEAR_END = 40  # lines after NCCL's last one: a log that has more went on
SOME = 2  # processes: of a single one the log may simply hold no more
TOGETHER, FIRST = "the meeting of its processes", "the first collective"
# What a last line announces, and how far the job had got.
ANNOUNCED: tuple[tuple[re.Pattern[str], str, Step], ...] = (
    (re.compile(r"[Ii]nitializing (?:ddp|distributed): GLOBAL_RANK"), TOGETHER, Step.BOOTSTRAP),
    (re.compile(r"Init torch distributed begin|> initializing torch distributed"), TOGETHER, Step.BOOTSTRAP),
    (re.compile(r"\bInitializing TorchBackend in DeepSpeed|distributed init \(rank \d"), TOGETHER, Step.BOOTSTRAP),
    (re.compile(r"^[^#\n]{0,40}# {1,16}\(B\) {1,16}\(elements\)"), FIRST, Step.COMPLETE),
    (re.compile(r"vLLM is using nccl=="), FIRST, Step.COMPLETE),
    (re.compile(r"NCCL INFO Launch mode "), FIRST, Step.COMPLETE),
    (re.compile(r"^[^#\n]{0,40}# {1,4}Rank +\d{1,5} (?:Group|Pid) .{0,120}device +\d"), FIRST, Step.COMPLETE),
)
FEW = 4  # collectives; more of them mean that data did flow


def judge(seen: Seen) -> Claim | None:
    """Claim a log that ends in NCCL's start-up or in its first collective, without an error and without an end."""
    if seen.failures() or seen.exceptions or seen.successes() or seen.has("context.progress"):
        return None
    if (waiting := _last_words(seen)) is not None:
        return waiting
    starts = seen.starts
    if len(starts.steps) < SOME or seen.phase(Phase.TRAINING) is not None:
        return None
    if len(starts.unfinished()) == len(starts.steps):
        step = max(starts.steps.values())
    elif not starts.unfinished() and 0 < max(starts.collectives.values()) <= FEW:
        step = Step.COLLECTIVE
    else:
        return None
    source, text, line = max(starts.last_line.values(), key=lambda last: (last[0], last[2]))
    if seen.sources[source].lines - line > NEAR_END:
        return None
    event = Event("hang.last", ID, Authority.SILENCE, source, line, 0, UNKNOWN, UNKNOWN, Moment(), text.strip()[:400])
    done, next_ = STEPS[step]
    verdict = f"The log stops without an error: a process {done} and then waited for {next_}."
    because = (
        f"none of {len(starts.steps)} processes got any further; a log that was copied too early would look the same"
    )
    return Claim(Authority.SILENCE, (event,), Confidence.LOW, because, verdict, (str(int(step)),))


def _last_words(seen: Seen) -> Claim | None:
    """Claim a log whose very last line announces a step that a healthy log goes on from within seconds."""
    for number, source in enumerate(seen.sources):
        found = next((step for step in ANNOUNCED if source.tail and step[0].search(source.tail[-1])), None)
        if found is None:
            continue
        _, doing, step = found
        text = source.tail[-1].strip()[:400]
        event = Event("hang.last", ID, Authority.SILENCE, number, source.lines, 0, UNKNOWN, UNKNOWN, Moment(), text)
        verdict = f"The log stops without an error at {doing}, which takes seconds where it works."
        because = "its last line announces that step; a log that was copied too early would look the same"
        return Claim(Authority.SILENCE, (event,), Confidence.LOW, because, verdict, (str(int(step)),))
    return None


def remedy(_seen: Seen, claim: Claim) -> Remedy:
    """Go by the step at which it stopped."""
    step = int(claim.detail[0])
    record = (
        "See where it hangs: py-spy dump --pid PID on each rank; nvidia-smi (100 % busy at low power means waiting)."
    )
    steps: tuple[str, ...]
    if step < Step.TOPOLOGY:
        steps = (
            "Suspect the start-up network: set NCCL_SOCKET_IFNAME to an interface that all nodes share; "
            "open the firewall.",
        )
    elif step < Step.COMPLETE:
        steps = (
            "Suspect the paths between the ranks: NCCL_P2P_DISABLE=1 once, then NCCL_IB_DISABLE=1 once, "
            "then NCCL_SHM_DISABLE=1 "
            "once; the first that runs names the path.",
        )
    else:
        steps = (
            "Suspect the data path: NCCL_P2P_DISABLE=1 once on one machine, NCCL_IB_DISABLE=1 once between machines.",
            "Or a rank that never calls the collective: compare the last line of every rank.",
        )
    return Remedy((*steps, record, "preflight check does these trials in minutes, with verified data."))


CAUSE = Cause(
    id=ID,
    promise="The program stopped moving and said nothing.",
    signs=(),
    judge=judge,
    remedy=remedy,
    needs="a stack of each rank while it hangs",
    confirm_with="preflight check",
)
