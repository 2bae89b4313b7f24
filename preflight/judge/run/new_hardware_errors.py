from __future__ import annotations

from preflight.errors import UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpu_test_results import gpu_results_of
from preflight.judge.gpus_of_node import NOT_OFFERED
from preflight.model.counters import KERNEL_LOG, NOT_KEPT, CounterChange, CounterKind
from preflight.model.facts import Gap, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen

# Corrected and repeated transfers: a healthy link has none for hours, so a rate this high is a bad cable, seat or row.
MOST_REPAIRED_PER_MINUTE = 10.0
FIXES = {
    Blame.GPU: "`nvidia-smi -q -d ECC,ROW_REMAPPER`, `dmesg | grep -i xid`; drain the node and reset the GPU; if it "
    "happens again, have it replaced",
    Blame.HOST: "reseat the card and its riser or cable; `lspci -vvv` (DevSta, LnkSta) and the BMC's log name the slot",
    Blame.FABRIC: "clean or replace the cable or transceiver of this port; `ibstat`, `mlxlink -d DEVICE -c -e`",
}


@run_check("new-hardware-errors", blame=Blame.GPU, unseen=Unseen.ACCEPTANCE, reads=("hardware",))
def new_hardware_errors(case: Case) -> Findings:
    """No uncorrectable error, Xid or lost link came up during the run, and repaired ones stayed rare.

    What a short test brings out, a long job dies of. Yields a FAIL for each new error that nothing repairs, a WARN for
    repaired ones above the rate.

    Can't see: errors before and after the run, and counters that the driver, the kernel or a permission keeps back.
    """
    hardware = gpu_results_of(case)
    if isinstance(hardware.counters, Gap):
        raise UnreadableFact(hardware.counters.reason)
    minutes = max(1.0, hardware.counted_s / 60)
    named_xids = any(each.name.startswith("xid_") and known_or(each.grown, 0) for each in hardware.counters)
    for change in hardware.counters:
        grown = known_or(change.grown, 0)
        if change.kind is CounterKind.FATAL and grown and not (change.name == "xids" and named_xids):
            severity, how_many = Severity.FAIL, f"{grown} new during the run"
        elif change.kind is CounterKind.REPAIRED and grown > MOST_REPAIRED_PER_MINUTE * minutes:
            severity = Severity.WARN
            how_many = f"{grown} new in {hardware.counted_s:.0f} s, above {MOST_REPAIRED_PER_MINUTE:.0f} a minute"
        else:
            continue
        before, after = known_or(change.before, "?"), known_or(change.after, "?")
        yield new_hardware_errors.finding(
            severity,
            change.subject,
            f"{change.name.replace('_', ' ')}: {how_many}",
            FIXES[blame_of(change)],
            Evidence(change.name, f"{before} before, {after} after", change.source),
            blame=blame_of(change),
        )
    for change in hardware.counters:
        if isinstance(change.grown, Gap) and not change.grown.reason.startswith((*NOT_OFFERED, NOT_KEPT)):
            raise UnreadableFact(f"{change.subject} {change.name}: {change.grown.reason}")


def blame_of(change: CounterChange) -> Blame:
    """Return who has to act: the GPU for its own errors and Xids, the fabric for a port's, the host for the bus'."""
    if change.name.startswith("aer") or change.name == "pcie_replays":
        return Blame.HOST
    return Blame.GPU if change.gpu >= 0 or change.source == KERNEL_LOG else Blame.FABRIC
