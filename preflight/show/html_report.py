"""The HTML page of a report: readable on a phone, in dark mode, in print and with a screen reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from preflight.model.facts import Gap, Netif, NodeFacts
from preflight.model.finding import CheckOutcome, RanCheck, Severity
from preflight.model.report import NodeVerdict, Report, Verdict
from preflight.model.transport import texts_of
from preflight.model.trial import DEFAULT, CollectiveResult, Outcome, TrialResult
from preflight.model.units import capitalized, counted, percent_text, rate_text, size_text, time_text
from preflight.show.checks_and_findings import counts_text, outcome_word
from preflight.show.document import Table, right, table
from preflight.show.gpus import gpu_models, gpu_table
from preflight.show.html_chart import charts
from preflight.show.html_matrix import chosen_gpus, p2p_matrix, path_matrix
from preflight.show.html_writer import html_page
from preflight.show.probe_page import host_items, netif_state, software_items, speed_gbit, unread
from preflight.show.settings import evidence_of, export
from preflight.show.speeds import baseline_table, judge_text
from preflight.show.text import fact_text, line, rfc3339
from preflight.show.topology import nic_table
from preflight.show.trials import deciding_results
from preflight.show.verdict import (
    WORDS,
    answer,
    by_weight,
    deciding,
    hosts,
    is_bad,
    is_good,
    reasons,
    sentence,
    unfinished,
    waivers,
)

NOT_TIMED = "-"
BAR_PX = 160
SLOW = 1.2  # from here on a rank's bar is coloured: judge/run/straggler.py decides, this only draws the eye
NEWEST_XIDS = 5
ENDS = {
    Outcome.OK: "good", Outcome.HANG: "bad", Outcome.CRASH: "bad", Outcome.WRONG_DATA: "bad",
    Outcome.INIT_ERROR: "bad", Outcome.NO_EFFECT: "dim", Outcome.SKIPPED: "dim",
}  # fmt: skip
# How a check's result is shown and coloured, those that need a look first.
RESULTS = {
    "failed": "bad", "defect": "bad", "warned": "warn", "inconclusive": "dim", "not run": "dim", "noted": "dim",
    "not applicable": "dim", "passed": "good",
}  # fmt: skip
QUIET = ("passed", "not applicable")  # these are folded
COMPARISON_HEADERS = (
    "candidate", "clearly faster", right("mean gain"), right("99% bound"), right("worst size"), right("rounds"),
)  # fmt: skip
NETIF_HEADERS = ("interface", "kind", "state", right("MTU"), right("Gbit/s"), right("NUMA"), "addresses")


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart: a name, a value as text, and the bar's width."""

    name: str
    value: str
    width_px: float
    tone: str = "plain"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart with several bars and one caption."""

    caption: str
    bars: tuple[Bar, ...]


def render_html(report: Report) -> str:
    """Return the HTML page of a report."""
    checked = _checked(report)
    return html_page(
        "report.html",
        report=report,
        tone=_tone(report),
        is_good=is_good(report),
        answer=answer(report),
        for_job=WORDS[report.verdict][0].lower(),
        headline=_headline(report),
        when=_when(report),
        hosts=hosts(report),
        reasons=_why(report),
        unfinished=unfinished(report),
        waivers=waivers(report),
        speed_judges=[judge_text(each) for each in report.judged_by],
        beside=baseline_table(report, "share of good nodes, each time", "result"),
        findings=by_weight(report),
        settings=_settings(report),
        tried=[(trial, ENDS[trial.outcome], *_did(trial, report)) for trial in report.trials],
        ended=_ended(report),
        comparisons=_comparisons(report),
        charts=[(chart, Markup(chart.svg)) for chart in charts(report)],
        ranks=_rank_times(report),
        slowest=_slowest(report),
        nodes=[_node(report, node) for node in report.nodes],
        checked=[each for each in checked if each[1] not in QUIET],
        inapplicable=[each for each in checked if each[1] == "not applicable"],
        counts=counts_text(report.checks, report.findings),
        passed=[each for each in checked if each[1] == "passed"],
        tones=RESULTS,
        durations=_durations(report),
        expected=report.expected,
    )


def _tone(report: Report) -> str:
    """Return the color of the verdict; a job that needs settings gets "warn" instead of "good"."""
    if is_bad(report):
        return "bad"
    if not is_good(report):
        return "unknown"
    return "warn" if report.node_verdict is not NodeVerdict.ACCEPT and report.verdict is not Verdict.READY else "good"


def _headline(report: Report) -> str:
    """Return the headline as a sentence, without the verdict that the page shows above the headline."""
    text = sentence(report)
    return capitalized(text) if is_good(report) else text  # else it begins with a name


def _why(report: Report) -> tuple[str, ...]:
    """Return the reasons for a verdict that is not good.

    Return () if the verdict is good, or if the headline already has the only reason.
    """
    why = () if is_good(report) else reasons(report)
    return () if len(why) == 1 and why[0].partition(" [")[0] in sentence(report) else why


def _when(report: Report) -> str:
    at = rfc3339(report.created_at)
    return f"{datetime.fromisoformat(at.replace('Z', '+00:00')):%Y-%m-%d %H:%M} UTC" if at else line(report.created_at)


def _settings(report: Report) -> list[tuple[str, str]]:
    """Return (command, evidence) for each command of the `.env` file.

    If the exit code is not 0, the result is empty.
    """
    advice = report.advice
    if report.exit_code != 0:
        return []
    lines = [(export(name, value), "the GPUs that were tried") for name, value in advice.gpu_env]
    commands = [(export(name, value), name) for name, value in advice.env]
    commands += [(f"unset {name}", name) for name in advice.unset if name not in dict(advice.env)]
    return lines + [(command, "; ".join(evidence_of(advice, name))) for command, name in commands]


def _did(trial: TrialResult, report: Report) -> tuple[list[str], str, str]:
    """Return three results of a trial as text: the speeds, the transport, and whether the data were verified."""
    speeds: dict[str, list[str]] = {}
    for each in deciding_results(trial, report):
        rate = f"{fact_text(each.shown_gb_s, rate_text)} at {size_text(each.size_bytes)}"
        speeds.setdefault(each.collective.value, []).append(rate)
    wrong = sum(each.wrong_elements for each in trial.results)
    all_right = bool(trial.results) and all(each.verified for each in trial.results)
    data = "verified" if all_right else f"wrong ({wrong} elements)" if trial.results else NOT_TIMED
    return [f"{name}: {', '.join(rates)}" for name, rates in speeds.items()], ", ".join(texts_of(trial.transport)), data


def _ended(report: Report) -> str:
    """Return a count of the trials by outcome."""
    counts = Counter(trial.outcome.value.replace("_", " ") for trial in report.trials)
    return f"{counted(len(report.trials), 'trial')}: {', '.join(f'{count} {name}' for name, count in counts.items())}"


def _comparisons(report: Report) -> Table:
    """Return the table of the comparisons with the default settings."""
    rows = [
        (each.candidate, "yes" if each.wins else "no", percent_text(each.mean_gain), percent_text(each.lower_bound),
         percent_text(each.worst_gain), str(each.rounds))
        for each in report.comparisons
    ]  # fmt: skip
    return table(COMPARISON_HEADERS, rows, "Compared with the default settings")


def _slowest(report: Report) -> str:
    """Return a sentence that names the slowest rank, or says that no rank is slow."""
    found = [(rank.slowdown, rank.rank, each.collective.value) for _, each in _ranked(report) for rank in each.ranks]
    slowdown, rank, collective = max(found, default=(1.0, 0, ""))
    if slowdown < SLOW:
        return f"No rank is slow: the slowest rank takes {slowdown:.2f}x the median of the others."
    return f"Rank {rank} is the slowest: it takes {slowdown:.2f}x the median of the others in {collective}."


def _ranked(report: Report) -> list[tuple[TrialResult, CollectiveResult]]:
    """Return (trial, result) for each collective that has times of the ranks.

    The result is at the largest size used for comparisons. The trial is the one with the default settings, or the first
    trial with times of the ranks.
    """
    measured = [trial for trial in report.trials if any(each.ranks for each in trial.results)]
    trial = next((each for each in measured if each.candidate == DEFAULT), measured[0] if measured else None)
    if trial is None:
        return []
    largest = {each.collective: each for each in deciding_results(trial, report) if each.ranks}
    return [(trial, each) for each in largest.values()]


def _rank_times(report: Report) -> list[Bars]:
    """Return bars with each rank's own time in the collectives, without the time of waiting for other ranks."""
    made = []
    for trial, each in _ranked(report):
        longest = max(rank.own_us for rank in each.ranks)
        bars = tuple(
            Bar(f"rank {rank.rank}", time_text(max(0.0, rank.own_us)), _width(rank.own_us, longest),
                "bad" if rank.slowdown >= SLOW else "plain", f"{rank.slowdown:.2f}")
            for rank in each.ranks
        )  # fmt: skip
        caption = f"{each.collective.value}, {size_text(each.size_bytes)}, configuration {trial.candidate}"
        made.append(Bars(caption, bars))
    return made


