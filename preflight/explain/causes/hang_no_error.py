"""The log stops without any error."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign
from preflight.explain.event import UNKNOWN, Authority, Event, Moment
from preflight.explain.job_progress import NCCL_STEPS
from preflight.explain.log_evidence import LogEvidence
from preflight.explain.nccl_start import StartStep
from preflight.explain.work_steps import shows_work
from preflight.model.explanation import Confidence
from preflight.model.job_phases import Phase

ID = "hang_no_error"
NEAR_END = 40  # lines after NCCL's last one: a log that has more went on
AT_END = 3  # lines
SOME = 2  # processes: of a single one the log may simply hold no more
TOGETHER, FIRST = "the rendezvous of its processes", "the first collective"
# What a last line announces, and how far the job had got.
ANNOUNCED: tuple[tuple[re.Pattern[str], str, StartStep], ...] = (
    (re.compile(r"[Ii]nitializing (?:ddp|distributed): GLOBAL_RANK"), TOGETHER, StartStep.BOOTSTRAP),
    (re.compile(r"Init torch distributed begin|> initializing torch distributed"), TOGETHER, StartStep.BOOTSTRAP),
    (re.compile(r"\bInitializing TorchBackend in DeepSpeed|distributed init \(rank \d"), TOGETHER, StartStep.BOOTSTRAP),
    (re.compile(r"^[^#\n]{0,40}# {1,16}\(B\) {1,16}\(elements\)"), FIRST, StartStep.COMPLETE),
    (re.compile(r"vLLM is using nccl=="), FIRST, StartStep.COMPLETE),
    (re.compile(r"NCCL INFO Launch mode "), FIRST, StartStep.COMPLETE),
    (re.compile(r"^[^#\n]{0,40}# {1,4}Rank +\d{1,5} (?:Group|Pid) .{0,120}device +\d"), FIRST, StartStep.COMPLETE),
)
CUT = re.compile(r"[\s\[(]{0,9}[IWE]?[\d\s:.,TZ/-]{4,60}\]?\s{0,9}")  # no more than the prefix of a line
# py-spy's lines: a frame, the head of a thread or a process, a local variable; the last line may be cut.
OF_A_STACK = re.compile(r"\s*$|[ \t]{2,}\S|Thread \S|Process \d|Python v\d")
STACK = "stack"  # in a claim's detail, in the place of the step of NCCL's start-up
FEW = 4  # collectives; more of them mean that data did flow


def judge(evidence: LogEvidence, _events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that the job hung without an error.

    Return None if the log shows a failure, an exception, a success or progress, or if nothing shows a wait.
    """
    # The evidence is a stack or a last line that shows a wait, or a log that ends during NCCL's start or first
    # collectives.
    if evidence.failures() or evidence.exceptions or evidence.successes() or evidence.has("context.progress"):
        return None
    if (waiting := _stack_waits(evidence) or _last_words(evidence) or _engine_waits(evidence)) is not None:
        return waiting
    starts = evidence.starts
    if len(starts.steps) < SOME or evidence.phase(Phase.TRAINING) is not None:
        return None
    if len(starts.unfinished()) == len(starts.steps):
        step = max(starts.steps.values())
    elif not starts.unfinished() and 0 < max(starts.collectives.values()) <= FEW:
        step = StartStep.COLLECTIVE
    else:
        return None
    source, text, line = max(starts.last_line.values(), key=lambda last: (last[0], last[2]))
    if evidence.sources[source].lines - line > NEAR_END:
        return None
    event = Event("hang.last", ID, Authority.SILENCE, source, line, 0, UNKNOWN, UNKNOWN, Moment(), text.strip()[:400])
    done, next_ = NCCL_STEPS[step]
    verdict = f"The log stops without an error: a process {done} and then waited for {next_}."
    because = (
        f"none of {len(starts.steps)} processes made further progress (a log that was copied too early looks the same)"
    )
    return Claim(Authority.SILENCE, (event,), Confidence.LOW, because, verdict, (str(int(step)),))


def _stack_waits(evidence: LogEvidence) -> Claim | None:
    """Return this cause if a printed stack trace shows a process that waits for another process; else None."""
    frames = [event for event in evidence.of("hang.stack") if _ends_the_log(event, evidence)]
    if not frames:
        return None
    frame = frames[0].match.strip()
    verdict = f"A stack in the log waits for another process, in {frame}. A rank that is in no such call is late."
    because = "a stack shows only one moment"
    return Claim(Authority.SILENCE, tuple(frames[:1]), Confidence.LOW, because, verdict, (STACK,))


