"""NCCL's own diagnostics report that ranks run with different NCCL variables."""

from __future__ import annotations

import re

from preflight.explain.cause import Cause, Claim, Remedy, Sign, by_nccl
from preflight.explain.event import Authority, Event
from preflight.explain.log_evidence import LogEvidence
from preflight.model.nccl_diagnostics import VARIABLE_DIFFERS, printed

VALUE = re.compile(r"NCCL environment: (NCCL_\w{1,60})=([^\n]{0,200}) on rank\(s\) ([\d,\-{}. ]{1,200})")
VERDICT = "Ranks run with different values of {name}: {values}."
# These may differ: what is printed and where to, and names of the node's own cards, interfaces and files.
MAY_DIFFER = re.compile(r"NCCL_(?:DEBUG|\w{0,40}_?FILE$|\w{0,20}IFNAME$|IB_HCA$|HOSTID$|RAS_|PROFILER|NET_PLUGIN$)")
SHOWN = 3


def judge(evidence: LogEvidence, events: tuple[Event, ...]) -> Claim | None:
    """Return the conclusion that an NCCL variable differs between ranks.

    Return None if no variable that should be equal differs, or if no rank timed out.
    """
    # The conclusion names the first variable that should be equal.
    found = [(match, event) for event in events if (match := VALUE.search(event.text))]
    found = [(match, event) for match, event in found if not MAY_DIFFER.match(match[1])]
    if not found:
        return None
    name = found[0][0][1]
    of_it = [(match, event) for match, event in found if match[1] == name]
    values = ", ".join(f"{match[2]} on ranks {match[3].strip()}" for match, _ in of_it[:SHOWN])
    verdict = VERDICT.replace("{name}", name).replace("{values}", values)
    return by_nccl(evidence, tuple(event for _, event in of_it), verdict)


def remedy(_evidence: LogEvidence, claim: Claim) -> Remedy:
    """Return the steps that give a variable the same value on all ranks."""
    match = VALUE.search(claim.events[0].text)
    name = match[1] if match else "NCCL_..."
    return Remedy(
        f"Give every rank the same value, or none: `env | grep {name}; grep {name} /etc/nccl.conf ~/.nccl.conf` on "
        "a node of each group shows where the value comes from.",
        f"If the job does not need the variable, unset {name} on all nodes, and let NCCL choose.",
    )


CAUSE = Cause(
    promise="All processes should run with the same NCCL settings. Here a setting has different values in some "
    "processes.",
    signs=(
        Sign("variables.diagnosed", Authority.SILENCE, "NCCL's own diagnostics list a variable that differs",
             printed(VARIABLE_DIFFERS)),
    ),
    judge=judge,
    remedy=remedy,
    confirmed_if="the job runs with one value on all ranks",
    confirm_with="export NCCL_RUN_RAS_DIAGNOSTICS=1   # the log's line `NCCL environment` then says consistent",
    outranks=("watchdog_timeout_straggler", "hang_no_error"),
)  # fmt: skip
