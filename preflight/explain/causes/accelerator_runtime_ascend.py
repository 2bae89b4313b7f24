"""The runtime of an Ascend NPU, or its collective library (HCCL), reports an error code."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, fill_in
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.explanation import Confidence

CODE = re.compile(r"\bE[A-Z]\d{4}\b")
PEER = re.compile(r"remote rank:? ?\[?(\d{1,6})|[Ww]aiting peer (?:rank|end): ?\[?(\d{1,6})|\brank (\d{1,6}) is late")
WAITED = "{who}{host} timed out waiting for another rank over HCCL{code}{peer}; the log of that rank has the cause."
FAILED = (
    "The Ascend runtime refused a call of {who}{host}{code}: the cause is a setting, the driver, or a leftover "
    "of an earlier run."
)
GROUP_SIGN = "ascend.group"
GROUP = "{who}{host} could not join the other ranks over HCCL{code}; the runtime's own log (plog) says why."
# hiascend.com, "HCCL Errors": what each code stands for, and the variable that bounds the wait.
LIMITS = {"EI0002": "HCCL_EXEC_TIMEOUT (1800 s by default)", "EI0006": "HCCL_CONNECT_TIMEOUT (120 s by default)"}
PLOG = (
    "grep -rn -m3 ERROR ~/ascend/log/debug/plog/ on every node, sorted by time. The rank with the earliest line is "
    "the cause. If ASCEND_PROCESS_LOG_PATH is set, it names the folder."
)


def judge(_evidence: LogEvidence, events: tuple[Event, ...]) -> Claim:
    """Return the conclusion that the Ascend runtime or HCCL failed, with the error code if `events` has one."""
    # The confidence is high if the rank itself failed. The confidence is medium for a timeout and for an error of all
    # ranks, because another rank may be the cause.
    code = next((match[0] for event in events if (match := CODE.search(event.text))), "")
    peers = (match for event in events if (match := PEER.search(event.text)))
    peer = next((f", rank {next(filter(None, match.groups()))}" for match in peers), "")
    verdict = WAITED if events[0].authority is Authority.TIMEOUT else GROUP if events[0].sign == GROUP_SIGN else FAILED
    verdict = fill_in(verdict, events).replace("{code}", f" ({code})" if code else "").replace("{peer}", peer)
    is_own = events[0].authority is not Authority.TIMEOUT and events[0].sign != GROUP_SIGN
    confidence = Confidence.HIGH if is_own else Confidence.MEDIUM
    return Claim(events[0].authority, events, confidence, "the runtime prints its own error", verdict)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the repair steps for an error of the Ascend runtime."""
    text = " ".join(event.text for event in claim.events[:20])
    code = next(iter(CODE.findall(text)), "")
    if claim.events[0].authority is Authority.TIMEOUT:
        limit = LIMITS.get(code, "HCCL_CONNECT_TIMEOUT or HCCL_EXEC_TIMEOUT")
        return Remedy(
            PLOG,
            "If no rank has an earlier error, compare the number of batches of all ranks. Then test the links of "
            "each NPU: hccn_tool -i 0 -link -g; hccn_tool -i 0 -net_health -g",
            f"If the ranks must wait so long: export {limit} with a larger value on all ranks.",
        )
    if code == "EJ0001":
        return Remedy(
            "End the processes that the last run left on this node (npu-smi info lists them), then wait 10 s.",
            PLOG,
        )
    return Remedy(
        PLOG,
        "Compare npu-smi info (driver and firmware) with the CANN and torch_npu versions of the image; "
        "ASCEND_RT_VISIBLE_DEVICES must name existing devices.",
        'The text after the error code names a solution; "Error codes" on hiascend.com has the same text.',
    )


CAUSE = Cause(
    promise="The program runs on Ascend NPUs, and the software below it reported an error.",
    signs=(
        Sign("ascend.setup", Authority.SETUP, "the Ascend runtime could not be set up",
             r"\bEJ0001\b|Failed to initialize the HCCP process|\bEI00(?:01|04|08|14|15|16|17)\b[: ]|"
             r"error code (?:is )?1070\d\d\b|rtSetDevice failed"),
        Sign(GROUP_SIGN, Authority.TRANSPORT, "a rank could not join the other ranks over HCCL",
             r"HcclCommInit\w{0,30} ?fail(?:ed|ure|s)?\b"),
        Sign("ascend.runtime", Authority.TRANSPORT, "the Ascend runtime reports an error",
             r"\bE[EHZ]\d{4}: |\bEI00(?:03|07|09|10|11|12|18)\b[: ]"),
        Sign("ascend.wait", Authority.TIMEOUT, "a rank timed out waiting for another one over HCCL",
             r"\bEI0002\b|\bEI0006\b|Getting socket times out|wait socket establish timeout|notify wait timeout|"
             r"The wait execution of the Notify register times out|HcclGetRootInfo[^\n]{0,60}timeout|"
             r"\[Wait\]\[\w{1,30}\][^\n]{0,60}timeout"),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the plog of the rank that failed first has an error",
    confirm_with="grep -rn -m3 ERROR ~/ascend/log/debug/plog/   # on every node; the earliest line is the cause",
    outranks=("watchdog_timeout_straggler", "store_wait_timeout", "remote_peer_died"),
)  # fmt: skip