def _ends_the_log(event: Event, evidence: LogEvidence) -> bool:
    """Return whether only lines of stack traces follow the event in the log.

    Other lines would show that the job goes on, or ends in another way.
    """
    source = evidence.sources[event.source]
    after = source.lines - event.line
    return after <= len(source.tail) and (not after or all(map(OF_A_STACK.match, list(source.tail)[-after:])))


def _last_words(evidence: LogEvidence) -> Claim | None:
    """Return this cause if the last line announces a step that a healthy log completes within seconds; else None."""
    for number, source in enumerate(evidence.sources):
        whole = source.tail[:-1] if source.tail and CUT.fullmatch(source.tail[-1]) else source.tail
        found = next((step for step in ANNOUNCED if whole and step[0].search(whole[-1])), None)
        if found is None or shows_work(source.tail):
            continue
        _, doing, step = found
        text = whole[-1].strip()[:400]
        event = Event("hang.last", ID, Authority.SILENCE, number, source.lines, 0, UNKNOWN, UNKNOWN, Moment(), text)
        verdict = f"The log stops without an error. The last step is {doing}, which normally takes seconds."
        because = "the last line announces that step (a log that was copied too early looks the same)"
        return Claim(Authority.SILENCE, (event,), Confidence.LOW, because, verdict, (str(int(step)),))
    return None


def _engine_waits(evidence: LogEvidence) -> Claim | None:
    """Return this cause if an engine reports, up to the end of the log, that its workers do not answer; else None."""
    waits = evidence.of("hang.engine")
    if len(waits) < SOME or evidence.sources[waits[-1].source].lines - waits[-1].line > AT_END:
        return None
    verdict = "The engine's workers stopped answering without an error. They hang in a collective or a kernel."
    because = "the engine reports this until the log ends (at first, a long compilation or download looks the same)"
    return Claim(Authority.SILENCE, waits, Confidence.LOW, because, verdict, (str(int(StartStep.COLLECTIVE)),))


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for a hang without an error.

    The steps depend on the step of NCCL's start at which the log stopped.
    """
    if claim.detail[0] == STACK:
        return Remedy(
            "Run `py-spy dump --pid PID` on every rank, or `preflight stuck` on every node. The cause is on the rank "
            "that is not in this call.",
            "If all ranks are in this call, the path between them is likely at fault. `preflight check` tests this "
            "path.",
        )
    step = int(claim.detail[0])
    record = (
        "To see where it hangs, run `py-spy dump --pid PID` on each rank. In nvidia-smi, 100% busy at low power "
        "means waiting."
    )
    steps: tuple[str, ...]
    if step < StartStep.TOPOLOGY:
        steps = (
            "The network of the start-up is likely at fault. Set NCCL_SOCKET_IFNAME to an interface that all nodes "
            "share, and open the firewall.",
        )
    elif step < StartStep.COMPLETE:
        steps = (
            "Test the paths between the ranks, one variable per run: NCCL_P2P_DISABLE=1, NCCL_IB_DISABLE=1, "
            "NCCL_SHM_DISABLE=1. The first variable that works names the path at fault.",
        )
    else:
        steps = (
            "Test the data path: run once with NCCL_P2P_DISABLE=1 (one machine) or NCCL_IB_DISABLE=1 (several "
            "machines).",
            "Compare the last line of every rank, because one rank may never call the collective.",
        )
    return Remedy(*steps, record, "`preflight check` makes such trials in minutes, and verifies the data.")


CAUSE = Cause(
    promise="The program stopped making progress and printed no error.",
    signs=(
        Sign("hang.engine", Authority.SILENCE, "the engine's workers do not answer",
             r"No available shared memory broadcast block found|[Mm]ay be stuck\. Expected \d{1,6} threads"),
        # As py-spy prints it; the innermost call comes first.
        Sign("hang.stack", Authority.SILENCE, "a stack that was printed: a call that waits for another process",
             r"^[ \t]{2,12}(?:nccl[A-Z]\w{2,40} \([\w./<>-]{1,120}|"
             r"(?:i?recv|recv_object|(?:recv|send)_tensor_dict|all_reduce|all_gather\w{0,20}|reduce_scatter\w{0,20}|"
             r"all_to_all\w{0,20}|broadcast\w{0,20}|(?:monitored_)?barrier) "
             r"\([\w./<>-]{0,80}(?:distributed|parallel_state|nccl)[\w./<>-]{0,40})\.py:\d{1,6}\)"),
    ),
    judge=judge,
    remedy=remedy,
    infers=True,
    confirmed_if="the stack of a rank shows where it waits while it hangs",
    confirm_with="preflight check",
)  # fmt: skip
