"""The list of checks as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.model.finding import CheckDescription
from preflight.render.text import Style, finish, paint, wrap


def render_checks(checks: Sequence[CheckDescription], style: Style) -> str:
    """Return each check with what it promises, whom it blames, what it reads and what it can't see."""
    first = f"{len(checks)} checks. A check that can't look says so; that is never the same as nothing found."
    lines = [*wrap(first, style.width), ""]
    for check in checks:
        lines.append(f"{paint(check.name, 'bold', style)}  [{check.blame.value}]")
        lines += wrap(check.promise, style.width, "  ")
        lines += wrap(f"reads: {', '.join(check.reads) or 'the trials'}", style.width, "  ", "    ")
        lines += wrap(f"can't see: {check.blind_to}", style.width, "  ", "    ")
        lines.append("")
    return finish(lines, style)
