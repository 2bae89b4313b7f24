"""The page's tables as plain records: what was tried, each rank's time, checks, facts and durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from preflight.model.codec import GAPS, encode
from preflight.model.facts import Gap, Netif, NodeFacts
from preflight.model.finding import Severity
from preflight.model.report import Report
from preflight.model.trial import DEFAULT, Outcome, TrialResult
from preflight.model.units import percent_text, rate_text, size_text, time_text
from preflight.plan.duel import decision_results
from preflight.render.gpus import HEADERS as GPU_HEADERS
from preflight.render.gpus import gpu_models, gpu_oddities, gpu_row
from preflight.render.node import grouped_gaps, host_items, software_items
from preflight.render.reasons import deciding, line
from preflight.render.speeds import baseline_rows
from preflight.render.topology import NIC_HEADERS, nic_rows

UNKNOWN = "?"
NOT_TIMED = "-"
BAR_PX = 160
SLOW = 1.2  # from here on a rank's bar is coloured: judge/run/straggler.py decides, this only draws the eye
ENDS = {
    Outcome.OK: "good", Outcome.HANG: "bad", Outcome.CRASH: "bad", Outcome.WRONG_DATA: "bad",
    Outcome.INIT_ERROR: "bad", Outcome.NO_EFFECT: "dim", Outcome.SKIPPED: "dim",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """A table with one header row; the first cell of each row is its header, columns in `numbers` hold figures."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Tried:
    """What a trial did."""

    candidate: str
    reason: str
    outcome: str
    tone: str
    sets: tuple[str, ...]
    transport: str
    speeds: tuple[str, ...]
    data: str
    problem: str
    took: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A named amount drawn as a bar."""

    name: str
    value: str
    width_px: float
    tone: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars that belong together."""

    caption: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one check."""

    name: str
    blame: str
    end: str
    tone: str
    told: str


def tried(report: Report) -> tuple[Tried, ...]:
    """Return what was tried and what it did, in the order of the run."""
    return tuple(_tried(trial, report.backend) for trial in report.trials)


def _tried(trial: TrialResult, backend: str) -> Tried:
    results = decision_results(trial.results, cpu_path=backend == "gloo")
    speeds: dict[str, list[str]] = {}
    for each in results:
        rate = UNKNOWN if isinstance(each.busbw_gb_s, Gap) else rate_text(each.busbw_gb_s)
        speeds.setdefault(each.collective.value, []).append(f"{rate} at {size_text(each.size_bytes)}")
    wrong = sum(each.wrong_elements for each in trial.results)
    all_right = bool(trial.results) and all(each.verified for each in trial.results)
    data = "verified" if all_right else f"wrong ({wrong} elements)" if trial.results else NOT_TIMED
    sets = (*(f"{name}={value}" for name, value in trial.env), *(f"unset {name}" for name in trial.unset))
    return Tried(
        candidate=trial.candidate, reason=trial.reason, outcome=trial.outcome.value.replace("_", " "),
        tone=ENDS[trial.outcome], sets=sets, transport=", ".join(trial.transport),
        speeds=tuple(f"{name}: {', '.join(rates)}" for name, rates in speeds.items()), data=data,
        problem=trial.problem, took=f"{trial.duration_s:.1f} s",
    )  # fmt: skip


def comparisons(report: Report) -> Table | None:
    """Return what the fresh, alternated measurements against the default said."""
    rows = tuple(
        (each.candidate, "yes" if each.wins else "no", percent_text(each.mean_gain), percent_text(each.lower_bound),
         percent_text(each.worst_gain), str(each.rounds))
        for each in report.comparisons
    )  # fmt: skip
    headers = ("candidate", "clearly faster", "mean gain", "99 % bound", "worst size", "rounds")
    return Table("Measured afresh against the default", headers, rows, frozenset({2, 3, 4, 5})) if rows else None


def beside_baseline(report: Report) -> Table | None:
    """Return every repetition beside what known-good nodes reach."""
    headers = ("collective", "sizes", "share of good nodes, each time", "mean", "floor", "result")
    rows = baseline_rows(report)
    return Table("This node beside known-good ones", headers, rows, frozenset({3, 4})) if rows else None


def rank_times(report: Report) -> tuple[Bars, ...]:
    """Return each rank's own time at the largest size of each collective that decides, for the default or the first."""
    measured = [trial for trial in report.trials if any(each.ranks for each in trial.results)]
    trial = next((each for each in measured if each.candidate == DEFAULT), measured[0] if measured else None)
    if trial is None:
        return ()
    largest = {each.collective: each for each in decision_results(trial.results, cpu_path=report.backend == "gloo")}
    return tuple(
        Bars(f"{each.collective.value}, {size_text(each.size_bytes)}, candidate {trial.candidate}",
             _rank_bars([(rank.rank, rank.own_us, rank.slowdown) for rank in each.ranks]))
        for each in largest.values() if each.ranks
    )  # fmt: skip


def _rank_bars(ranks: Sequence[tuple[int, float, float]]) -> tuple[Bar, ...]:
    longest = max(own_us for _, own_us, _ in ranks)
    return tuple(
        Bar(f"rank {rank}", time_text(max(0.0, own_us)), _width(own_us, longest), _tone(slowdown),
            f"{slowdown:.2f}")
        for rank, own_us, slowdown in ranks
    )  # fmt: skip