def _durations(report: Report) -> Bars:
    """Return bars with the duration of each part of the run."""
    parts = [(name, seconds) for name, seconds in report.durations_s if name != "total"]
    total = next((seconds for name, seconds in report.durations_s if name == "total"), None)
    longest = max((seconds for _, seconds in parts), default=0.0)
    bars = tuple(Bar(name, f"{seconds:.1f} s", _width(seconds, longest)) for name, seconds in parts)
    return Bars("" if total is None else f"{total:.1f} s in all", bars)


def _width(value: float, largest: float) -> float:
    return round(BAR_PX * max(0.0, value) / largest, 1) if largest > 0 else 0.0


def _checked(report: Report) -> list[tuple[RanCheck, str, str]]:
    """Return every check with its result and the reason for the result; checks that need attention come first."""
    made = []
    against = deciding(report)
    for check in report.checks:
        found = [each for each in report.findings if each.check == check.check]
        skipped = [each for each in report.skipped_checks if each.check == check.check]
        severities = {each.severity for each in found}
        if any(each in against for each in found) or Severity.FAIL in severities:
            end = "failed"
        elif any(each.crashed for each in skipped):
            end = "defect"
        elif found or check.outcome is CheckOutcome.FOUND:
            end = "warned" if Severity.WARN in severities else "noted"
        else:
            end = outcome_word(check.outcome)
        said = [*(each.problem for each in found), *(each.reason for each in skipped)]
        text = "; ".join(said) or check.reason or check.promise
        made.append((check, end, text))
    return sorted(made, key=lambda each: list(RESULTS).index(each[1]))


