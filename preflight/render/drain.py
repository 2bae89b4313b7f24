"""The reason that Slurm shows for a drained node (`scontrol update NodeName=... State=DRAIN Reason=...`)."""

from __future__ import annotations

import re

from preflight.model.report import Report
from preflight.render.reasons import SIMULATED, answer, reasons

MOST_CHARACTERS = 250
# Whatever quotes, escapes, expands or separates for scontrol, a shell or a log that is split at bars becomes an
# underscore; letters beyond ASCII do too, since the accounting database may hold latin1.
UNSAFE = re.compile(r"[^A-Za-z0-9 ._:/+\-()\[\]%<>,;=@*]")


def render_drain(report: Report) -> str:
    """Return one line of at most 250 plain characters, the most important reason first."""
    start = f"preflight {answer(report)}"
    if report.simulated:
        start = f"{SIMULATED} {start}"
    told = "; ".join(reasons(report))
    text = UNSAFE.sub("_", f"{start}: {told}".replace('"', "").replace("'", ""))
    return (text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3].rstrip() + "...") + "\n"
