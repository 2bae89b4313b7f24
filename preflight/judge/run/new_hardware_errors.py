from __future__ import annotations

from preflight.errors import DispensableFact, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpu_test_results import gpu_results_of
from preflight.model.bound import JUDGMENT, Bound
from preflight.model.counters import KERNEL_LOG, NOT_KEPT, OF_PROCESS, XID, XIDS, CounterChange, CounterKind
from preflight.model.facts import Gap, known_or
from preflight.model.finding import Blame, Evidence, Severity, Unseen
from preflight.model.gap import NO_RIGHTS, NOT_OFFERED
from preflight.model.parts import part_of_gpu, part_of_port
from preflight.model.trial import Outcome
from preflight.model.xids import KILLED, XidMeaning, XidRow, row_of

# Corrected and repeated transfers: a healthy link has none for hours, so a rate this high is a bad cable, seat or row.
MOST_REPAIRED_PER_MINUTE = Bound(
    10.0, "repaired errors a minute",
    "healthy links and healthy memory also have a few errors, which they repair",
    JUDGMENT,
    "too low: healthy links cause warnings; too high: a link that wears out passes",
)  # fmt: skip
FIXES = {
    Blame.GPU: "read `nvidia-smi -q -d ECC,ROW_REMAPPER` and `dmesg | grep -i xid`. Drain the node and reset the GPU. "
    "If the error returns, replace the GPU",
    Blame.HOST: "find the slot in `lspci -vvv` (DevSta, LnkSta) and the BMC's log, then reseat the card and its riser "
    "or cable",
    Blame.FABRIC: "clean or replace the cable or transceiver of this port. `ibstat` and `mlxlink -d DEVICE -c -e` "
    "show its errors",
}
BY_MEANING = {
    XidMeaning.HARDWARE: Severity.FAIL,
    XidMeaning.REMAPPING: Severity.INFO,  # the counters of row remapping tell
    XidMeaning.APPLICATION: Severity.INFO,
    XidMeaning.RECOVERY: Severity.WARN,  # what the driver asks for is a counter of its own
    XidMeaning.REPORT: Severity.WARN,
}
# What rights and driver may keep back; the driver's recovery action and counters, which need neither, are read all the
# same. A driver that hangs at the request is none of these.
CLOSED = ("not permitted", "ermission", "not recorded", *NOT_OFFERED)


@run_check(
    "new-hardware-errors",
    blame=Blame.GPU,
    unseen=Unseen.ACCEPTANCE,
    reads=("hardware",),
    bounds=(MOST_REPAIRED_PER_MINUTE,),
)
def new_hardware_errors(case: Case) -> Findings:
    """The run added no uncorrectable error, hardware Xid or lost link, and at most a few repaired errors.

    Yields a FAIL for an uncorrectable error, a hardware Xid or a requested reset. Yields a WARN for errors that the GPU
    survived and for too many repaired errors. Yields an INFO for Xids that programs cause.

    Can't see: errors before and after the run, and counters that the driver, the kernel or a permission withholds.
    """
    # An example of an Xid that programs cause is 45, for a killed program. If this user may not read Xids or counters,
    # the node can still be accepted.
    hardware = gpu_results_of(case)
    if isinstance(hardware.counters, Gap):
        raise UnreadableFact(hardware.counters.reason)
    tells_remapping = any(each.name == "row_remap_failed" and isinstance(each.after, int) for each in hardware.counters)
    for change in hardware.counters:
        grown = known_or(change.grown, 0)
        judged = _judged(case, change, grown, hardware.counted_s, tells_remapping)
        if judged is None:
            continue
        severity, how_many = judged
        before, after = known_or(change.before, "?"), known_or(change.after, "?")
        yield new_hardware_errors.finding(
            severity,
            change.subject,
            f"{change.name.replace('_', ' ')}: {how_many}",
            FIXES[blame_of(change)] if severity is not Severity.INFO else "if this is the only error, repair nothing",
            Evidence(change.name, f"{before} before, {after} after", change.source),
            *_catalogued(change),
            blame=blame_of(change),
            parts=_part(case, change),
        )
    _must_be_read(hardware.counters)


