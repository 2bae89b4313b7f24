"""The verdict in the formats of Slurm, Nagios and Kubernetes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from preflight.model.facts import Gap
from preflight.model.finding import Finding, Severity
from preflight.model.report import Report
from preflight.model.trial import DEFAULT
from preflight.model.units import capitalized
from preflight.show.checks_and_findings import outcome_counts
from preflight.show.text import line, rfc3339
from preflight.show.trials import deciding_results
from preflight.show.verdict import SIMULATED, answer, deciding, is_bad, is_good, reasons, summary

MOST_IN_DRAIN, MOST_WAIVED = 250, 80
MOST_IN_NAGIOS = 1000  # of text; older NRPE carries 1 KiB
MOST_IN_K8S = 1024  # kubectl describe prints it on one line
# Whatever quotes, escapes, expands or separates for scontrol, a shell or a log that is split at bars becomes an
# underscore; letters beyond ASCII do too, since the accounting database may hold latin1.
UNSAFE = re.compile(r"[^A-Za-z0-9 ._:/+\-()\[\]%<>,;=@*]")
UNSAFE_IN_LABEL = re.compile(r"[^A-Za-z0-9_]")
CONDITION = "PreflightReady"
PROBE_REASON = "preflight probe: "  # by which scripts/slurm_prolog.sh knows the line
SHADOW = "SHADOW"  # the answer of a run with --shadow, on which no script may act
NOT_A_LETTER = re.compile(r"[^A-Za-z0-9]+")


def render_drain(report: Report) -> str:
    """Return the text for `Reason=` of Slurm's `scontrol update`.

    The most important reason comes first. The result is one line of at most 250 characters.
    """
    start = f"{SIMULATED} " if report.simulated else ""
    start = f"{start}{SHADOW} " if report.shadow else start
    text, waived = _plain(f"{start}preflight {answer(report).lower()}: {'; '.join(reasons(report))}"), _waived(report)
    room = MOST_IN_DRAIN - len(waived)
    return (text if len(text) <= room else text[: room - 3].rstrip() + "...") + waived + "\n"


def render_probe_reason(findings: Sequence[Finding]) -> str:
    """Return the failed checks as one line for `Reason=` of Slurm's `scontrol`, or "" if no check failed."""
    failed = [f"{each.check} {each.subject}" for each in findings if each.severity is Severity.FAIL]
    text = _plain(f"{PROBE_REASON}{'; '.join(dict.fromkeys(failed))}") if failed else ""
    return (text if len(text) <= MOST_IN_DRAIN else text[: MOST_IN_DRAIN - 3].rstrip() + "...") + "\n" * bool(failed)


def _waived(report: Report) -> str:
    """Return a text that names the waived checks.

    The text is added to the line after the line was shortened.
    """
    names = list(dict.fromkeys(each.check for each in report.findings if each.waived))
    text = _plain(f"; waived: {', '.join(names)}") if names else ""
    return text if len(text) <= MOST_WAIVED else f"; {len(names)} checks waived"


def _plain(text: str) -> str:
    return UNSAFE.sub("_", text.replace('"', "").replace("'", ""))


# What follows a bar is numbers to Nagios, and some of its pages show a plugin's line as HTML.
NAGIOS_ACTS_ON = str.maketrans("|<>", "/\u2039\u203a")


def render_nagios(report: Report) -> str:
    """Return the output line of a Nagios plugin, such as `OK - text | 'label'=value;;;0`."""
    return f"PREFLIGHT {nagios_state(report)} - {answer(report)}: {_text(report)} | {' '.join(_perfdata(report))}\n"


def nagios_state(report: Report) -> str:
    """Return the Nagios state: OK, WARNING, CRITICAL or UNKNOWN."""
    if is_bad(report):
        return "CRITICAL"
    if not is_good(report):
        return "UNKNOWN"
    return "WARNING" if any(each.severity is Severity.WARN for each in report.findings) else "OK"


def _text(report: Report) -> str:
    warned = [line(f"{each.subject}: {each.problem}") for each in report.findings if each.severity is Severity.WARN]
    text = "; ".join(dict.fromkeys([summary(report), *(warned if is_good(report) else [])])).translate(NAGIOS_ACTS_ON)
    return _cut(text, MOST_IN_NAGIOS)


def _perfdata(report: Report) -> list[str]:
    """Return values with labels in the format of Nagios performance data.

    The only unit in the data is s (seconds).
    """
    counts = {severity: sum(each.severity is severity for each in report.findings) for severity in Severity}
    items = [f"'findings_{severity.value}'={count};;;0" for severity, count in counts.items()]
    ended = outcome_counts(report.checks) if report.checks else {}
    items += [f"'checks_{outcome.value}'={count};;;0" for outcome, count in ended.items()]
    default = next((each for each in report.trials if each.candidate == DEFAULT), None)
    for result in deciding_results(default, report) if default else ():
        if not isinstance(result.busbw_gb_s, Gap):
            label = f"busbw_gb_s_{result.collective.value}_{result.size_bytes}_bytes"
            items.append(f"'{label}'={result.busbw_gb_s:.4g};;;0")
    for name, seconds in report.durations_s:
        items.append(f"'duration_{UNSAFE_IN_LABEL.sub('_', name)}'={seconds:.3f}s;;;0")
    return items


def render_k8s(report: Report) -> str:
    """Return the verdict as a YAML patch for the node's status in Kubernetes.

    The user applies the patch with `kubectl patch node N --subresource=status --patch-file F`.
    """
    # The condition is Unknown if the result is inconclusive.
    condition = {
        "type": f"{CONDITION}{SHADOW.title()}" if report.shadow else CONDITION,
        "status": "True" if is_good(report) else "False" if is_bad(report) else "Unknown",
        "reason": _reason(report),
        "message": _cut(summary(report), MOST_IN_K8S),
    }
    at = rfc3339(report.created_at)
    if at:
        condition |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
    lines = [f"{key}: {json.dumps(value)}" for key, value in condition.items()]
    return "\n".join(["status:", "  conditions:", f"  - {lines[0]}", *(f"    {line}" for line in lines[1:])]) + "\n"


def _reason(report: Report) -> str:
    """Return the reason of the Kubernetes condition as one word in CamelCase.

    If the verdict is bad, the reason is the name of the check that decided.
    """
    if is_good(report):
        return "Ready"
    if not is_bad(report):
        return "CouldNotLook"
    words = [NOT_A_LETTER.split(each.check) for each in deciding(report)[:1]]
    name = "".join(capitalized(word) for word in (words[0] if words else ()))
    return name[:200] if name[:1].isalpha() else "NoSettingWorks"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
