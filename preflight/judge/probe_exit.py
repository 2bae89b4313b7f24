"""The exit code of `preflight probe`, from facts alone."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.finding import Blame, Finding, Severity, SkippedCheck


def probe_exit_code(
    findings: Sequence[Finding], skipped: Sequence[SkippedCheck], *, strict: bool, is_cut_short: bool = False
) -> int:
    """Return the exit code of `preflight probe`: 1 for a failure, 3 where a check crashed or time ran out, else 0."""
    failing = [f for f in findings if f.severity is Severity.FAIL or (strict and f.severity is Severity.WARN)]
    if any(finding.blame is not Blame.HARNESS for finding in failing):
        return 1
    return 3 if failing or is_cut_short or any(check.crashed for check in skipped) else 0