def _must_be_read(counters: tuple[CounterChange, ...]) -> None:
    closed = []
    for change in counters:
        if isinstance(change.grown, Gap) and not change.grown.reason.startswith((*NOT_OFFERED, NOT_KEPT)):
            words = f"{change.subject} {change.name}: {change.grown.reason}"
            parts = change.grown.reason.split("; ")
            is_closed = change.source == KERNEL_LOG and all(any(sign in part for sign in CLOSED) for part in parts)
            if not is_closed and not change.grown.reason.startswith(NO_RIGHTS):
                raise UnreadableFact(words)
            closed.append(words)
    if closed:
        raise DispensableFact(closed[0])


def _judged(
    case: Case, change: CounterChange, grown: int, counted_s: float, tells_remapping: bool
) -> tuple[Severity, str] | None:
    """Return (severity, text) for a counter's increase, or None if the increase is not a problem."""
    if not grown or change.kind is CounterKind.TRAFFIC or change.name == XIDS:
        return None
    new = f"{grown} new during the run"
    row = _xid_of(change)
    if row is not None:
        if change.name == f"{XID}{KILLED}" and _killed_by_us(case):
            return None
        severity = BY_MEANING[row.meaning]
        if row.meaning is XidMeaning.REMAPPING and not tells_remapping:
            severity = Severity.WARN
        return severity, f"{new} ({row.words})"
    if change.kind is CounterKind.REPAIRED:
        minutes = max(1.0, counted_s / 60)
        if grown <= MOST_REPAIRED_PER_MINUTE.value * minutes:
            return None
        return Severity.WARN, f"{grown} new in {counted_s:.0f} s, above {MOST_REPAIRED_PER_MINUTE.value:.0f} a minute"
    return (Severity.FAIL if change.kind is CounterKind.FATAL else Severity.WARN), new


def _xid_of(change: CounterChange) -> XidRow | None:
    number, _, _ = change.name.removeprefix(XID).partition(OF_PROCESS)
    return row_of(int(number)) if change.name.startswith(XID) else None


def _catalogued(change: CounterChange) -> tuple[Evidence, ...]:
    row = _xid_of(change)
    if row is None:
        return ()
    recovery = f"from driver branch {row.recovery} on, see NVML's recovery action" if row.recovery else ""
    besides = "; ".join(filter(None, (row.where, recovery)))
    return (Evidence("meaning", row.words + (f" ({besides})" if besides else ""), row.source),)


def _killed_by_us(case: Case) -> bool:
    """Return whether preflight may have killed ranks because a trial failed.

    The driver writes an Xid for each killed rank.
    """
    failed = [each for each in case.trials if each.outcome not in (Outcome.OK, Outcome.SKIPPED, Outcome.NO_EFFECT)]
    reruns = () if case.control is None else case.control.reruns
    return bool(failed) or any(each.outcome is not Outcome.OK for each in reruns)


def _part(case: Case, change: CounterChange) -> tuple[str, ...]:
    """Return the permanent name of the GPU or RDMA port to which a counter belongs.

    The name is a tuple. The result is () if the name is unknown.
    """
    hca, _, port = change.subject.partition(":")
    if change.gpu < 0 and port.isdecimal():
        return part_of_port(case.nodes[0], hca, int(port))
    return part_of_gpu(case.nodes[0], change.gpu)


def blame_of(change: CounterChange) -> Blame:
    """Return the component to blame for an error: the GPU, the network (FABRIC), or the host for PCIe errors."""
    if change.name.startswith("aer") or change.name == "pcie_replays":
        return Blame.HOST
    return Blame.GPU if change.gpu >= 0 or change.source == KERNEL_LOG else Blame.FABRIC
