"""Findings, and the checks that could not look, as text."""

from __future__ import annotations

from preflight.model.finding import Finding, Severity, SkippedCheck
from preflight.render.text import INDENT, Style, clean, heading, paint, shorten, wrap

COLOURS = {Severity.FAIL: "red", Severity.WARN: "yellow", Severity.INFO: "dim"}
HANGING = INDENT * 4  # below a finding's severity


def findings_section(findings: tuple[Finding, ...], style: Style) -> list[str]:
    """Return the findings, the worst first."""
    if not findings:
        return []
    order = list(Severity)
    lines = heading("Findings", style)
    for finding in sorted(findings, key=lambda each: order.index(each.severity)):
        lines += _finding(finding, style)
    return lines


def _finding(finding: Finding, style: Style) -> list[str]:
    word = finding.severity.name
    about = f"{finding.check} · {finding.subject} [{finding.blame.value}]"
    head, *more = wrap(clean(about), style.width, f"{INDENT}{word:<6}", HANGING)
    lines = [head.replace(word, paint(word, COLOURS[finding.severity], style), 1), *more]
    lines += wrap(clean(finding.problem), style.width, HANGING)
    for seen in finding.evidence:
        start = f"{HANGING}{shorten(clean(seen.what), style.width // 3)}: "
        lines += wrap(clean(f"{seen.value} ({seen.source})"), style.width, start, HANGING + INDENT)
    if finding.fix:
        lines += wrap(clean(finding.fix), style.width, f"{HANGING}fix: ", HANGING + INDENT)
    return lines


def skip_reason(check: SkippedCheck) -> str:
    """Return why a check could not look; a check that crashed is preflight's own defect."""
    told = "a defect of preflight, please report it: " if check.crashed else ""
    return f"skipped: {told}{check.reason}"
