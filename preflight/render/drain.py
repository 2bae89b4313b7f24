"""The reason that Slurm shows for a drained node (`scontrol update NodeName=... State=DRAIN Reason=...`)."""

from __future__ import annotations

import re

from preflight.model.report import Report
from preflight.render.reasons import SIMULATED, answer, reasons

MOST_CHARACTERS, MOST_WAIVED = 250, 80
# Whatever quotes, escapes, expands or separates for scontrol, a shell or a log that is split at bars becomes an
# underscore; letters beyond ASCII do too, since the accounting database may hold latin1.
UNSAFE = re.compile(r"[^A-Za-z0-9 ._:/+\-()\[\]%<>,;=@*]")


def render_drain(report: Report) -> str:
    """Return one line of at most 250 plain characters, the most important reason first."""
    start = f"preflight {answer(report)}"
    if report.simulated:
        start = f"{SIMULATED} {start}"
    text, waived = _plain(f"{start}: {'; '.join(reasons(report))}"), _waived(report)
    room = MOST_CHARACTERS - len(waived)
    return (text if len(text) <= room else text[: room - 3].rstrip() + "...") + waived + "\n"


def _waived(report: Report) -> str:
    """Return which checks are waived; they keep their place at the end, whatever is said before them."""
    names = list(dict.fromkeys(each.check for each in report.findings if each.waived))
    text = _plain(f"; waived: {', '.join(names)}") if names else ""
    return text if len(text) <= MOST_WAIVED else f"; {len(names)} checks waived"


def _plain(text: str) -> str:
    return UNSAFE.sub("_", text.replace('"', "").replace("'", ""))
