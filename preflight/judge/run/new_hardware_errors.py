"""Errors that the hardware counted while preflight used it: what a short test brings out, a long job dies of."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.errors import UnreadableFact
from preflight.judge.check import Case, RunCheck
from preflight.judge.chosen import NOT_OFFERED
from preflight.judge.run.below_nccl import hardware_of
from preflight.model.counters import KERNEL_LOG, NOT_KEPT, CounterChange, CounterKind
from preflight.model.facts import Gap
from preflight.model.finding import Blame, Evidence, Finding, Severity

# Corrected and repeated transfers: a healthy link has none for hours, so a rate this high is a bad cable, seat or row.
MOST_REPAIRED_PER_MINUTE = 10.0
FIXES = {
    Blame.GPU: "`nvidia-smi -q -d ECC,ROW_REMAPPER`, `dmesg | grep -i xid`; drain the node and reset the GPU; if it "
    "happens again, have it replaced",
    Blame.HOST: "reseat the card and its riser or cable; `lspci -vvv` (DevSta, LnkSta) and the BMC's log name the slot",
    Blame.FABRIC: "clean or replace the cable or transceiver of this port; `ibstat`, `mlxlink -d DEVICE -c -e`",
}


def judge(case: Case) -> Iterator[Finding]:
    """Yield a FAIL for each new error that nothing repairs, a WARN for repaired ones above the rate."""
    hardware = hardware_of(case)
    if hardware is None:
        return
    if isinstance(hardware.counters, Gap):
        raise UnreadableFact(hardware.counters.reason)
    minutes = max(1.0, hardware.counted_s / 60)
    named_xids = any(each.name.startswith("xid_") and _grown(each) for each in hardware.counters)
    for change in hardware.counters:
        grown = _grown(change)
        if change.kind is CounterKind.FATAL and grown and not (change.name == "xids" and named_xids):
            yield _finding(change, Severity.FAIL, f"{grown} new during the run")
        elif change.kind is CounterKind.REPAIRED and grown > MOST_REPAIRED_PER_MINUTE * minutes:
            told = f"{grown} new in {hardware.counted_s:.0f} s, above {MOST_REPAIRED_PER_MINUTE:.0f} a minute"
            yield _finding(change, Severity.WARN, told)
    unread = [each for each in hardware.counters if isinstance(each.grown, Gap) and not _is_no_fault(each.grown)]
    if unread:
        raise UnreadableFact(f"{unread[0].subject} {unread[0].name}: {_reason(unread[0])}")


def _grown(change: CounterChange) -> int:
    return 0 if isinstance(change.grown, Gap) else change.grown


def _reason(change: CounterChange) -> str:
    return change.grown.reason if isinstance(change.grown, Gap) else ""


def _is_no_fault(gap: Gap) -> bool:
    return gap.reason.startswith((*NOT_OFFERED, NOT_KEPT))


def _finding(change: CounterChange, severity: Severity, told: str) -> Finding:
    blame = blame_of(change)
    return Finding(
        check=CHECK.name,
        blame=blame,
        severity=severity,
        subject=change.subject,
        problem=f"{change.name.replace('_', ' ')}: {told}",
        fix=FIXES[blame],
        evidence=(
            Evidence(change.name, f"{_shown(change.before)} before, {_shown(change.after)} after", change.source),
        ),
    )


def blame_of(change: CounterChange) -> Blame:
    """Return who has to act: the GPU for its own errors and Xids, the fabric for a port's, the host for the bus'."""
    if change.name.startswith("aer") or change.name == "pcie_replays":
        return Blame.HOST
    return Blame.GPU if change.gpu >= 0 or change.source == KERNEL_LOG else Blame.FABRIC


def _shown(value: int | Gap) -> str:
    return "?" if isinstance(value, Gap) else str(value)


CHECK = RunCheck(
    name="new-hardware-errors",
    promise="no uncorrectable error, Xid or lost link came up during the run, and repaired ones stayed rare",
    blame=Blame.GPU,
    reads=("hardware",),
    blind_to="errors before and after the run, and counters that the driver, the kernel or a permission keeps back",
    judge=judge,
)
