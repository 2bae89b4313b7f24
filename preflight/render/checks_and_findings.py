"""What the checks found, which of them could not look, and the list of all checks."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.finding import CheckDescription, Finding, Severity, SkippedCheck
from preflight.render.console_writer import page
from preflight.render.document import BLANK, Block, Findings, Heading, Text, grouped
from preflight.render.text import Style


def findings_section(findings: tuple[Finding, ...]) -> list[Block]:
    """Return the findings, the worst first."""
    return [Heading("Findings"), Findings(worst_first(findings))] if findings else []


def worst_first(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings by how much they matter."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda each: order.index(each.severity)))


def skips_by_reason(skipped: Sequence[SkippedCheck]) -> dict[str, list[str]]:
    """Return the checks that could not look, by the reason; one that crashed is preflight's own defect."""
    defect = "a defect of preflight, please report it: "
    return grouped((f"skipped: {defect if each.crashed else ''}{each.reason}", each.check) for each in skipped)


def render_checks(checks: Sequence[CheckDescription], style: Style, is_list: bool = True) -> str:
    """Return each check, of all or of those asked for: what it promises, whom it blames, what it can't see."""
    first = f"{len(checks)} checks. A check that can't look says so; that is never the same as nothing found."
    blocks: list[Block] = [Text(first), BLANK] if is_list else []
    for check in checks:
        blocks += [
            Text(f"[{check.blame.value}]", label=f"{check.name}  ", label_tone="bold"),
            Text(check.promise, 2),
            Text(f"reads: {', '.join(check.reads) or 'the trials'}", 2, 4),
            Text(f"can't see: {check.blind_to}", 2, 4),
            BLANK,
        ]
    return page(blocks, style)
