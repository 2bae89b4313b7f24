from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from preflight.errors import NotApplicable, NotRun, UnreadableFact
from preflight.judge.check import Case, Findings, run_check
from preflight.judge.gpus_of_node import is_chosen
from preflight.model.facts import Gap, HcaPort, known_or
from preflight.model.finding import Blame, Evidence, Finding, Severity, Unseen
from preflight.model.hca import PortState
from preflight.model.lookback import KernelHistory, TimedLine, flaps_in, interfaces_in, xids_in
from preflight.model.parts import part_of_port
from preflight.model.policy import Lookback
from preflight.model.xids import XidMeaning, row_of

# The others prove nothing afterwards.
BY_MEANING = {
    XidMeaning.HARDWARE: Severity.FAIL, XidMeaning.RECOVERY: Severity.WARN, XidMeaning.REPORT: Severity.WARN,
}  # fmt: skip
INFINIBAND = "InfiniBand"  # a RoCE port goes down with its interface
HOUR_S = 3600.0
KERNEL_LOG = "kernel log"


@run_check("lookback", blame=Blame.HOST, unseen=Unseen.ACCEPTANCE, reads=("nodes",))
def lookback(case: Case) -> Findings:
    """The kernel's records from before the run show no hardware Xid and no link that went down and came up again.

    Yields a FAIL for a hardware Xid of a chosen GPU, or for an interface whose link went down and came up. Yields a
    WARN for an unknown or unclear Xid, or for an InfiniBand port that lost its link.

    Can't see: events before the last boot, and links of adapters whose drivers log nothing about them.
    """
    # The [lookback] table of the policy sets how far back the records count. If the log does not reach far enough back,
    # the result is unknown.
    wanted = Lookback() if case.policy is None else case.policy.lookback
    if wanted == Lookback():
        raise NotApplicable("no policy says how far back to search for Xids and lost links")
    if case.before is None:
        raise NotRun("the kernel log from before the run was not read")
    if isinstance(case.before, Gap):
        raise UnreadableFact(case.before.reason)
    undecided: list[str] = []
    if wanted.xids is not None:
        yield from _xids(case, case.before, wanted.xids)
        undecided += _too_short(case.before, wanted.xids, "xids")
    if wanted.link_flaps is not None:
        yield from _links(case, case.before, wanted.link_flaps, undecided)
    if undecided:
        raise UnreadableFact("; ".join(undecided))


def _too_short(before: KernelHistory, window_s: float, name: str) -> Iterator[str]:
    if not before.is_whole(window_s):
        reach = _hours(before.now_s - before.begins_s)
        yield f"{name}: the kernel log reaches back {reach}, but the policy asks for {_hours(window_s)}"


def _xids(case: Case, before: KernelHistory, window_s: float) -> Iterator[Finding]:
    gpus = known_or(case.nodes[0].gpus, ())
    bdfs = {gpu.bdf.lower(): gpu.nvml_index for gpu in gpus if isinstance(gpu.bdf, str)}
    found: dict[tuple[str, int], list[TimedLine]] = defaultdict(list)
    for bus, number, line in xids_in(before.within(window_s)):
        index = next((index for bdf, index in bdfs.items() if bdf.startswith(bus)), None)
        if index is None or is_chosen(index, case):
            found[f"PCI {bus}" if index is None else f"GPU {index}", number].append(line)
    for (subject, number), lines in found.items():
        row = row_of(number)
        if row.meaning in BY_MEANING:
            yield lookback.finding(
                BY_MEANING[row.meaning],
                f"{case.nodes[0].host} {subject}",
                f"Xid {number} occurred {_times(len(lines))} {_ago(before, lines[-1])}: {row.words}",
                "read `nvidia-smi -q -d ECC,ROW_REMAPPER` and `dmesg -T | grep -i xid`, then do what NVIDIA's Xid "
                "catalog says",
                Evidence("Xid", lines[-1].text, KERNEL_LOG),
                Evidence("meaning", row.words, row.source),
                blame=Blame.GPU,
            )


def _links(case: Case, before: KernelHistory, window_s: float, undecided: list[str]) -> Iterator[Finding]:
    since_s = before.now_s - window_s
    flaps, logged = flaps_in(before.lines), interfaces_in(before.lines)
    for name, losses in before.losses:
        went = [line for line in flaps.get(name, ()) if line.at_s >= since_s]
        if went:
            yield _flapped(
                case, Severity.FAIL, name, f"the link of the port went down and came up again {_times(len(went))}",
                f"the last time {_ago(before, went[-1])}", Evidence("kernel message", went[-1].text, KERNEL_LOG),
            )  # fmt: skip
        elif isinstance(losses, Gap):
            undecided.append(f"link_flaps: {name}: {losses.reason}")
        elif losses and name not in logged:
            undecided.append(f"link_flaps: {name} has lost its link {_times(losses)}, but no line of the log says when")
        elif losses:
            undecided += _too_short(before, window_s, f"link_flaps: {name}")
    for port in known_or(case.nodes[0].hca_ports, ()):
        if port.link_layer == INFINIBAND and port.state is PortState.ACTIVE:
            yield from _port(case, port, since_s <= 0, undecided)


def _port(case: Case, port: HcaPort, is_since_boot: bool, undecided: list[str]) -> Iterator[Finding]:
    """Yield a finding for an InfiniBand port that has lost its link.

    The count has no time stamps. If the loss may have come before the policy's lookback, the port is added to
    `undecided` instead.
    """
    name = f"{port.hca}:{port.port}"
    if isinstance(port.counters, Gap):
        undecided.append(f"link_flaps: {name}: {port.counters.reason}")
        return
    losses = next((each.value for each in port.counters if each.name == "link_downed"), 0)
    if losses and not is_since_boot:
        undecided.append(f"link_flaps: {name} has lost its link {_times(losses)}, but the time is unknown")
    elif losses:
        source = f"/sys/class/infiniband/{port.hca}/ports/{port.port}/counters/link_downed"
        finding = _flapped(
            case, Severity.WARN, name, f"the port has lost its link {_times(losses)} since its counters were cleared",
            "and the node was booted within the time that the policy "
            "sets", Evidence("link_downed", str(losses), source),
        )  # fmt: skip
        yield replace(finding, parts=part_of_port(case.nodes[0], port.hca, port.port))


def _flapped(case: Case, severity: Severity, name: str, what: str, when: str, evidence: Evidence) -> Finding:
    fix = (
        "clean or replace the port's cable or transceiver, and check the switch port. `ethtool -S` and `mlxlink -d "
        "DEVICE -c -e` show its errors"
    )
    subject = f"{case.nodes[0].host} {name}"
    return lookback.finding(severity, subject, f"{what}, {when}", fix, evidence, blame=Blame.FABRIC)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _ago(before: KernelHistory, line: TimedLine) -> str:
    return f"{_hours(before.now_s - line.at_s)} ago"


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.1f} h"
