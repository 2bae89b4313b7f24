"""The page of `preflight probe`."""

from __future__ import annotations

from preflight.model.expected import Expected
from preflight.model.facts import Gap, NodeFacts
from preflight.model.finding import Finding, SkippedCheck
from preflight.plan.gpu_advice import GpuSetAdvice
from preflight.render.findings import findings_section, skip_reason
from preflight.render.node import render_probe
from preflight.render.text import INDENT, Style, clean, finish, heading, wrap
from preflight.render.topology import expected_section, gpu_set_section


def render_probe_page(
    node: NodeFacts,
    findings: tuple[Finding, ...],
    skipped: tuple[SkippedCheck, ...],
    style: Style,
    gpu_set: GpuSetAdvice | None = None,
    expected: Expected | Gap | None = None,
) -> str:
    """Return the page of `preflight probe`: the facts, then what follows from them alone."""
    unseen = _could_not_look(skipped, style)
    lines = gpu_set_section(gpu_set, style) if gpu_set is not None else []
    lines += expected_section(expected, style) if expected is not None else []
    lines += findings_section(findings, style)
    lines += [*heading("Checks that could not look", style), *unseen] if unseen else []
    return render_probe(node, style) + (finish(lines, style) if lines else "")


def _could_not_look(skipped: tuple[SkippedCheck, ...], style: Style) -> list[str]:
    """Return why checks could not look, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for each in skipped:
        by_reason.setdefault(clean(skip_reason(each)), []).append(clean(each.check))
    lines = []
    for reason, checks in by_reason.items():
        lines += wrap(f"{', '.join(checks)}: {reason}", style.width, INDENT, INDENT * 2)
    return lines