def durations(report: Report) -> Bars:
    """Return how long each part took."""
    parts = [(name, seconds) for name, seconds in report.durations_s if name != "total"]
    total = next((seconds for name, seconds in report.durations_s if name == "total"), None)
    longest = max((seconds for _, seconds in parts), default=0.0)
    bars = tuple(Bar(name, f"{seconds:.1f} s", _width(seconds, longest), "plain") for name, seconds in parts)
    return Bars("" if total is None else f"{total:.1f} s in all", bars)


def _tone(slowdown: float) -> str:
    return "bad" if slowdown >= SLOW else "plain"


def _width(value: float, largest: float) -> float:
    return round(BAR_PX * max(0.0, value) / largest, 1) if largest > 0 else 0.0


def checked(report: Report) -> tuple[Checked, ...]:
    """Return every check with what came of it, those that need a look first."""
    made = []
    against = deciding(report)
    for check in report.checks:
        found = [each for each in report.findings if each.check == check.check]
        skipped = [each for each in report.skipped_checks if each.check == check.check]
        worst = next((s for s in Severity if any(each.severity is s for each in found)), None)
        if any(each in against for each in found) or worst is Severity.FAIL:
            end, tone = "failed", "bad"
        elif any(each.crashed for each in skipped):
            end, tone = "defect", "bad"
        elif skipped:
            end, tone = "could not look", "dim"
        elif worst is not None:
            end, tone = {Severity.WARN: "warned"}.get(worst, "noted"), "warn" if worst is Severity.WARN else "dim"
        else:
            end, tone = "passed", "good"
        told = "; ".join(each.problem for each in found) or "; ".join(each.reason for each in skipped) or check.promise
        made.append(Checked(check.check, check.blame.value, end, tone, told))
    order = ("failed", "defect", "warned", "could not look", "noted", "passed")
    return tuple(sorted(made, key=lambda each: order.index(each.end)))


def fact_tables(node: NodeFacts) -> tuple[Table, ...]:
    """Return the node's GPUs, adapters and interfaces as tables; what is known of none is left out."""
    tables = []
    if isinstance(node.gpus, tuple) and node.gpus:
        rows = [(*gpu_row(gpu)[:-1], ", ".join(gpu_oddities(gpu)) or gpu_row(gpu)[-1]) for gpu in node.gpus]
        tables.append(_known(Table("GPUs", GPU_HEADERS, tuple(rows), frozenset({2, 3, 6}))))
    if isinstance(node.nics, tuple) and node.nics:
        ports = () if isinstance(node.hca_ports, Gap) else node.hca_ports
        cells = [row for nic in node.nics for row in nic_rows(nic, [port for port in ports if port.hca == nic.name])]
        tables.append(_known(Table("RDMA adapters", NIC_HEADERS, tuple(map(tuple, cells)), frozenset({2, 4, 5}))))
    if isinstance(node.netifs, tuple) and node.netifs:
        headers = ("interface", "kind", "state", "MTU", "Gbit/s", "NUMA", "addresses")
        rows_of = tuple(_netif(each) for each in node.netifs)
        tables.append(_known(Table("Network interfaces", headers, rows_of, frozenset({3, 4, 5}))))
    return tuple(tables)


def _netif(netif: Netif) -> tuple[str, ...]:
    state = "down" if not netif.is_up else "no link" if netif.has_carrier is False else "up"
    speed = UNKNOWN if isinstance(netif.speed_mbit_s, Gap) else f"{netif.speed_mbit_s / 1000:g}"
    addresses = UNKNOWN if isinstance(netif.addresses, Gap) else ", ".join(netif.addresses)
    return netif.name, netif.kind.value, state, _text(netif.mtu), speed, _text(netif.numa_node), addresses


def _known(table: Table) -> Table:
    kept = [i for i in range(len(table.headers)) if i == 0 or any(row[i] != UNKNOWN for row in table.rows)]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    numbers = frozenset(place for place, i in enumerate(kept) if i in table.numbers)
    return Table(table.caption, tuple(table.headers[i] for i in kept), rows, numbers)


def fact_items(node: NodeFacts) -> tuple[tuple[str, str], ...]:
    """Return what there is once per node."""
    items = [*host_items(node), *software_items(node)]
    items += gpu_models(node.gpus) if isinstance(node.gpus, tuple) else []
    if isinstance(node.environment, tuple):
        items += [(f"inherited {line(each.name)}", each.value) for each in node.environment]
    if isinstance(node.nccl_conf, tuple):
        items += [(f"{line(each.file)}", f"{each.name}={each.value}") for each in node.nccl_conf]
    if isinstance(node.xid_lines, tuple):
        items += [("Xid", each) for each in node.xid_lines[-5:]]
    return tuple(items)


def unread(node: NodeFacts) -> tuple[tuple[str, str], ...]:
    """Return what could not be read, one entry for all facts that lack for the same reason."""
    return tuple(grouped_gaps([(gap["fact"], gap["reason"]) for gap in encode(node)[GAPS]]))


def _text(value: object) -> str:
    return UNKNOWN if isinstance(value, Gap) else str(value)
