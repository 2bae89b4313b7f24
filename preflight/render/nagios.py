"""One line as the Nagios plugin guidelines want it: `OK - text | 'label'=value;;;0`."""

from __future__ import annotations

import re

from preflight.model.facts import Gap
from preflight.model.finding import Severity
from preflight.model.report import Report
from preflight.model.trial import DEFAULT, CollectiveResult
from preflight.plan.duel import decision_results
from preflight.render.reasons import is_bad, is_good, line, summary

MOST_CHARACTERS = 1000  # of text; older NRPE carries 1 KiB
UNSAFE_IN_LABEL = re.compile(r"[^A-Za-z0-9_]")


def render_nagios(report: Report) -> str:
    """Return the line: a good answer with a warning is WARNING, what could not be looked at UNKNOWN."""
    return f"PREFLIGHT {nagios_state(report)} - {_text(report)} | {' '.join(_perfdata(report))}\n"


def nagios_state(report: Report) -> str:
    """Return OK, WARNING, CRITICAL or UNKNOWN, whose exit codes are 0 to 3 in this order."""
    if is_bad(report):
        return "CRITICAL"
    if not is_good(report):
        return "UNKNOWN"
    return "WARNING" if any(each.severity is Severity.WARN for each in report.findings) else "OK"


def _text(report: Report) -> str:
    warned = [line(f"{each.subject}: {each.problem}") for each in report.findings if each.severity is Severity.WARN]
    text = "; ".join(dict.fromkeys([summary(report), *(warned if is_good(report) else [])])).replace("|", "/")
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."


def _perfdata(report: Report) -> list[str]:
    """Return labelled numbers; of the units that Nagios knows, s is the only one that fits."""
    counts = {severity: sum(each.severity is severity for each in report.findings) for severity in Severity}
    items = [f"'findings_{severity.value}'={count};;;0" for severity, count in counts.items()]
    for result in _measured(report):
        if not isinstance(result.busbw_gb_s, Gap):
            label = f"busbw_gb_s_{result.collective.value}_{result.size_bytes}_bytes"
            items.append(f"'{label}'={result.busbw_gb_s:.4g};;;0")
    for name, seconds in report.durations_s:
        items.append(f"'duration_{UNSAFE_IN_LABEL.sub('_', name)}'={seconds:.3f}s;;;0")
    return items


def _measured(report: Report) -> tuple[CollectiveResult, ...]:
    trial = next((each for each in report.trials if each.candidate == DEFAULT), None)
    return decision_results(trial.results, cpu_path=report.backend == "gloo") if trial else ()