def _node(report: Report, node: NodeFacts) -> dict[str, object]:
    return {
        "host": node.host,
        "paths": path_matrix(node, chosen_gpus(report, node)),
        "p2p": p2p_matrix(report, node),
        "tables": _fact_tables(node),
        "items": _fact_items(node),
        "unread": unread(node),
    }


def _fact_tables(node: NodeFacts) -> list[Table]:
    """Return tables of the node's GPUs, adapters and interfaces, without columns that have no known value."""
    tables = []
    if isinstance(node.gpus, tuple) and node.gpus:
        tables.append(gpu_table(node.gpus, odd_below=False))
    if isinstance(node.nics, tuple) and node.nics:
        tables.append(nic_table(node, node.nics))
    if isinstance(node.netifs, tuple) and node.netifs:
        tables.append(table(NETIF_HEADERS, map(_netif_row, node.netifs), "Network interfaces").known())
    return tables


def _netif_row(netif: Netif) -> Sequence[str]:
    speed, addresses = fact_text(netif.speed_mbit_s, speed_gbit), fact_text(netif.addresses, ", ".join)
    return (
        netif.name,
        netif.kind.value,
        netif_state(netif),
        fact_text(netif.mtu),
        speed,
        fact_text(netif.numa_node),
        addresses,
    )


def _fact_items(node: NodeFacts) -> list[tuple[str, str]]:
    """Return the node's facts that need no table, as pairs (name, value)."""
    items = [*host_items(node), *software_items(node)]
    items += [] if isinstance(node.gpus, Gap) else gpu_models(node.gpus)
    environment = () if isinstance(node.environment, Gap) else node.environment
    items += [(f"inherited {line(each.name)}", each.value) for each in environment]
    entries = () if isinstance(node.nccl_conf, Gap) else node.nccl_conf
    items += [(line(each.file), f"{each.name}={each.value}") for each in entries]
    xids = () if isinstance(node.xid_lines, Gap) else node.xid_lines
    return items + [("Xid", each) for each in xids[-NEWEST_XIDS:]]
