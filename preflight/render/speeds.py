"""By what speeds were judged, and every repetition of a node beside known-good ones."""

from __future__ import annotations

from preflight.model.baseline import Judged
from preflight.model.report import JudgedBy, Report, SpeedJudge
from preflight.model.units import size_text
from preflight.render.reasons import line
from preflight.render.text import INDENT, Style, clean, heading, table, wrap

HEADERS = ("collective", "sizes", "share of good, each time", "mean", "floor", "")


def speeds_section(report: Report, style: Style) -> list[str]:
    """Return who decided about speeds; of a baseline, its groups of sizes and the single sizes that look slow."""
    if all(each.by is SpeedJudge.NOBODY for each in report.judged_by) and not report.judged_by[1:]:
        told = [each for each in report.judged_by if each.told.startswith("not by the baseline")]
    else:
        told = list(report.judged_by)
    if not told:
        return []
    lines = heading("Speeds judged by", style)
    for each in told:
        lines += wrap(clean(judge_text(each)), style.width, INDENT, INDENT * 2)
    rows = [list(row) for row in baseline_rows(report)]
    if rows:
        lines += table(HEADERS, rows, style.width, right=(3, 4))
    return lines


def judge_text(judge: JudgedBy) -> str:
    """Return one line on who decided."""
    match judge.by:
        case SpeedJudge.POLICY:
            return f"the policy {line(judge.told)}"
        case SpeedJudge.BASELINE:
            return f"the baseline {line(judge.told)}"
        case SpeedJudge.LINKS:
            return f"what the links should give, without a policy's floor or a baseline: {line(judge.told)}"
        case SpeedJudge.NOBODY:
            return f"nobody: {line(judge.told)}"


def baseline_rows(report: Report) -> tuple[tuple[str, ...], ...]:
    """Return collective, sizes, every repetition's share, mean, floor and what came of it."""
    shown = [each for each in report.beside_baseline if not each.reference.size_bytes or each.is_suspicious]
    return tuple(_row(each) for each in shown)


def _row(each: Judged) -> tuple[str, ...]:
    reference = each.reference
    return (
        reference.collective.value,
        size_text(reference.size_bytes) if reference.size_bytes else f"all {line(reference.group)}",
        " ".join(f"{share:.3f}" for share in each.measured),
        f"{each.share:.3f}",
        f"{each.floor:.3f}",
        "below" if each.is_below else "looks slow" if each.is_suspicious else "ok",
    )
